"""What is known of tensors' shapes and dtypes without asking the server.

An op's output shapes follow from its attributes and the shapes of its inputs alone. So two outputs
that came about in the same way share one Spec, and once the server has described one of them all
others are known too: in a training loop only the first step asks.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

import numpy as np

# A loop that feeds outputs back (x = f(x)) makes a new entry each time: then start afresh.
_MOST_ENTRIES = 8192


class Spec:
    """A tensor's dtype and shape; both None while they are not known."""

    __slots__ = ("dtype", "shape")

    def __init__(
        self, dtype: np.dtype[Any] | None = None, shape: tuple[int, ...] | None = None
    ) -> None:
        self.dtype = dtype
        self.shape = shape


class SpecTable:
    """The Specs of one session. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], Spec] = {}
        self._outputs: dict[Hashable, tuple[Spec, ...]] = {}

    def known(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Spec:
        """Returns the Spec of tensors that came with this dtype and shape."""
        spec = self._known.get((dtype, shape))
        if spec is None:
            with self._lock:
                if len(self._known) >= _MOST_ENTRIES:
                    self._known.clear()
                spec = self._known.setdefault((dtype, shape), Spec(dtype, shape))
        return spec

    def outputs(self, key: Hashable, count: int) -> tuple[Spec, ...]:
        """Returns the Specs of the outputs of an op; `key` is all that decides their shapes."""
        specs = self._outputs.get(key)
        if specs is None:
            with self._lock:
                if len(self._outputs) >= _MOST_ENTRIES:
                    self._outputs.clear()
                specs = self._outputs.setdefault(key, tuple(Spec() for _ in range(count)))
        return specs
