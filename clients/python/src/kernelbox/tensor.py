"""Handles of tensors that live on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelbox import dtypes
from kernelbox._specs import Spec

if TYPE_CHECKING:
    from kernelbox.session import Session
    from kernelbox.tape import Node, Tape


class Buffer:
    """Owns one handle: frees it when the last Tensor and tape that use it are gone."""

    __slots__ = ("freed", "handle", "session", "spec", "version")

    def __init__(self, session: Session, handle: int, spec: Spec) -> None:
        self.session = session
        self.handle = handle
        self.spec = spec
        # Counts the ops that updated the tensor in place.
        self.version = 0
        self.freed = False

    def free(self) -> None:
        """Frees the handle after every op issued so far; only once."""
        if not self.freed:
            self.freed = True
            self.session._stream.free(self.handle)

    __del__ = free


class Tensor:
    """A tensor on the server.

    It holds no data. Ops on it are methods of its session; `numpy()` and `item()` wait for the ops
    issued so far and fetch the values. The server's copy is freed when the last reference is gone,
    at `free()`, or at the end of a `with` block.

    Attributes:
        grad: what `backward` accumulates for a tensor that requires a gradient; None before.
    """

    __slots__ = ("__weakref__", "_buffer", "_node", "_requires_grad", "_tape", "grad")

    # Set by hand rather than by parameters of __init__: one is made for each output of each op.
    _node: Node | None
    _tape: Tape | None

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._requires_grad = False
        # Where the tape that recorded the op which made this tensor knows it.
        self._node = None
        self._tape = None
        self.grad: Tensor | None = None

    @property
    def session(self) -> Session:
        """The session whose namespace the tensor is in."""
        return self._buffer.session

    @property
    def handle(self) -> int:
        """The tensor's name in its session."""
        return self._buffer.handle

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape. Asks the server, after the ops issued so far, if it isn't known."""
        shape = self._buffer.spec.shape
        return self._described().shape if shape is None else shape  # type: ignore[return-value]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type. Asks the server, after the ops issued so far, if it isn't known."""
        dtype = self._buffer.spec.dtype
        return self._described().dtype if dtype is None else dtype  # type: ignore[return-value]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def requires_grad(self) -> bool:
        """Whether tapes record what is done with this tensor. Settable: False at first."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._node is not None:
            raise ValueError("requires_grad of an op's output follows from the op's inputs")
        dtype = self._buffer.spec.dtype
        if value and dtype is not None and dtype not in dtypes.FLOATING:
            raise TypeError(f"only floating tensors can require a gradient, not {dtype.name}")
        self._requires_grad = bool(value)

    def numpy(self, *, timeout: float | None = None) -> np.ndarray[Any, Any]:
        """Fetches the values, after every op issued so far, as an array of the tensor's dtype.

        Raises the error of the op that failed first if the tensor could not be computed, and
        DeadlineExceededError after `timeout` seconds (None: the session's).
        """
        return self._buffer.session._download(self, timeout)

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def item(self) -> Any:
        """Fetches the value of a tensor of one element as a Python number."""
        array = self.numpy()
        if array.size != 1:
            raise ValueError(f"item() needs a tensor of one element, not of shape {array.shape}")
        value = array.item()
        return value if isinstance(value, (bool, int, float)) else float(value)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of a 0-d tensor")
        return shape[0]

    def __repr__(self) -> str:
        buffer = self._buffer
        spec = buffer.spec
        parts = [f"handle={buffer.handle}"]
        if spec.shape is not None and spec.dtype is not None:
            parts += [f"shape={spec.shape}", f"dtype={spec.dtype.name}"]
        if self._requires_grad:
            parts.append("requires_grad=True")
        if buffer.freed:
            parts.append("freed")
        return f"Tensor({', '.join(parts)})"

    def backward(self, gradient: Tensor | None = None) -> None:
        """Adds the gradients of this tensor to `grad` of all it was computed from.

        See Tape.backward. The tape is the one that recorded the op which made this tensor.
        """
        if self._tape is None:
            raise self.session._no_tape_error(self)
        self._tape.backward(self, gradient)

    def free(self) -> None:
        """Frees the server's copy after every op issued so far. Further use is an error."""
        self._buffer.free()

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def _described(self) -> Spec:
        self._buffer.session._describe(self)
        return self._buffer.spec
