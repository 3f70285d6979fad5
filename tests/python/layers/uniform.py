"""y = numbers uniform in [low, high)."""

import numpy as np
import philox

from layers.case import Approx, Draw, Example, Layer


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
    unit, blocks = philox.units(f.rng_state, f.shape, f.dtype)
    y = f.low + (f.high - f.low) * unit
    return {
        "y": Approx(y, abs(f.low) + abs(f.high), steps=4),
        "rng_state": f.rng_state + np.array([0, blocks]),
    }


LAYER = Layer("uniform", _draw, _forward, dtypes={"y": "attribute dtype"})
