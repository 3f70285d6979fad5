"""y = a tensor of one value."""

import numpy as np

from layers.case import Draw, Example, Layer
from layers.cast import ALL, convert


def _draw(draw: Draw) -> Example:
    value = draw.pick([0.0, 1.0, 3.0, 100.0], "value")
    if draw.dtype == "bool":
        value = draw.pick([0.0, 1.0], "value")
    elif draw.dtype in ("float64", "float32", "float16", "bfloat16"):
        value = draw.pick([value, -0.1, 1e-9, 3e4, -np.inf, np.nan], "value")
    return Example({}, {"shape": draw.shape(), "dtype": draw.dtype, "value": value})


def _forward(f):
    return {"y": np.broadcast_to(convert(np.array(f.value), f.dtype), f.shape)}


LAYER = Layer(
    "fill",
    _draw,
    _forward,
    dtypes={"y": "attribute dtype"},
    tested=ALL,
    float64_on_cuda=True,
)
