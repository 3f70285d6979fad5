#!/usr/bin/env bash
# Runs every linter; fails if any does.
#   lint.sh <preset>    clang-tidy reads build/<preset>/compile_commands.json
set -euo pipefail
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/sources.sh"
cd "$ROOT"

preset="${1:?usage: lint.sh <preset>}"
failed=()

# check NAME COMMAND...: runs it under a heading and notes a failure.
check() {
  local name="$1"
  shift
  printf -- '-- %s\n' "$name"
  "$@" || failed+=("$name")
}

# Empty lists of files pass, as in a fresh tree.
clang_format() { cxx_sources | xargs -r .venv/bin/clang-format --dry-run --Werror; }
ruff_check() { python_sources | xargs -r .venv/bin/ruff check --quiet; }
ruff_format() { python_sources | xargs -r .venv/bin/ruff format --quiet --check; }
type_check() { [[ ! -d clients/python/src/kernelbox ]] || .venv/bin/mypy; }

# An API that has been released must stay compatible with its last release.
buf_breaking() {
  local tag base
  tag="$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)"
  if [[ -z "$tag" ]]; then
    echo "skipped: no v* tag yet, so nothing has been released that could break"
    return
  fi
  base="$(mktemp -d)"
  git archive "$tag" buf.yaml proto | tar -x -C "$base"
  .venv/bin/buf breaking --against "$base" && echo "compatible with $tag"
  local status=$?
  rm -rf "$base"
  return $status
}

check "clang-format" clang_format
check "clang-tidy" .venv/bin/python tools/tidy.py "build/$preset"
check "ruff check" ruff_check
check "ruff format" ruff_format
check "mypy" type_check
check "buf lint" .venv/bin/buf lint
check "buf breaking" buf_breaking

((${#failed[@]} == 0)) || die "failed: ${failed[*]}. Try make format; then make lint runs these alone"
