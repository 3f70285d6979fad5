"""Stops a build that would lack the generated code; all else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

GENERATED = Path(__file__).parent / "src/kernelbox/_proto/kernelbox/v1/service_pb2.py"

if not GENERATED.exists():
    raise SystemExit("the code of the wire API is missing: run tools/gen_proto.sh first")
setup()
