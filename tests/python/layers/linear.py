"""y = activation(x @ weight^T + bias)."""

import math

import numpy as np

from layers.case import SIDES, Approx, Draw, Example, Layer
from layers.gelu import d_gelu, gelu

ACTIVATIONS = {
    "none": (lambda z: z, np.ones_like),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z: (z > 0).astype(float)),
    "gelu": (lambda z: gelu(z, "none"), lambda z: d_gelu(z, "none")),
    "gelu_tanh": (lambda z: gelu(z, "tanh"), lambda z: d_gelu(z, "tanh")),
}
# No activation's slope is larger.
STEEPEST = 1.13


def _draw(draw: Draw) -> Example:
    features = [draw.pick(SIDES, "features") for _ in range(2)]
    rows = draw.shape(0, 3, [side for side in SIDES if side <= 9])
    inputs = {
        "x": draw.normal((*rows, features[0])),
        "weight": draw.normal((features[1], features[0])),
        "bias": draw.normal((features[1],)) if draw.flag("bias") else None,
    }
    dtypes = {}
    if draw.dtype != "float64" and draw.flag("master weights"):
        dtypes = {"weight": "float32", "bias": "float32"}
    return Example(inputs, {"activation": draw.pick(sorted(ACTIVATIONS))}, dtypes)


def _as_rows(v):
    return v.reshape(math.prod(v.shape[:-1]), v.shape[-1])


def _forward(f):
    bias = 0.0 if f.bias is None else f.bias
    z = f.x @ f.weight.T + bias
    # A sum of K products of any order is off by at most K roundings of the sum of their sizes.
    # float32 weights may be rounded to x's dtype first: the matrix unit takes one type.
    size = np.abs(f.x) @ np.abs(f.weight).T + np.abs(bias)
    steps = f.x.shape[-1] + 8
    rounded = size if "weight" in f.dtypes else 0.0
    return {
        "y": Approx(
            ACTIVATIONS[f.activation][0](z),
            size * STEEPEST,
            steps,
            stored=(np.abs(z) + rounded) * STEEPEST,
        ),
        "pre_activation": (
            np.zeros(0) if f.activation == "none" else Approx(z, size, steps, stored=rounded)
        ),
    }


def _backward(f):
    slope = 1.0
    if f.activation != "none":
        slope = ACTIVATIONS[f.activation][1](f.pre_activation)
    # d_z is stored between the two products, in x's dtype, and is as exact as the slope.
    d_z = f.d_y * slope
    size = np.abs(f.d_y) * STEEPEST
    rows, size_rows, x = (_as_rows(v) for v in (d_z, size, f.x))
    size_d_x = size @ np.abs(f.weight)
    size_d_weight = size_rows.T @ np.abs(x)
    size_d_bias = size_rows.sum(axis=0)
    stored = 2.0 if "weight" in f.dtypes else 1.0
    steps = len(x) + 24
    outputs = {
        "d_x": Approx(d_z @ f.weight, size_d_x, d_z.shape[-1] + 24, stored=stored * size_d_x),
        "d_weight": Approx(rows.T @ x, size_d_weight, steps, stored=size_d_weight),
        "d_bias": Approx(rows.sum(axis=0), size_d_bias, steps, stored=size_d_bias),
    }
    if f.bias is None:
        del outputs["d_bias"]
    return outputs


def _torch(f):
    import torch

    z = torch.nn.functional.linear(f.x, f.weight, f.bias)
    functional = torch.nn.functional
    return {
        "none": lambda z: z,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    }[f.activation](z)


LAYER = Layer(
    "linear",
    _draw,
    _forward,
    _backward,
    torch=_torch,
    differentiable=["x", "weight", "bias"],
)
