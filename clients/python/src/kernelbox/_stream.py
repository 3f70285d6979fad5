"""A session's ops on their way to the server.

Ops are appended to a request and the call returns at once; gRPC's sender takes whatever has
gathered by the time it gets to send, so that requests are small when ops are rare and large when
they are many. Each request has a request_id and is kept until it is answered: when the
connection breaks the unanswered ones are sent again, and the server, which remembers the ids,
applies none of them twice.

Ops are answered in order and an answer says that the ops of a request have completed. So whoever
waits for the answer to the newest request (`drain`) may use any other rpc afterwards: all that was
issued before is done.
"""

from __future__ import annotations

import collections
import itertools
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from kernelbox import errors
from kernelbox._failures import FailureLog, Location
from kernelbox._proto.kernelbox.v1 import service_pb2
from kernelbox._rpc import PATIENCE, Rpc, from_error_message, from_rpc_error, pauses, unreachable

_log = logging.getLogger("kernelbox")

# The most ops in a request, and handles to free.
_OPS_A_REQUEST = 512
_FREES_A_REQUEST = 4096
# No op with up to so many handles takes more bytes than that; one with more counts as several.
_HANDLES_OF_AN_OP = 16
_BYTES_OF_AN_OP = 512
_BYTES_OF_A_FREE = 32
# How many ops may be without answer before issuing one more waits: bounds the memory that a
# client takes which is faster than its server.
_UNANSWERED_OPS = 8192
# How many requests may be: the server remembers the ids of some thousand.
_UNANSWERED_REQUESTS = 128
# While no call is open, how often to look for handles to free: `free` wakes senders only. Seconds.
_LOOK_FOR_FREES = 0.5


class _Request:
    """An ExecuteRequest, and what its answer will need."""

    __slots__ = ("answered", "locations", "message", "weight")

    def __init__(self, session_id: str, request_id: str) -> None:
        self.message = service_pb2.ExecuteRequest(session_id=session_id, request_id=request_id)
        self.locations: list[Location] = []  # one an op
        self.weight = 0
        self.answered = False


