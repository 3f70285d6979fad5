"""Calls that a client gives up leave no byte behind and the session usable."""

from __future__ import annotations

import contextlib
import itertools
import queue

import grpc
import pytest
import raw
from conftest import used_bytes, wait_for_used_bytes
from kernelbox import errors
from kernelbox._proto.kernelbox.v1 import layers_pb2, service_pb2, types_pb2

HANDLE = 10**9
SIDE = 512
MEGABYTE = 1 << 20

pytestmark = pytest.mark.usefixtures("unharmed")


def code_of(call) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as error:
        for _ in call:
            pass
    return error.value.code()


def slow_ops(session, count, side=SIDE):
    """Returns ops that take some time, each of which reads the one before it."""
    x = session.fill(shape=(side, side), dtype="float32", value=0)
    session.sync()
    handles = [x.handle, *range(HANDLE, HANDLE + count)]
    return x, [
        layers_pb2.Op(id=b, linear={"x": a, "weight": x.handle, "y": b})
        for a, b in itertools.pairwise(handles)
    ]


def free(session, handles):
    """Frees those of the handles that exist."""
    request = service_pb2.FreeRequest(session_id=session.id, handles=handles)
    with contextlib.suppress(errors.UnknownHandleError):
        raw.call(session, "Free", request, 60)


@pytest.mark.parametrize("timeout", [None, 0.2])
def test_upload(session, server, timeout):
    before = used_bytes(server.target)
    parts: queue.SimpleQueue = queue.SimpleQueue()
    spec = types_pb2.TensorSpec(dtype=types_pb2.D_TYPE_FLOAT32, shape=[MEGABYTE])
    header = service_pb2.UploadHeader(
        session_id=session.id, handle=HANDLE, spec=spec, size_bytes=4 * MEGABYTE
    )
    parts.put(service_pb2.UploadRequest(header=header))
    parts.put(service_pb2.UploadRequest(chunk=bytes(MEGABYTE)))
    call = session._rpc._methods["Upload"].future(iter(parts.get, None), timeout=timeout)
    if timeout is None:
        wait_for_used_bytes(server.target, before + 4 * MEGABYTE)
        call.cancel()
    else:
        assert call.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
    parts.put(None)
    wait_for_used_bytes(server.target, before)


@pytest.mark.parametrize("timeout", [None, 0.2])
def test_download(session, timeout):
    x = session.fill(shape=(16 * MEGABYTE,), dtype="float32", value=1)
    session.sync()
    request = service_pb2.DownloadRequest(session_id=session.id, handle=x.handle)
    call = session._rpc.open("Download", request, timeout)
    assert next(call).header.size_bytes == 64 * MEGABYTE
    if timeout is None:
        call.cancel()
        assert code_of(call) is grpc.StatusCode.CANCELLED
    else:
        # Not reading stops the sender; then time is up.
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_run(session, backend):
    """A Run that still waits for its turn when its time is up never runs."""
    count = 50
    x, ops = slow_ops(session, count + 1, side=SIDE if backend == "cpu" else 8 * SIDE)
    ahead = [
        service_pb2.ExecuteRequest(session_id=session.id, ops=part) for part in (ops[:1], ops[1:-1])
    ]
    call = session._rpc.open("Execute", iter(ahead), timeout=60)
    next(call)  # one op is done, the others are in the queue
    request = service_pb2.RunRequest(session_id=session.id, op=ops[-1])
    with pytest.raises(grpc.RpcError) as error:
        session._rpc.open("Run", request, timeout=0.01)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert next(call).completed_ops == count - 1
    free(session, range(HANDLE, HANDLE + count + 1))
    assert x.handle


@pytest.mark.parametrize("timeout", [None, 0.05])
def test_execute(session, timeout):
    count = 200
    x, ops = slow_ops(session, count)
    requests = [service_pb2.ExecuteRequest(session_id=session.id, ops=[op]) for op in ops]
    parts: queue.SimpleQueue = queue.SimpleQueue()
    for request in requests:
        parts.put(request)
    call = session._rpc.open("Execute", iter(parts.get, None), timeout)
    if timeout is None:
        next(call)
        call.cancel()
        assert code_of(call) is grpc.StatusCode.CANCELLED
    else:
        assert code_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    parts.put(None)
    # What had started ran to its end; the rest is as if it had never been sent.
    free(session, [op.id for op in ops])
    assert x.handle
