#!/usr/bin/env bash
# Finds nvcc, or fetches it.
#
#   cuda_toolkit.sh --find    prints the path of nvcc; nothing when there is none that is new enough
#   cuda_toolkit.sh --fetch   installs NVIDIA's PyPI wheels into .cuda when --find finds nothing
#
# The oldest nvcc that compiles our C++20 for compute_90a is 12.0.
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

# One release of the toolkit: cuBLAS has its own numbering.
WHEELS=(
  nvidia-cuda-nvcc==13.0.88
  nvidia-nvvm==13.0.88
  nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85
  nvidia-cuda-culibos==13.0.85
  nvidia-cuda-nvrtc==13.0.88
  nvidia-nvtx==13.0.85
  nvidia-cublas==13.1.0.3
)

find_nvcc() {
  local candidate major
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" \
    $(ls -d /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc 2>/dev/null | sort --version-sort --reverse) \
    "$ROOT/.cuda/bin/nvcc"; do
    [[ -n "$candidate" && -x "$candidate" ]] || continue
    major="$("$candidate" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')"
    if ((${major:-0} >= 12)); then
      echo "$candidate"
      return
    fi
    say "$candidate is older than CUDA 12, left alone" >&2
  done
}

# The wheels unpack to nvidia/cu13/{bin,include,lib,nvvm}; a toolkit also has lib64 and names of its
# libraries without a version, which the linker and CMake look for.
fetch() {
  local python=.venv/bin/python unpacked=.cuda.unpacked library
  [[ "$(uname -m)" == x86_64 ]] || die "the wheels pinned here are x86-64. Install the CUDA Toolkit by hand and set CUDACXX"
  [[ -x "$python" ]] || die ".venv is missing. Run make setup first"
  say "fetching the CUDA compiler and libraries from PyPI into .cuda (620 MB)"
  rm -rf "$unpacked" .cuda
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary=:all: \
    --target "$unpacked" "${WHEELS[@]}" || die \
    "pip failed (its message is above). Check that PyPI can be reached, or install the CUDA Toolkit by hand and set CUDACXX"
  chmod +x "$unpacked"/nvidia/cu13/bin/* "$unpacked"/nvidia/cu13/nvvm/bin/*
  ln -s lib "$unpacked/nvidia/cu13/lib64"
  for library in "$unpacked"/nvidia/cu13/lib/*.so.*; do
    ln -s "$(basename "$library")" "${library%.so.*}.so"
  done
  mv "$unpacked/nvidia/cu13" .cuda
  rm -rf "$unpacked"
}

case "${1:-}" in
  --find) find_nvcc ;;
  --fetch)
    nvcc="$(find_nvcc)"
    if [[ -z "$nvcc" ]]; then
      fetch
      nvcc="$(find_nvcc)"
    fi
    [[ -n "$nvcc" ]] || die "the fetched nvcc does not run: $(.cuda/bin/nvcc --version 2>&1 | tail -1)"
    say "nvcc: $nvcc"
    ;;
  *) die "usage: cuda_toolkit.sh --find | --fetch" ;;
esac
