"""y = x in another dtype."""

import numpy as np
from kernelbox.dtypes import FLOATING as FLOATING_DTYPES
from kernelbox.dtypes import as_dtype

from layers.case import FLOATING, Draw, Example, Layer

ALL = (*FLOATING, "int32", "int64", "uint8", "bool")


def to_bfloat16(x):
    """Rounds float64 to bfloat16's numbers, to nearest even and only once."""
    bits = np.atleast_1d(x).view(np.uint64)
    half = np.uint64(1 << 44)  # of the last of the 7 fraction bits that stay
    odd = (bits >> np.uint64(45)) & np.uint64(1)
    kept = (bits + half - np.uint64(1) + odd) & ~np.uint64((1 << 45) - 1)
    rounded = kept.view(np.float64).reshape(np.shape(x))
    rounded = np.where(np.abs(rounded) > 3.3895e38, np.copysign(np.inf, x), rounded)
    tiny = np.abs(x) < 2.0**-126  # subnormal numbers have a fixed step
    rounded = np.where(tiny, np.rint(np.where(tiny, x, 0) * 2.0**133) * 2.0**-133, rounded)
    return np.where(np.isfinite(x), rounded, x)


def convert(x, dtype):
    """Returns x with the values it has in `dtype`; integers come as such, the rest as float64."""
    dtype = as_dtype(dtype)
    if dtype.name == "bool":
        return (x != 0).astype(bool)
    if dtype.name == "bfloat16":
        return to_bfloat16(np.asarray(x, np.float64))
    if dtype in FLOATING_DTYPES:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(dtype).astype(np.float64)
    info = np.iinfo(dtype)
    if x.dtype.kind == "f":
        whole = np.nan_to_num(np.trunc(x), nan=0.0, posinf=np.inf, neginf=-np.inf)
        top = float(info.max)  # rounds up for int64, so >= it is out of range
        inside = np.where((whole >= top) | (whole <= info.min), 0, whole).astype(dtype)
        return np.where(whole >= top, info.max, np.where(whole <= info.min, info.min, inside))
    return np.asarray(np.clip(x.astype(object), info.min, info.max)).astype(dtype)


def _draw(draw: Draw) -> Example:
    shape = draw.shape()
    to = draw.pick(ALL, "to")
    if draw.dtype in FLOATING:
        x = draw.normal(shape, draw.pick([1.0, 1e-6, 100.0, 1e4], "scale"))
    elif draw.dtype == "bool":
        x = np.asarray(draw.random.integers(0, 2, shape), bool)
    else:
        info = np.iinfo(draw.dtype)
        low, high = draw.pick([(0, 100), (info.min, info.max)], "range")
        x = draw.random.integers(low, high, shape, dtype=draw.dtype, endpoint=True)
        x = np.asarray(x, draw.dtype)
    return Example({"x": x}, {"dtype": to})


def _forward(f):
    return {"y": convert(f.x, f.dtype)}


def _backward(f):
    return {"d_x": f.d_y}


_EXTREMES = np.array([np.inf, -np.inf, np.nan, 1e5, -1e5, 65519.0, 65520.0, -0.0, 2.5, -2.5])
# Just above the middle between two neighbours: rounding by way of float32 loses the excess.
_TWICE_ROUNDED = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40])

LAYER = Layer(
    "cast",
    _draw,
    _forward,
    _backward,
    dtypes={"y": "attribute dtype"},
    tested=ALL,
    special=[
        *(Example({"x": _EXTREMES}, {"dtype": to}, {"x": "float64"}) for to in ALL),
        *(Example({"x": _EXTREMES}, {"dtype": to}, {"x": "float32"}) for to in ALL),
        Example({"x": _TWICE_ROUNDED}, {"dtype": "bfloat16"}, {"x": "float64"}),
        Example({"x": _TWICE_ROUNDED}, {"dtype": "float16"}, {"x": "float64"}),
    ],
    float64_on_cuda=True,
)