class OpStream:
    """The Execute stream of one session.

    Safe to use from any thread. `free` may be called at any time, from destructors too.
    """

    def __init__(
        self,
        rpc: Rpc,
        session_id: str,
        limits: service_pb2.Limits,
        failures: FailureLog,
    ) -> None:
        self._rpc = rpc
        self._failures = failures
        self._session_id = session_id
        self._max_message_bytes = limits.max_message_bytes
        self._ops_a_request = max(
            1,
            min(_OPS_A_REQUEST, limits.max_queued_ops, self._max_message_bytes // _BYTES_OF_AN_OP),
        )
        self._frees_a_request = max(
            1, min(_FREES_A_REQUEST, self._max_message_bytes // _BYTES_OF_A_FREE)
        )
        self._request_ids = (f"{uuid.uuid4().hex}-{n}" for n in itertools.count())
        self._lock = threading.Lock()
        # Notified whenever an answer came or the state below changed.
        self._changed = threading.Condition(self._lock)

        # Requests not handed to gRPC yet, then those without answer. Guarded by _lock.
        self._pending: collections.deque[_Request] = collections.deque()
        self._in_flight: collections.deque[_Request] = collections.deque()
        self._unanswered = 0
        # Handles to free. Not guarded: destructors append to it at any moment.
        self._frees: collections.deque[int] = collections.deque()

        # The queue that wakes the current call's sender: a token means "look for requests", False
        # "stop". Each call has its own.
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._sender_sleeps = False
        # The sender has more to send when an answer has come.
        self._sender_waits = False
        self._call: Any = None
        # Set: the session is gone for good, with this error.
        self._dead: errors.KernelboxError | None = None
        # Set: the server can't be reached, and nobody is trying until someone waits again.
        self._down: errors.KernelboxError | None = None
        self._closed = threading.Event()

        self._thread = threading.Thread(target=self._receive, name="kernelbox-execute", daemon=True)
        self._thread.start()

    def add(self, op: Any, handles: int, location: Location) -> None:
        """Issues an op, which has about that many handles. Waits while too many are unanswered.

        Raises the error that ended the session; UnavailableError when it would have to wait for
        a server that can't be reached; MessageTooLargeError.
        """
        weight = 1 + handles // _HANDLES_OF_AN_OP
        if weight > self._ops_a_request and op.ByteSize() + 1024 > self._max_message_bytes:
            raise errors.MessageTooLargeError(
                f"{op.WhichOneof('kind')}: a request may have {self._max_message_bytes} bytes; "
                f"this op alone has {op.ByteSize()}",
                code=grpc.StatusCode.RESOURCE_EXHAUSTED,
            )
        with self._lock:
            self._check_usable()
            if self._unanswered >= _UNANSWERED_OPS:
                self._wait_until(lambda: self._unanswered < _UNANSWERED_OPS, None)
            request = self._tail()
            request.message.ops.append(op)
            request.locations.append(location)
            request.weight += weight
            self._unanswered += weight
            self._rouse()

    def free(self, handle: int) -> None:
        """Frees a handle after every op issued so far. Never waits or raises."""
        self._frees.append(handle)
        self._wake.put(True)

    def drain(self, timeout: float | None) -> None:
        """Waits until all that was issued before the call has completed.

        Raises DeadlineExceededError, UnavailableError or the error that ended the session; the
        failures of ops are not raised here.
        """
        with self._lock:
            self._check_usable()
            self._gather_frees()
            if self._pending:
                last = self._pending[-1]
            elif self._in_flight:
                last = self._in_flight[-1]
            else:
                return
            self._rouse()
            self._wait_until(lambda: last.answered, timeout)

    def kill(self, error: errors.KernelboxError) -> None:
        """Marks the session as gone for good: every later use raises this error."""
        with self._lock:
            self._die(error)
            if self._call is not None:
                self._call.cancel()

    def check_usable(self) -> None:
        """Raises the error that ended the session, or SessionNotFoundError once it is closed."""
        with self._lock:
            self._check_usable()

    @property
    def dead(self) -> errors.KernelboxError | None:
        """The error that ended the session, if one did."""
        return self._dead

    def close(self) -> None:
        """Ends the stream. What has not been sent is dropped."""
        with self._lock:
            self._closed.set()
            self._wake.put(False)
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    # The caller of what follows holds the lock.

    def _check_usable(self) -> None:
        if self._dead is not None:
            raise self._dead.again()
        if self._closed.is_set():
            raise errors.SessionNotFoundError(
                "the session is closed", code=grpc.StatusCode.NOT_FOUND
            )

    def _tail(self) -> _Request:
        """Returns the request that the next op goes into."""
        pending = self._pending
        if not pending or pending[-1].weight >= self._ops_a_request:
            pending.append(_Request(self._session_id, next(self._request_ids)))
        return pending[-1]

    def _gather_frees(self) -> None:
        """Moves the handles to free into the newest request, behind its ops."""
        while self._frees:
            request = self._tail()
            handles = request.message.free_handles
            while self._frees and len(handles) < self._frees_a_request:
                handles.append(self._frees.popleft())
            if self._frees:
                self._pending.append(_Request(self._session_id, next(self._request_ids)))

    def _rouse(self) -> None:
        """Makes sure that somebody is about to send what is pending."""
        if self._down is not None:
            self._down = None
            self._changed.notify_all()
        if self._sender_sleeps:
            self._sender_sleeps = False
            self._wake.put(True)
        elif self._call is None:
            self._changed.notify_all()

    def _wait_until(self, done: Callable[[], bool], timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        self._rouse()
        while not done():
            self._check_usable()
            if self._down is not None:
                raise self._down.again()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise errors.DeadlineExceededError(
                    f"ops issued before this call have not completed within {timeout} s",
                    code=grpc.StatusCode.DEADLINE_EXCEEDED,
                )
            self._changed.wait(left)

    def _die(self, error: errors.KernelboxError) -> None:
        if self._dead is None:
            self._dead = error
        self._pending.clear()
        self._in_flight.clear()
        self._unanswered = 0
        self._changed.notify_all()

    # gRPC's sender thread runs what follows.

    def _messages(
        self, wake: queue.SimpleQueue[bool], again: list[_Request]
    ) -> Iterator[service_pb2.ExecuteRequest]:
        """Yields the requests of one call: first those to send again, then new ones."""
        for request in again:
            yield request.message
        wake.put(True)
        while wake.get():
            for request in self._take(wake):
                yield request.message

    def _take(self, wake: queue.SimpleQueue[bool]) -> list[_Request]:
        """Returns what is pending, as far as there is room; it is in flight from now on."""
        with self._lock:
            if self._wake is not wake:
                return []  # this call has ended and another one sends
            self._gather_frees()
            room = max(_UNANSWERED_REQUESTS - len(self._in_flight), 0)
            requests = [self._pending.popleft() for _ in range(min(room, len(self._pending)))]
            self._in_flight.extend(requests)
            self._sender_waits = bool(self._pending)
            self._sender_sleeps = not self._sender_waits
            return requests

    # The stream's own thread runs what follows.

    def _receive(self) -> None:
        """Makes calls, one after the other, and takes their answers, until the stream is closed."""
        waits: Iterator[float] | None = None
        while self._has_work():
            try:
                for response in self._start_call():
                    waits = None
                    self._answer(response)
                error: errors.KernelboxError = errors.UnavailableError(
                    "the server ended the stream", code=grpc.StatusCode.UNAVAILABLE
                )
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
            with self._lock:
                self._call = None
                self._wake.put(False)
                self._sender_sleeps = self._sender_waits = False
                if isinstance(error, (errors.SessionNotFoundError, errors.ServerRestartedError)):
                    self._die(error)
                elif not isinstance(error, errors.UnavailableError):
                    self._fail_in_flight(error)
                    waits = None
                    continue
                if self._closed.is_set() or self._dead is not None:
                    return
                waits = waits or pauses(PATIENCE)
                pause = next(waits, None)
                if pause is None:
                    self._give_up(unreachable(error, self._rpc.target))
                    waits, pause = None, 0.0
            self._closed.wait(pause)

    def _has_work(self) -> bool:
        """Waits until there is something to send; False: the stream has come to its end."""
        with self._lock:
            while not self._closed.is_set() and self._dead is None:
                if self._pending or self._in_flight or self._frees:
                    return True
                self._changed.wait(_LOOK_FOR_FREES)
            return False

    def _give_up(self, error: errors.KernelboxError) -> None:
        """Raises the error wherever someone waits; returns when someone wants to try again."""
        self._down = error
        self._changed.notify_all()
        while self._down is not None and not self._closed.is_set():
            self._changed.wait()

    def _start_call(self) -> Any:
        with self._lock:
            self._wake = queue.SimpleQueue()
            self._sender_sleeps = self._sender_waits = False
            messages = self._messages(self._wake, list(self._in_flight))
            self._call = self._rpc.open("Execute", messages)
            if self._closed.is_set():
                self._call.cancel()
            return self._call

    def _answer(self, response: Any) -> None:
        with self._lock:
            if not self._in_flight:  # the session has died meanwhile
                return
            request = self._in_flight.popleft()
            request.answered = True
            self._unanswered -= request.weight
            if response.results:
                self._note_results(request, response.results)
            for error in response.free_errors:
                _log.debug("free: %s", error.message)
            if self._sender_waits:
                self._sender_waits = False
                self._wake.put(True)
            self._changed.notify_all()

    def _note_results(self, request: _Request, results: Any) -> None:
        # An op that read a failed tensor carries the error of the op that failed first.
        failed = {
            result.op_id: result.error
            for result in results
            if result.HasField("error") and result.error.op_id == result.op_id
        }
        for op, location in zip(request.message.ops, request.locations, strict=True):
            if op.id in failed:
                self._failures.note(op, from_error_message(failed[op.id]), location)

    def _fail_in_flight(self, error: errors.KernelboxError) -> None:
        """The stream ended with an error that says nothing of single ops: all of them failed."""
        for request in self._in_flight:
            request.answered = True
            self._unanswered -= request.weight
            for op, location in zip(request.message.ops, request.locations, strict=True):
                failure = error.again()
                failure.op_id, failure.op = op.id, op.WhichOneof("kind") or ""
                self._failures.note(op, failure, location)
        self._in_flight.clear()
        self._changed.notify_all()
