"""What can go wrong, one class for each reason that the server gives.

Each class derives from KernelboxError and, where Python has a natural one, from a built-in
exception too: an unknown handle is a KeyError, a wrong shape a ValueError, a deadline a
TimeoutError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import grpc

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class KernelboxError(Exception):
    """Something that the server refused or that failed there, or on the way to it.

    Attributes:
        reason: the name of the wire's ErrorReason without its prefix, such as "INVALID_SHAPE";
            empty when the failure has none (the network's, say).
        code: the gRPC status code.
        metadata: the variables of the message, by the keys that errors.proto lists for the reason.
        op_id: the id of the op that failed first; 0 when no op failed.
        op: that op's name, such as "linear"; empty when no op failed.
        location: "file:line" that issued that op; empty when this session did not issue it.
    """

    _class_of: ClassVar[dict[str, type[KernelboxError]]] = {}

    reason: str = ""

    def __init_subclass__(cls, *, reason: str = "", **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        if reason:
            cls.reason = reason
            KernelboxError._class_of[reason] = cls

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        op_id: int = 0,
        op: str = "",
        location: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        if reason is not None:
            self.reason = reason
        self.metadata = dict(metadata or {})
        self.op_id = op_id
        self.op = op
        self.location = location

    def again(self) -> KernelboxError:
        """Returns a fresh exception that says the same, to be raised another time."""
        return make(
            self.code,
            self.reason,
            self.message,
            self.metadata,
            op_id=self.op_id,
            op=self.op,
            location=self.location,
        )

    def __str__(self) -> str:
        text = self.message
        if self.op_id:
            text += f" [op {self.op_id}" + (f", {self.op}" if self.op else "")
            text += f", issued at {self.location}]" if self.location else "]"
        return text


class SessionNotFoundError(KernelboxError, LookupError, reason="SESSION_NOT_FOUND"):
    """The session was closed, has expired or never was."""


class ServerRestartedError(KernelboxError, ConnectionError, reason="SERVER_RESTARTED"):
    """The session belongs to an earlier run of the server: its tensors are gone."""


class UnavailableError(KernelboxError, ConnectionError):
    """The server can't be reached, or went away and did not come back in time."""


class ServerDrainingError(UnavailableError, reason="SERVER_DRAINING"):
    """The server is shutting down and takes no new work."""


class HandleError(KernelboxError):
    """A handle that can't be used as it was."""


class ZeroHandleError(HandleError, ValueError, reason="ZERO_HANDLE"):
    """A tensor that must be given was not."""


class UnknownHandleError(HandleError, KeyError, reason="UNKNOWN_HANDLE"):
    """A tensor was freed, belongs to another session or never was."""


class DuplicateHandleError(HandleError, ValueError, reason="DUPLICATE_HANDLE"):
    """The handle for a new tensor is in use."""


class TensorNotReadyError(HandleError, RuntimeError, reason="TENSOR_NOT_READY"):
    """A tensor's upload has not ended."""


class InvalidArgumentError(KernelboxError, ValueError):
    """An op or a request that can't be carried out as it was given."""


class InvalidShapeError(InvalidArgumentError, reason="INVALID_SHAPE"):
    """A tensor has a shape that the op can't take."""


class InvalidDTypeError(InvalidArgumentError, TypeError, reason="INVALID_DTYPE"):
    """A tensor has a dtype that the op can't take."""


class InvalidAttributeError(InvalidArgumentError, reason="INVALID_ATTRIBUTE"):
    """An attribute's value is not allowed."""


class MissingFieldError(InvalidArgumentError, reason="MISSING_FIELD"):
    """A required field is absent."""


class SizeOverflowError(InvalidArgumentError, OverflowError, reason="SIZE_OVERFLOW"):
    """The number of bytes of a shape does not fit."""


class ValueOutOfRangeError(KernelboxError, ValueError, reason="VALUE_OUT_OF_RANGE"):
    """The data holds a value that the op can't take, such as a class index outside [0, C)."""


class UnsupportedError(KernelboxError, NotImplementedError, reason="UNSUPPORTED"):
    """The backend has no kernel for these inputs."""


class InvalidRequestError(InvalidArgumentError, reason="INVALID_REQUEST"):
    """A request is malformed."""


class DataLossError(KernelboxError, OSError):
    """A transfer came to a bad end: its bytes are not those that were sent."""


class SizeMismatchError(DataLossError, reason="SIZE_MISMATCH"):
    """Fewer or more bytes came than were declared."""


class ChecksumMismatchError(DataLossError, reason="CHECKSUM_MISMATCH"):
    """The bytes do not have the checksum sent with them."""


class ResourceExhaustedError(KernelboxError):
    """A limit of the server has been reached. `Session.limits` lists them."""


class OutOfMemoryError(ResourceExhaustedError, MemoryError, reason="OUT_OF_MEMORY"):
    """The device has no room for the tensor; every existing tensor is intact."""


class QueueFullError(ResourceExhaustedError, reason="QUEUE_FULL"):
    """The session has too many ops waiting."""


class TooManySessionsError(ResourceExhaustedError, reason="TOO_MANY_SESSIONS"):
    """The server holds as many sessions as it may."""


class TooManyHandlesError(ResourceExhaustedError, reason="TOO_MANY_HANDLES"):
    """The session holds as many tensors as it may."""


class MessageTooLargeError(ResourceExhaustedError, ValueError):
    """A message is larger than the server receives."""


class CancelledError(KernelboxError, reason="CANCELLED"):
    """The op was dropped from the queue before it ran."""


class DeadlineExceededError(KernelboxError, TimeoutError):
    """The call's time was up before its answer came."""


class DeviceError(KernelboxError, RuntimeError, reason="DEVICE_ERROR"):
    """The device reported an error."""


class InternalError(KernelboxError, RuntimeError, reason="INTERNAL"):
    """A fault of the server's own."""


class NoSuchDeviceError(KernelboxError, LookupError, reason="NO_SUCH_DEVICE"):
    """The server has no device of that index."""


class VersionMismatchError(KernelboxError, RuntimeError, reason="VERSION_MISMATCH"):
    """Client and server share no version of the api."""


class GradientError(KernelboxError, RuntimeError):
    """A gradient can't be computed as it was asked for. Raised by the client's tape."""


class FailedOpsError(KernelboxError):
    """Several ops failed.

    Attributes:
        errors: the errors of the oldest ones.
        count: how many there were in all.
    """

    def __init__(self, errors: Sequence[KernelboxError], count: int) -> None:
        lines = [f"{count} ops failed:"]
        shown = errors[:10]
        lines += [f"  {type(error).__name__}: {error}" for error in shown]
        if count > len(shown):
            lines.append(f"  and {count - len(shown)} more")
        super().__init__("\n".join(lines), code=errors[0].code, metadata=errors[0].metadata)
        self.errors = tuple(errors)
        self.count = count


# The classes of failures that come without a reason.
_CLASS_OF_CODE: dict[grpc.StatusCode, type[KernelboxError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
    grpc.StatusCode.INTERNAL: InternalError,
}


def class_of(reason: str, code: grpc.StatusCode) -> type[KernelboxError]:
    """Returns the exception class for a failure with this reason (may be empty) and code."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError
    return KernelboxError._class_of.get(reason) or _CLASS_OF_CODE.get(code, KernelboxError)


def make(
    code: int | grpc.StatusCode,
    reason: str,
    message: str,
    metadata: Mapping[str, str],
    *,
    op_id: int = 0,
    op: str = "",
    location: str = "",
) -> KernelboxError:
    """Makes the exception of one failure."""
    status = code if isinstance(code, grpc.StatusCode) else _CODES.get(code)
    status = status or grpc.StatusCode.UNKNOWN
    return class_of(reason, status)(
        message,
        code=status,
        reason=reason,
        metadata=metadata,
        op_id=op_id,
        op=op,
        location=location,
    )
