"""y = numbers of the normal distribution, by Box and Muller's transform."""

import numpy as np
import philox

from layers.case import Approx, Draw, Example, Layer


def _draw(draw: Draw) -> Example:
    return Example(
        {"rng_state": draw.rng_state()},
        {
            "shape": draw.shape(),
            "dtype": draw.dtype,
            "mean": draw.pick([0.0, -2.0], "mean"),
            "std": draw.pick([1.0, 0.1, 0.0], "std"),
        },
    )


def _forward(f):
    # Elements come in pairs from pairs of uniform numbers; an odd last one has a partner too.
    count = int(np.prod(f.shape))
    units, blocks = philox.units(f.rng_state, (count + count % 2,), f.dtype)
    radius = np.sqrt(-2 * np.log1p(-units[::2]))
    angle = 2 * np.pi * units[1::2]
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:count]
    y = f.mean + f.std * z.reshape(f.shape)
    return {
        "y": Approx(y, abs(f.mean) + f.std * 6, steps=4),
        "rng_state": f.rng_state + np.array([0, blocks]),
    }


LAYER = Layer("normal", _draw, _forward, dtypes={"y": "attribute dtype"})
