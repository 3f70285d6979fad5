"""What went wrong with ops whose calls had returned already."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kernelbox import errors

# Of this many failed ops it is remembered where they were issued and what they should have made.
_REMEMBERED = 4096
# The most failures that one `take` returns.
_LISTED = 100

# File and line of a call.
Location = tuple[str, int]


class FailureLog:
    """The failures of a session's ops, until somebody has been told of them.

    Safe to use from any thread. The exceptions it returns are copies: one that has been raised
    holds its caller's variables by its traceback.
    """

    def __init__(self, outputs_of: Mapping[str, Sequence[str]]) -> None:
        # The names of each op's output fields.
        self._outputs_of = outputs_of
        self._lock = threading.Lock()
        # The oldest failures that nobody has been told of, by op id; how many there are in all.
        self._untold: dict[int, errors.KernelboxError] = {}
        self._count = 0
        self._locations: dict[int, Location] = {}
        # Why a handle that an op should have made may not exist, so that the server knows nothing.
        self._lost: dict[int, errors.KernelboxError] = {}

    def note(
        self, op: Any, error: errors.KernelboxError, location: Location, *, told: bool = False
    ) -> None:
        """Keeps the failure of an op; `told` if the caller is about to raise it."""
        error.location = f"{location[0]}:{location[1]}"
        kind = op.WhichOneof("kind")
        handles = [getattr(getattr(op, kind), name) for name in self._outputs_of.get(kind, ())]
        with self._lock:
            _remember(self._locations, op.id, location)
            for handle in handles:
                if handle:
                    _remember(self._lost, handle, error)
            if not told:
                self._count += 1
                if len(self._untold) < _LISTED:
                    self._untold[op.id] = error

    def location_of(self, op_id: int) -> str:
        """Returns the "file:line" that issued a failed op; empty when it isn't known."""
        location = self._locations.get(op_id)
        return f"{location[0]}:{location[1]}" if location else ""

    def lost(self, handle: int) -> errors.KernelboxError | None:
        """Returns the failure of the op that should have made a handle, if it is remembered."""
        error = self._lost.get(handle)
        return error.again() if error is not None else None

    def told(self, op_id: int) -> None:
        """Notes that somebody has been told of this op's failure."""
        with self._lock:
            if self._untold.pop(op_id, None) is not None:
                self._count -= 1

    def take(self) -> tuple[list[errors.KernelboxError], int]:
        """Returns the failures that nobody has been told of, and forgets them.

        The list has the oldest ones; the number counts all.
        """
        with self._lock:
            failures = [error.again() for error in self._untold.values()]
            count = self._count
            self._untold.clear()
            self._count = 0
        return failures, count


def _remember(memory: dict[int, Any], key: int, value: Any) -> None:
    """Adds an entry to a memory of bounded size; the oldest one goes."""
    if len(memory) >= _REMEMBERED:
        memory.pop(next(iter(memory)))
    memory[key] = value
