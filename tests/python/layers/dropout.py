"""y = mask * x / (1 - p)."""

import numpy as np
import philox

from layers.case import Approx, Draw, Example, Layer


def keep_mask(state, count, p):
    """Returns which of `count` elements stay."""
    return philox.lanes(state, count) * 2.0**-32 >= p


def _draw(draw: Draw) -> Example:
    p = draw.pick([0.0, 0.1, 0.5, 0.75, 1.0], "p")
    return Example(
        {"x": draw.normal(draw.shape()), "rng_state": draw.rng_state()},
        {"p": p, "training": draw.pick([True, True, False], "training")},
    )


def _apply(x, state, p):
    mask = keep_mask(state, x.size, p).reshape(x.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mask, x / (1 - p), 0.0)


def _forward(f):
    if not f.training:
        return {"y": f.x, "rng_used": f.rng_state, "rng_state": f.rng_state}
    after = f.rng_state + np.array([0, -(-f.x.size // 4)])
    y = Approx(_apply(f.x, f.rng_state, f.p), steps=4)
    return {"y": y, "rng_used": f.rng_state, "rng_state": after}


def _backward(f):
    return {"d_x": Approx(_apply(f.d_y, f.rng_used, f.p), steps=4) if f.training else f.d_y}


LAYER = Layer(
    "dropout",
    _draw,
    _forward,
    _backward,
    differentiable=["x"],
)
