"""y = a + alpha * b with broadcasting."""

import numpy as np

from layers.case import FLOATING, Approx, Draw, Example, Layer


def _draw(draw: Draw) -> Example:
    shape = draw.shape(0, 4)

    def part():
        kept = [1 if draw.pick([False, False, True], "broadcast") else side for side in shape]
        return kept[draw.integer(0, len(shape), "leading dimensions left out") :]

    alpha = draw.pick([1.0, -1.0, 0.5, 2.0, 0.0], "alpha")
    if draw.dtype in FLOATING:
        return Example({"a": draw.normal(part()), "b": draw.normal(part())}, {"alpha": alpha})
    values = [draw.random.integers(-1000, 1000, part()) for _ in range(2)]
    return Example(
        {"a": values[0].astype(draw.dtype), "b": values[1].astype(draw.dtype)},
        {"alpha": float(int(alpha))},
    )


def _forward(f):
    if f.a.dtype.kind == "i":
        return {"y": f.a + int(f.alpha) * f.b}
    return {"y": Approx(f.a + f.alpha * f.b, np.abs(f.a) + np.abs(f.alpha * f.b), steps=2)}


def _sum_to(value, like):
    """Sums over the dimensions along which `like` was broadcast."""
    value = value.sum(axis=tuple(range(value.ndim - like.ndim)))
    stretched = tuple(i for i, side in enumerate(like.shape) if side == 1)
    return value.sum(axis=stretched, keepdims=True).reshape(like.shape)


def _backward(f):
    size = np.abs(f.d_y)
    return {
        "d_a": Approx(_sum_to(f.d_y, f.a), _sum_to(size, f.a), steps=2 + f.d_y.size),
        "d_b": Approx(
            f.alpha * _sum_to(f.d_y, f.b), abs(f.alpha) * _sum_to(size, f.b), steps=4 + f.d_y.size
        ),
    }


def _torch(f):
    import torch

    return torch.add(f.a, f.b, alpha=f.alpha)


LAYER = Layer(
    "add",
    _draw,
    _forward,
    _backward,
    tested=(*FLOATING, "int32", "int64"),
    torch=_torch,
    differentiable=["a", "b"],
)
