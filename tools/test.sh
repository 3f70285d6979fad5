#!/usr/bin/env bash
# Builds and runs every suite; goes on after a failure, and fails if any suite did.
#   test.sh <preset>...    every preset is built and its C++ tests run; pytest drives the first one's
#                          server
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

(($# > 0)) || die "usage: test.sh <preset>..."
first="$1"
passed=()
failed=()

# suite NAME COMMAND...
suite() {
  local name="$1" start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    passed+=("$name ($((SECONDS - start)) s)")
  else
    failed+=("$name")
  fi
}

cxx_tests() { ctest --preset "$1" --no-tests=error; }

# shellcheck disable=SC2086  # PYTEST_ARGS holds several words
python_tests() { KERNELBOXD="$ROOT/build/$first/bin/kernelboxd" .venv/bin/python -m pytest tests/python ${PYTEST_ARGS:-}; }

for preset in "$@"; do
  suite "build $preset" tools/build.sh "$preset"
done
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
for preset in "$@"; do
  suite "C++ tests, $preset" cxx_tests "$preset"
done
suite "Python tests, $first" python_tests
suite "docs/add-a-layer.md carried out" .venv/bin/python tools/try_walkthrough.py
suite "linters" tools/lint.sh "$first"

printf '\n'
((${#failed[@]} == 0)) || die "failed: $(IFS=';'; echo "${failed[*]}")"
printf 'passed: %s\n' "$(IFS=','; echo "${passed[*]}" | sed 's/,/, /g')"
