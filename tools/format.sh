#!/usr/bin/env bash
# Formats the sources in place.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/sources.sh"
cd "$ROOT"

cxx_sources | xargs -r .venv/bin/clang-format -i
python_sources | xargs -r .venv/bin/ruff format --quiet
python_sources | xargs -r .venv/bin/ruff check --quiet --fix || true
