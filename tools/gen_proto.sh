#!/usr/bin/env bash
# Generates the Python code of the wire API into clients/python/src/kernelbox/_proto, importable as
# kernelbox._proto.kernelbox.v1.<file>_pb2, with type stubs, and the stub of the client's ops,
# kernelbox/_ops.pyi.
#
# The system's protoc (3.21) is used on purpose: its code runs with every protobuf runtime from 4.21
# on, whereas that of newer compilers refuses runtimes older than itself and those two majors newer.
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

client=clients/python/src/kernelbox
out="$client/_proto"
stub_script=clients/python/tools/gen_ops_stub.py
stamp="$out/.stamp-$(cat proto/kernelbox/v1/*.proto tools/gen_proto.sh "$stub_script" "$client"/_{plan,op_methods}.py | hash_of)"
if [[ -f "$stamp" ]]; then
  say "python proto code is up to date"
  exit
fi
plugin="$(command -v grpc_python_plugin)" && command -v protoc >/dev/null ||
  die "protoc or grpc_python_plugin not found. Run make setup (packages protobuf-compiler, protobuf-compiler-grpc)"

say "generating $out"
rm -rf "$out"
mkdir -p "$out"
protoc --proto_path=proto --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  --plugin=protoc-gen-grpc_python="$plugin" proto/kernelbox/v1/*.proto
# Python imports follow the .proto paths; ours live one package further down.
find "$out" -name '*.py' -o -name '*.pyi' | xargs sed -i \
  -e 's/^from kernelbox\.v1 import/from kernelbox._proto.kernelbox.v1 import/' \
  -e 's/^import kernelbox\.v1\./import kernelbox._proto.kernelbox.v1./'
# A generated grpc file is written for each .proto; those without a service are empty.
grep -L 'Stub' "$out"/kernelbox/v1/*_pb2_grpc.py | xargs --no-run-if-empty rm
touch "$out/__init__.py" "$out/kernelbox/__init__.py" "$out/kernelbox/v1/__init__.py"

# The stub is for editors and mypy alone; a plain build of the package does without it.
if [[ -x .venv/bin/python ]]; then
  PYTHONPATH=clients/python/src .venv/bin/python "$stub_script" || die "$stub_script failed (above)"
else
  say "no .venv: $client/_ops.pyi, which only type checkers read, is not written"
fi
touch "$stamp"
