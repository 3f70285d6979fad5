"""y = x * Phi(x), or its tanh approximation."""

import math

import numpy as np

from layers.case import Approx, Draw, Example, Layer

erf = np.vectorize(math.erf, otypes=[float])
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def gelu(x, approximate):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def d_gelu(x, approximate):
    """The derivative."""
    if approximate == "tanh":
        inner = SQRT_2_OVER_PI * (x + 0.044715 * x**3)
        tanh = np.tanh(inner)
        d_inner = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x**2)
        return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * d_inner
    density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + erf(x / math.sqrt(2))) + x * density


def _draw(draw: Draw) -> Example:
    scale = draw.pick([0.1, 1.0, 4.0], "scale")
    return Example(
        {"x": draw.normal(draw.shape(), scale)}, {"approximate": draw.pick(["none", "tanh"])}
    )


def _forward(f):
    # 1 + erf cancels for negative x, and tanh's argument is off by a few roundings of |x|^3.
    return {"y": Approx(gelu(f.x, f.approximate), np.abs(f.x) * (1 + f.x**2), steps=4)}


def _backward(f):
    value = d_gelu(f.x, f.approximate)
    return {"d_x": Approx(f.d_y * value, np.abs(f.d_y) * (1 + np.abs(f.x)) ** 3, steps=4)}


def _torch(f):
    import torch

    return torch.nn.functional.gelu(f.x, approximate=f.approximate)


LAYER = Layer(
    "gelu",
    _draw,
    _forward,
    _backward,
    special=[
        Example({"x": np.array([0.0, -0.0, 1e-4, 30.0, -30.0, np.nan])}, {"approximate": name})
        for name in ("none", "tanh")
    ],
    torch=_torch,
    differentiable=["x"],
)
