"""Bulk data: arrays to and from the bytes that Upload and Download carry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import xxhash

from kernelbox import dtypes, errors
from kernelbox._proto.kernelbox.v1 import service_pb2, types_pb2

_CHUNK_TAG = bytes([service_pb2.UploadRequest.DESCRIPTOR.fields_by_name["chunk"].number << 3 | 2])

# What NumPy makes of Python numbers, and what torch makes of them.
_DEFAULTS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float64): dtypes.float32,
    np.dtype(np.int32): dtypes.int64,
}


def as_array(data: Any, dtype: dtypes.DTypeLike | None) -> np.ndarray[Any, Any]:
    """Returns `data` as a C-contiguous little-endian array of a dtype that a tensor can have.

    Arrays keep their dtype unless `dtype` says otherwise; Python numbers become float32, int64 or
    bool. Raises InvalidDTypeError for elements that no tensor can have.
    """
    has_dtype = isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__")
    array: np.ndarray[Any, np.dtype[Any]]
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise errors.InvalidShapeError(
            str(error), code=grpc.StatusCode.INVALID_ARGUMENT, metadata={"field": "data"}
        ) from None
    wanted: np.dtype[Any]
    if dtype is not None:
        wanted = dtypes.as_dtype(dtype)
    elif has_dtype:
        wanted = array.dtype.newbyteorder("=")
    else:
        wanted = _DEFAULTS.get(array.dtype, array.dtype)
    try:
        wanted = dtypes.as_dtype(wanted)
        array = array.astype(wanted.newbyteorder("<"), order="C", copy=False)
    except (TypeError, ValueError):
        raise errors.InvalidDTypeError(
            f"data must be of dtype {dtypes.names()} (or pass dtype=), given {array.dtype}",
            code=grpc.StatusCode.INVALID_ARGUMENT,
            metadata={"field": "data", "expected": dtypes.names(), "given": str(array.dtype)},
        ) from None
    return array


def to_spec(array: np.ndarray[Any, Any]) -> types_pb2.TensorSpec:
    """Returns the TensorSpec of an array that `as_array` made."""
    return types_pb2.TensorSpec(dtype=dtypes.to_wire(array.dtype), shape=array.shape)  # type: ignore[arg-type]


def upload_messages(
    header: service_pb2.UploadHeader, array: np.ndarray[Any, Any], chunk_bytes: int
) -> Iterator[service_pb2.UploadRequest | bytes]:
    """Yields the messages of an Upload call; chunks come serialized, to copy them only once."""
    yield service_pb2.UploadRequest(header=header)
    data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    checksum = xxhash.xxh3_64()
    for start in range(0, len(data), chunk_bytes):
        chunk = data[start : start + chunk_bytes]
        checksum.update(chunk)
        yield b"".join((_CHUNK_TAG, _varint(len(chunk)), chunk))
    yield service_pb2.UploadRequest(xxh3_64=checksum.intdigest())


def receive(responses: Iterator[service_pb2.DownloadResponse]) -> np.ndarray[Any, Any]:
    """Returns the array that the messages of a Download call carry. Raises DataLossError."""
    header = next(responses).header
    data = np.empty(header.size_bytes, np.uint8)
    checksum = xxhash.xxh3_64()
    filled, given = 0, None
    for response in responses:
        chunk = response.chunk
        if response.WhichOneof("part") != "chunk":
            given = response.xxh3_64
            continue
        if filled + len(chunk) <= data.size:
            data[filled : filled + len(chunk)] = np.frombuffer(chunk, np.uint8)
            checksum.update(chunk)
        filled += len(chunk)
    if filled != data.size:
        raise errors.SizeMismatchError(
            f"{data.size} bytes were announced and {filled} came",
            code=grpc.StatusCode.DATA_LOSS,
            metadata={"expected": str(data.size), "given": str(filled)},
        )
    if given != checksum.intdigest():
        raise errors.ChecksumMismatchError(
            f"the bytes have checksum {checksum.intdigest():#018x}, not {given or 0:#018x}",
            code=grpc.StatusCode.DATA_LOSS,
            metadata={"expected": str(given), "given": str(checksum.intdigest())},
        )
    dtype = dtypes.from_wire(header.spec.dtype)
    array: np.ndarray[Any, Any] = data.view(dtype.newbyteorder("<"))
    return array.astype(dtype, copy=False).reshape(tuple(header.spec.shape))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
