"""y = numbers uniform in [low, high)."""

import numpy as np
import philox

from layers.case import Approx, Draw, Example, Layer


def standard(state, shape, dtype):
    """Returns numbers in [0, 1) and how many blocks they take."""
    count = int(np.prod(shape))
    if dtype == "float64":
        blocks = -(-count // 2)
        words = philox.blocks(int(state[0]), int(state[1]), blocks).reshape(-1, 2)[:count]
        return philox.uniform64(words).reshape(shape), blocks
    return philox.uniform(philox.lanes(state, count)).reshape(shape), -(-count // 4)


def _draw(draw: Draw) -> Example:
    low = draw.pick([0.0, -1.0, 5.0], "low")
    return Example(
        {"rng_state": draw.rng_state()},
        {
            "shape": draw.shape(),
            "dtype": draw.dtype,
            "low": low,
            "high": low + draw.pick([1.0, 0.25, 3.0], "width"),
        },
    )


def _forward(f):
    unit, blocks = standard(f.rng_state, f.shape, f.dtype)
    y = f.low + (f.high - f.low) * unit
    return {
        "y": Approx(y, abs(f.low) + abs(f.high), steps=4),
        "rng_state": f.rng_state + np.array([0, blocks]),
    }


LAYER = Layer("uniform", _draw, _forward, dtypes={"y": "attribute dtype"})
