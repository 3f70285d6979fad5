"""Element types: NumPy's names for the values of the wire's DType."""

from __future__ import annotations

from typing import Any, Union

import ml_dtypes
import numpy as np

from kernelbox._proto.kernelbox.v1 import types_pb2

# Anything that names a dtype: a NumPy dtype or scalar type, "bfloat16", or the wire's number.
DTypeLike = Union[str, int, type, "np.dtype[Any]"]

float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float64 = np.dtype(np.float64)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
bool_ = np.dtype(np.bool_)

_PREFIX = "D_TYPE_"
_NUMBER_OF: dict[np.dtype[Any], int] = {}
_DTYPE_OF: dict[int, np.dtype[Any]] = {}
for _dtype in (float32, float16, bfloat16, float64, int32, int64, uint8, bool_):
    _number = types_pb2.DType.Value(_PREFIX + _dtype.name.upper())
    _NUMBER_OF[_dtype] = _number
    _DTYPE_OF[_number] = _dtype

FLOATING = frozenset((float32, float16, bfloat16, float64))


def names() -> str:
    """Lists the dtypes a tensor can have, for messages."""
    return ", ".join(dtype.name for dtype in _NUMBER_OF)


def as_dtype(value: DTypeLike) -> np.dtype[Any]:
    """Returns the NumPy dtype, in native byte order, that `value` names.

    Raises TypeError when no tensor can have that dtype.
    """
    dtype: np.dtype[Any] | None
    if isinstance(value, int) and not isinstance(value, bool):
        dtype = _DTYPE_OF.get(value)
    elif isinstance(value, str) and value == "bfloat16":
        dtype = bfloat16
    else:
        try:
            named: np.dtype[Any] = np.dtype(value)  # type: ignore[arg-type]
            dtype = named.newbyteorder("=")
        except TypeError:
            dtype = None
    if dtype is None or dtype not in _NUMBER_OF:
        raise TypeError(f"a tensor's dtype is one of {names()}, not {value!r}")
    return dtype


def to_wire(value: DTypeLike) -> int:
    """Returns the wire's number of the dtype that `value` names. Raises TypeError."""
    return _NUMBER_OF[as_dtype(value)]


def from_wire(number: int) -> np.dtype[Any]:
    """Returns the NumPy dtype of the wire's number, which must be a known one."""
    return _DTYPE_OF[number]
