"""What a layer's test says about it: what to feed it, and what has to come out, in float64.

Everything else (dtypes, server calls, comparison, gradients by finite differences, PyTorch) is in
test_layers.py and the same for all layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies

FLOATING = ("float64", "float32", "float16", "bfloat16")

# Stands for float32, or float64 when the layer's dtype is that: what reductions are stored in.
ACCUMULATOR = "accumulator"

# Sides that catch mistakes: nothing, one, around a vector's and a warp's width, a prime.
SIDES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 67)


@dataclass(frozen=True)
class Approx:
    """A reference value and how exactly it can be met.

    A result may be off by
      u_output * |value|      for rounding to the output's dtype
      u_tested * stored       for intermediate results of that size that may be rounded to the
                              dtype under test
      steps * u_computed * scale
                              for `steps` roundings of quantities as large as `scale` in the
                              dtype that the layer computes in
    where u is the dtype's epsilon, which is twice the error of one rounding.
    """

    value: np.ndarray
    scale: np.ndarray | float | None = None
    steps: float = 4
    stored: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Example:
    """One call: inputs by field name (None: not given), attributes, dtypes that differ."""

    inputs: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    # By field name: a dtype's name or ACCUMULATOR. Others have the dtype under test.
    dtypes: dict[str, str] = field(default_factory=dict)


class Draw:
    """Draws what an example is made of."""

    def __init__(self, data: Any, dtype: str) -> None:
        self._data = data
        self.dtype = dtype
        self.random = np.random.default_rng(data.draw(strategies.integers(0, 2**32), "seed"))

    def pick(self, choices: Sequence[Any], label: str = "choice") -> Any:
        return self._data.draw(strategies.sampled_from(list(choices)), label)

    def flag(self, label: str = "flag") -> bool:
        return self._data.draw(strategies.booleans(), label)

    def number(self, low: float, high: float, label: str = "number") -> float:
        return self._data.draw(strategies.floats(low, high, allow_nan=False), label)

    def integer(self, low: int, high: int, label: str = "integer") -> int:
        return self._data.draw(strategies.integers(low, high), label)

    def shape(self, least: int = 0, most: int = 3, sides: Sequence[int] = SIDES) -> tuple[int, ...]:
        """Draws a shape of at most some thousand elements."""
        shape: list[int] = []
        for _ in range(self.integer(least, most, "dimensions")):
            room = 4096 // max(math.prod(shape), 1)
            shape.append(self.pick([side for side in sides if side <= room], "side"))
        return tuple(shape)

    def normal(self, shape: Sequence[int], scale: float = 1.0) -> np.ndarray:
        return np.asarray(self.random.normal(0.0, scale, tuple(shape)))

    def rng_state(self) -> np.ndarray:
        """Draws {seed, offset}: of all sizes, negative too, and offsets that carry."""
        seed = self.integer(-(2**63), 2**63 - 1, "seed")
        offset = self.pick([0, 1, 1000, 2**32 - 2, 2**40 + 5], "offset")
        return np.array([seed, offset], np.int64)


Reference = Callable[[SimpleNamespace], Mapping[str, Any]]


@dataclass(frozen=True)
class Layer:
    """One layer: `forward` and `backward` return reference values by the outputs' names.

    They get every field of the op's message: inputs as float64 (or integer) arrays with exactly
    the values that the server gets, attributes with their defaults filled in; and `dtypes`, the
    example's. An in-out field is in the result under its own name.
    """

    op: str
    draw: Callable[[Draw], Example]
    forward: Reference
    backward: Reference | None = None
    # Dtypes of fields that are not the layer's; d_<field> is as <field>.
    dtypes: dict[str, str] = field(default_factory=dict)
    tested: Sequence[str] = FLOATING
    # Tried in each dtype, besides what is drawn.
    special: Sequence[Example] = ()
    # Whether float64 works on cuda too.
    float64_on_cuda: bool = False
    # The same by PyTorch: gets the fields as torch tensors, returns the first output; None where
    # PyTorch can't do it.
    torch: Callable[[SimpleNamespace], Any] | None = None
    # Inputs whose gradients finite differences check.
    differentiable: Sequence[str] = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Keeps Hypothesis's reports short."""
        del cycle
        printer.text(self.op)
