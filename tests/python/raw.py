"""Requests that the client would never make: for tests of what the server says to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import kernelbox
from kernelbox._proto.kernelbox.v1 import layers_pb2, service_pb2, types_pb2
from kernelbox._rpc import from_rpc_error
from kernelbox._specs import Spec
from kernelbox.tensor import Buffer, Tensor

FLOAT32 = types_pb2.D_TYPE_FLOAT32


class _Borrowed(Buffer):
    """A handle that is somebody else's to free."""

    __slots__ = ()

    def free(self) -> None:
        pass

    __del__ = free


def forge(session: kernelbox.Session, handle: int) -> Tensor:
    """Returns a tensor of any handle, which need not exist."""
    return Tensor(_Borrowed(session, handle, Spec()))


def call(session: kernelbox.Session, method: str, request: Any, timeout: float | None = 30) -> Any:
    """Makes a call; failures are raised as the client raises them."""
    try:
        return session._rpc.open(method, request, timeout)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


def run(session: kernelbox.Session, **kind: Any) -> Any:
    """Runs one op by unary Run: `run(session, relu={"x": 1, "y": 2})`."""
    ((name, fields),) = kind.items()
    op = layers_pb2.Op(id=2**32)
    getattr(op, name).SetInParent()
    for field, value in fields.items():
        setattr(getattr(op, name), field, value)
    return call(session, "Run", service_pb2.RunRequest(session_id=session.id, op=op))


def upload(
    session: kernelbox.Session,
    handle: int,
    shape: tuple[int, ...],
    chunks: list[bytes],
    checksum: int | None,
    *,
    size_bytes: int | None = None,
    dtype: int = FLOAT32,
) -> None:
    """Uploads chunks under a header that need not agree with them."""
    spec = types_pb2.TensorSpec(dtype=dtype, shape=shape)
    if size_bytes is None:
        size_bytes = sum(len(chunk) for chunk in chunks)
    header = service_pb2.UploadHeader(
        session_id=session.id, handle=handle, spec=spec, size_bytes=size_bytes
    )

    def messages() -> Iterator[service_pb2.UploadRequest]:
        yield service_pb2.UploadRequest(header=header)
        for chunk in chunks:
            yield service_pb2.UploadRequest(chunk=chunk)
        if checksum is not None:
            yield service_pb2.UploadRequest(xxh3_64=checksum)

    call(session, "Upload", messages())
