#!/usr/bin/env bash
# Configures and builds build/<preset>.
#   build.sh <preset>
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

preset="${1:?usage: build.sh <preset>}"
nvcc="$(tools/cuda_toolkit.sh --find)"
if [[ "$preset" == cuda ]]; then
  [[ -n "$nvcc" ]] || die "no nvcc found. Run make cuda, which fetches one"
  export CUDACXX="$nvcc"
elif [[ -z "$nvcc" ]]; then
  say "building the CPU backend alone: no nvcc found (make cuda fetches one)"
fi

log="build/$preset/configure.log"
mkdir -p "build/$preset"
cmake --preset "$preset" >"$log" 2>&1 || {
  cat "$log" >&2
  die "configuring build/$preset failed (above). If a package is missing, run make setup; else try again after rm -rf build/$preset"
}
cmake --build --preset "$preset" || die "building build/$preset failed (above)"
