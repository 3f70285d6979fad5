"""Uploads that are not what they say they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import raw
import xxhash
from conftest import used_bytes, wait_for_used_bytes
from kernelbox import errors
from kernelbox._proto.kernelbox.v1 import service_pb2

HANDLE = 10**9
DATA = np.arange(1000, dtype=np.float32).tobytes()
SUM = xxhash.xxh3_64_intdigest(DATA)

pytestmark = pytest.mark.usefixtures("unharmed")


def send(session, chunks, checksum=SUM, size_bytes=4000, shape=(1000,)):
    raw.upload(session, HANDLE, shape, chunks, checksum, size_bytes=size_bytes)


def test_short(session):
    with pytest.raises(errors.SizeMismatchError) as error:
        send(session, [DATA[:-4]])
    assert error.value.metadata == {"expected": "4000", "given": "3996"}


def test_ends_without_checksum(session):
    with pytest.raises(errors.KernelboxError) as error:
        send(session, [DATA], checksum=None)
    assert isinstance(error.value, (errors.DataLossError, errors.InvalidArgumentError))


def test_long(session):
    with pytest.raises(errors.SizeMismatchError) as error:
        send(session, [DATA, b"1234"])
    assert error.value.metadata["expected"] == "4000"
    assert "4004" in error.value.metadata["given"]


def test_corrupt(session):
    with pytest.raises(errors.ChecksumMismatchError) as error:
        send(session, [DATA[:-1] + b"?"])
    assert error.value.metadata["expected"] != error.value.metadata["given"]


def test_header_disagrees_with_shape(session):
    with pytest.raises(errors.KernelboxError) as error:
        send(session, [DATA], shape=(999,))
    assert isinstance(error.value, (errors.SizeMismatchError, errors.InvalidRequestError))


def test_handle_of_a_failed_upload_is_unused(session):
    with pytest.raises(errors.ChecksumMismatchError):
        send(session, [DATA], checksum=SUM ^ 1)
    send(session, [DATA])
    np.testing.assert_array_equal(
        raw.forge(session, HANDLE).numpy(), np.arange(1000, dtype=np.float32)
    )
    raw.call(session, "Free", service_pb2.FreeRequest(session_id=session.id, handles=[HANDLE]))


def test_chunk_before_header(session):
    with pytest.raises(errors.InvalidRequestError):
        raw.call(session, "Upload", iter([service_pb2.UploadRequest(chunk=b"1234")]))


def test_killed_client(server):
    """A client that dies in the middle of an upload leaves nothing behind."""
    program = textwrap.dedent(
        """
        import sys, time
        import kernelbox
        from kernelbox._proto.kernelbox.v1 import service_pb2
        session = kernelbox.connect(sys.argv[1], ttl=1.0)
        kept = session.tensor([1.0] * 1000)
        spec = {"dtype": 1, "shape": [1 << 20]}
        def messages():
            header = service_pb2.UploadHeader(
                session_id=session.id, handle=77, spec=spec, size_bytes=4 << 20)
            yield service_pb2.UploadRequest(header=header)
            yield service_pb2.UploadRequest(chunk=bytes(1 << 20))
            print("half", flush=True)
            time.sleep(60)
        session._rpc.open("Upload", messages())
        """
    )
    before = used_bytes(server.target)
    client = subprocess.Popen(
        [sys.executable, "-c", program, server.target], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout.readline() == "half\n"
    for _ in range(500):
        if used_bytes(server.target) >= before + (4 << 20):
            break
    else:
        pytest.fail("the server does not hold the half upload")
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    wait_for_used_bytes(server.target, before, seconds=20)
