#!/usr/bin/env bash
# Packs what a GPU machine without our build tools needs into .bundle.tar.gz: the CUDA build's programs,
# the shared libraries they load, the Python client and the tests. There, `tar xzf .bundle.tar.gz` makes
# .bundle, and .bundle/run.sh COMMAND runs a command with all of it in place.
#
# The machine brings: glibc 2.36 or newer with libstdc++ of gcc 12 or newer (Ubuntu 24.04 has both), an
# NVIDIA driver, cuBLASLt 13 (opened at run time), and Python 3.12 with numpy, grpcio, protobuf,
# ml_dtypes, pytest, hypothesis and what the demo draws with.
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

BIN=build/cuda/bin
OUT=.bundle
LIMIT_MB=60
# Pure Python, or built for the machine's Python 3.12, at the versions .venv has.
CARRIED=(googleapis-common-protos xxhash)

[[ -x "$BIN/kernelboxd" ]] || die "$BIN/kernelboxd is missing. Run make cuda first"
rm -rf "$OUT"
mkdir -p "$OUT"/{bin,lib,site,clients/python,tests}

# Programs, without debug symbols.
for program in "$BIN"/*; do
  [[ -f "$program" && -x "$program" ]] || continue
  strip -o "$OUT/bin/$(basename "$program")" "$program"
done

# Every library they load, but for glibc and the compiler's, which must be the machine's own, and CUDA's.
needs() { ldd "$OUT"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u; }
needs | while read -r library; do
  case "$(basename "$library")" in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | ld-linux* | \
      libstdc++.so.* | libgcc_s.so.* | libcublas* | libnvrtc* | libcuda.so.*) continue ;;
  esac
  strip -o "$OUT/lib/$(basename "$library")" "$(readlink -f "$library")"
done

# Python: the client with its generated code, and wheels unpacked so that no pip is needed there.
tools/gen_proto.sh
cp -r clients/python/{src,examples} "$OUT/clients/python/"
for package in "${CARRIED[@]}"; do
  version="$(.venv/bin/python -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$package")"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$OUT/site" \
    --only-binary=:all: --implementation cp --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    "$package==$version" || die "no wheel of $package $version for Python 3.12"
done

cp tools/sanitized_server.sh "$OUT/"
cp -r tests/python "$OUT/tests/"
find "$OUT" -name __pycache__ -prune -exec rm -rf {} +

cat >"$OUT/run.sh" <<'EOF'
#!/usr/bin/env bash
# Runs a command with the bundle's programs, libraries and Python packages in place.
#   run.sh kernelboxd --backend cuda
#   run.sh python3 -m pytest tests/python
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PATH="$here/bin:$PATH"
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PYTHONPATH="$here/clients/python/src:$here/site${PYTHONPATH:+:$PYTHONPATH}"
export KERNELBOXD="$here/bin/kernelboxd"
cd "$here"
exec "$@"
EOF
chmod +x "$OUT/run.sh"

tar czf "$OUT.tar.gz" "$OUT"
size_mb="$(du -m "$OUT.tar.gz" | cut -f1)"
((size_mb < LIMIT_MB)) || die "$OUT.tar.gz is $size_mb MB, more than $LIMIT_MB: du -a $OUT | sort -n | tail shows what is large"
say "$OUT.tar.gz: $size_mb MB, $(ls "$OUT/bin" | wc -l) programs, $(ls "$OUT/lib" | wc -l) libraries"
