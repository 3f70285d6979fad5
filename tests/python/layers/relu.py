"""y = max(x, 0)."""

import numpy as np

from layers.case import Draw, Example, Layer


def _draw(draw: Draw) -> Example:
    return Example({"x": draw.normal(draw.shape())})


def _forward(f):
    return {"y": np.where(np.isnan(f.x), f.x, np.maximum(f.x, 0.0))}


def _backward(f):
    return {"d_x": np.where(f.x <= 0, 0.0, f.d_y)}


def _torch(f):
    import torch

    return torch.nn.functional.relu(f.x)


LAYER = Layer(
    "relu",
    _draw,
    _forward,
    _backward,
    special=[Example({"x": np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-30, -1e-30])})],
    torch=_torch,
    differentiable=["x"],
)
