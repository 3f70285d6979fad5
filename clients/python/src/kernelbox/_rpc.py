"""The methods of KernelboxService, and how their failures become exceptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf import message_factory
from google.rpc import error_details_pb2, status_pb2

from kernelbox import errors
from kernelbox._proto.kernelbox.v1 import errors_pb2, service_pb2

_REASON_PREFIX = "ERROR_REASON_"

# How often and how long to try again while the server can't be reached, in seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
PATIENCE = 5.0


def pauses(patience: float) -> Iterator[float]:
    """Yields the seconds to wait before each further try, until `patience` seconds have passed."""
    end = time.monotonic() + patience
    pause = FIRST_PAUSE
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, LONGEST_PAUSE)


def reason_name(number: int) -> str:
    """Returns the name of an ErrorReason without its prefix; empty for none."""
    if number == 0:
        return ""
    try:
        return errors_pb2.ErrorReason.Name(number).removeprefix(_REASON_PREFIX)
    except ValueError:
        return str(number)  # from a newer server


def from_error_message(error: Any, location: str = "") -> errors.KernelboxError:
    """Makes the exception of a kernelbox.v1.Error."""
    return errors.make(
        error.code,
        reason_name(error.reason),
        error.message,
        error.metadata,
        op_id=error.op_id,
        op=error.op,
        location=location,
    )


def from_rpc_error(error: grpc.RpcError) -> errors.KernelboxError:
    """Makes the exception of a failed rpc from its status and its google.rpc.ErrorInfo."""
    code, details = error.code(), error.details() or ""
    reason, metadata = "", {}
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        status = status_pb2.Status.FromString(value)
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                reason, metadata = info.reason, dict(info.metadata)
    # The op that failed first, if the error is one that a handle holds.
    op_id, op = int(metadata.pop("op_id", 0)), metadata.pop("op", "")
    if not reason and code is grpc.StatusCode.RESOURCE_EXHAUSTED and "message larger" in details:
        return errors.MessageTooLargeError(details, code=code)
    return errors.make(code, reason, details, metadata, op_id=op_id, op=op)


class Rpc:
    """KernelboxService on one channel: a callable for each method.

    Safe to use from any thread.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.channel = grpc.insecure_channel(
            target,
            options=[
                # Bulk data comes in chunks and ops in small requests, so what the server sends is
                # never near this; what it accepts is its own to say.
                ("grpc.max_receive_message_length", 64 << 20),
                ("grpc.max_send_message_length", -1),
                # The session's KeepAlive calls come more often than these, so that no server takes
                # them for a flood.
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                # Find a restarted server soon.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1_000),
                # Sessions do not share a connection: one's bulk data does not delay another's ops.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        service = service_pb2.DESCRIPTOR.services_by_name["KernelboxService"]
        self._methods: dict[str, Callable[..., Any]] = {}
        for method in service.methods:
            kind = (
                ("stream_" if method.client_streaming else "unary_")
                + ("stream" if method.server_streaming else "unary")
            )  # fmt: skip
            self._methods[method.name] = getattr(self.channel, kind)(
                f"/{service.full_name}/{method.name}",
                request_serializer=_serialize,
                response_deserializer=message_factory.GetMessageClass(
                    method.output_type
                ).FromString,
            )

    def open(self, method: str, request: Any, timeout: float | None = None) -> Any:
        """Starts a call and returns what gRPC returns, failures as grpc.RpcError."""
        return self._methods[method](request, timeout=timeout)

    def call(
        self, method: str, request: Any, timeout: float | None = None, patience: float = PATIENCE
    ) -> Any:
        """Makes a unary call. Raises KernelboxError.

        A server that can't be reached is tried again for up to `patience` seconds (nothing else
        is): what changes the session must carry a request_id.
        """
        return self.retry(lambda left: self.open(method, request, left), timeout, patience)

    def retry(
        self,
        attempt: Callable[[float | None], Any],
        timeout: float | None = None,
        patience: float = PATIENCE,
    ) -> Any:
        """Returns `attempt(seconds left)`, tried again as `call` does. Raises KernelboxError."""
        end = None if timeout is None else time.monotonic() + timeout
        waits = pauses(patience)
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.001)
            try:
                return attempt(left)
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
                if not isinstance(error, errors.UnavailableError):
                    raise error from None
                pause = next(waits, None)
                if pause is None or (end is not None and time.monotonic() + pause >= end):
                    raise unreachable(error, self.target) from None
            time.sleep(pause)

    def close(self) -> None:
        """Closes the channel; calls in flight are cancelled."""
        self.channel.close()


def unreachable(error: errors.KernelboxError, target: str) -> errors.KernelboxError:
    """Says in an UnavailableError which server it is about, unless the server said so itself."""
    if error.reason:
        return error
    return errors.UnavailableError(
        f"the server at {target} can't be reached: {error.message}", code=error.code
    )


def _serialize(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()
