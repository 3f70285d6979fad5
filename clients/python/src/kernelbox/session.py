"""A client's namespace on the server: its tensors, its ops and its lease."""

from __future__ import annotations

import logging
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np

from kernelbox import _transfer, dtypes, errors
from kernelbox._failures import FailureLog, Location
from kernelbox._issuer import OpIssuer
from kernelbox._op_methods import PLANS
from kernelbox._proto.kernelbox.v1 import service_pb2
from kernelbox._rpc import Rpc, from_error_message, from_rpc_error
from kernelbox._specs import Spec
from kernelbox._stream import OpStream
from kernelbox.tape import NoGrad, Tape
from kernelbox.tensor import Buffer, Tensor

_log = logging.getLogger("kernelbox")

# The minor version of kernelbox.v1 that this package is built for.
API_VERSION = 0

_OUTPUTS_OF = {name: [field.name for field in plan.outputs] for name, plan in PLANS.items()}
_LONGEST_KEEPALIVE_PAUSE = 30.0


def connect(
    target: str = "127.0.0.1:50051",
    *,
    device: int = 0,
    ttl: float = 60.0,
    timeout: float | None = 60.0,
    blocking: bool = False,
    client_name: str = "",
) -> Session:
    """Opens a session.

    Args:
        target: "host:port", or "unix:/path" for a socket of this machine.
        device: index of the server's device that holds the tensors.
        ttl: seconds that the server keeps the session without hearing from this process.
        timeout: seconds that a call waits for its answer unless it says otherwise; None: for ever.
        blocking: run each op by a call of its own, so that its failure is raised where it is
            issued. Slow; for finding mistakes.
        client_name: shown in the server's logs.

    Raises UnavailableError if there is no server, VersionMismatchError, NoSuchDeviceError,
    TooManySessionsError.
    """
    rpc = Rpc(target)
    try:
        answer = rpc.call(
            "CreateSession",
            service_pb2.CreateSessionRequest(
                request_id=uuid.uuid4().hex,
                api_version=API_VERSION,
                device=device,
                ttl_ms=round(ttl * 1000),
                client_name=client_name,
            ),
            timeout,
            patience=0,
        )
    except BaseException:
        rpc.close()
        raise
    return Session(rpc, answer, timeout=timeout, blocking=blocking)


def server_info(target: str = "127.0.0.1:50051", *, timeout: float | None = 10.0) -> Any:
    """Returns the server's GetServerInfoResponse: version, backend, devices, limits, ops."""
    rpc = Rpc(target)
    try:
        return rpc.call("GetServerInfo", service_pb2.GetServerInfoRequest(), timeout, patience=0)
    finally:
        rpc.close()


class Session(OpIssuer):
    """A client's namespace on the server. Made by `connect`.

    Every op of the server is a method: `y = session.linear(x, weight, bias, activation="relu")`.
    A call issues the op and returns tensors at once; what goes wrong on the server is raised when
    one of the tensors that depend on it is read, or by `sync`. As a context manager it syncs and
    closes.

    Safe to use from several threads, tapes excepted.
    """

    def __init__(self, rpc: Rpc, answer: Any, *, timeout: float | None, blocking: bool) -> None:
        super().__init__()
        self.id: str = answer.session_id
        self.epoch: str = answer.epoch
        self.limits = answer.limits
        self.timeout = timeout
        self.blocking = blocking
        self._rpc = rpc
        self._failures = FailureLog(_OUTPUTS_OF)
        self._stream = OpStream(rpc, self.id, answer.limits, self._failures)
        self._rng: Tensor | None = None
        self._rng_lock = threading.Lock()
        stop = threading.Event()
        pause = min(answer.ttl_ms / 3000, _LONGEST_KEEPALIVE_PAUSE)
        threading.Thread(
            target=_keep_alive,
            args=(rpc, self.id, self._stream, stop, pause),
            name="kernelbox-keepalive",
            daemon=True,
        ).start()
        # Runs at close, when the session is garbage or at the interpreter's end.
        self._closer = weakref.finalize(self, _close, rpc, self.id, self._stream, stop)

    # Tensors.

    def tensor(
        self,
        data: Any,
        dtype: dtypes.DTypeLike | None = None,
        *,
        requires_grad: bool = False,
        timeout: float | None = None,
    ) -> Tensor:
        """Uploads an array, or whatever NumPy makes one of, and returns its tensor.

        Arrays keep their dtype unless `dtype` is given; Python floats become float32 and ints
        int64. Any memory layout and byte order will do. Returns when the server has the data.

        Raises InvalidDTypeError for elements that no tensor can have, OutOfMemoryError.
        """
        array = _transfer.as_array(data, dtype)
        header = service_pb2.UploadHeader(
            session_id=self.id,
            request_id=uuid.uuid4().hex,
            handle=next(self._handles),
            spec=_transfer.to_spec(array),
            size_bytes=array.nbytes,
        )
        chunk_bytes = self.limits.preferred_chunk_bytes or 256 << 10

        def upload(left: float | None) -> None:
            messages = _transfer.upload_messages(header, array, chunk_bytes)
            self._rpc.open("Upload", messages, left)

        self._retry(upload, self.timeout if timeout is None else timeout)
        spec = self._specs.known(array.dtype.newbyteorder("="), array.shape)
        result = Tensor(Buffer(self, header.handle, spec))
        if requires_grad:
            result.requires_grad = True
        return result

    @property
    def rng(self) -> Tensor:
        """The random state, int64 {seed, offset}, that ops use unless they are given another."""
        with self._rng_lock:
            if self._rng is None:
                seed = uuid.uuid4().int >> 65
                self._rng = self.tensor(np.array([seed, 0], np.int64))
            return self._rng

    def manual_seed(self, seed: int) -> Tensor:
        """Starts the session's random numbers afresh from `seed`; returns the new `rng`."""
        state = self.tensor(np.array([seed, 0], np.int64))
        with self._rng_lock:
            self._rng = state
        return state

    # Gradients.

    def tape(self) -> Tape:
        """Returns a new tape: `with session.tape() as tape:` records ops for `tape.backward`."""
        return Tape(self)

    def no_grad(self) -> NoGrad:
        """Returns a context manager inside which nothing is recorded."""
        return NoGrad(self)

    # Waiting, failures, end.

    def sync(self, *, timeout: float | None = None) -> None:
        """Waits until every op issued so far has completed.

        Raises what failed since the last `sync`, except for failures that a read has raised
        already: the error itself if it is one, FailedOpsError if there are several. An op that
        failed because it read a failed tensor does not count.
        """
        timeout = self.timeout if timeout is None else timeout
        self._stream.drain(timeout)
        self._call("Sync", service_pb2.SyncRequest(session_id=self.id), timeout)
        failures, count = self._failures.take()
        if failures:
            raise failures[0] if count == 1 else errors.FailedOpsError(failures, count)

    def server_info(self, *, timeout: float | None = None) -> Any:
        """Returns the server's GetServerInfoResponse."""
        return self._call("GetServerInfo", service_pb2.GetServerInfoRequest(), timeout)

    def close(self) -> None:
        """Ends the session; its tensors are gone. Ops on their way may be dropped: sync first."""
        self._closer()

    @property
    def target(self) -> str:
        """The address of the server."""
        return self._rpc.target

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return not self._closer.alive

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self.closed:
                self.sync()
        finally:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else self._rpc.target
        return f"Session({self.id}, {state})"

    # Calls about single tensors and ops.

    def _submit(
        self, op: Any, handles: int, made: Mapping[str, Tensor], location: Location
    ) -> None:
        if not self.blocking:
            self._stream.add(op, handles, location)
            return
        self._stream.drain(self.timeout)
        request = service_pb2.RunRequest(session_id=self.id, request_id=uuid.uuid4().hex, op=op)
        try:
            answer = self._call("Run", request)
        except errors.KernelboxError as error:
            if error.op_id in (0, op.id):
                error.op_id, error.op = op.id, op.WhichOneof("kind") or ""
                self._failures.note(op, error.again(), location, told=True)
            error.location = self._failures.location_of(error.op_id)
            raise
        for output in answer.result.outputs:
            if output.field in made:
                _learn(made[output.field]._buffer.spec, output.spec)

    def _download(self, tensor: Tensor, timeout: float | None) -> np.ndarray[Any, Any]:
        self._check_readable(tensor)
        timeout = self.timeout if timeout is None else timeout
        end = None if timeout is None else time.monotonic() + timeout
        self._stream.drain(timeout)
        request = service_pb2.DownloadRequest(session_id=self.id, handle=tensor.handle)

        def download(left: float | None) -> np.ndarray[Any, Any]:
            return _transfer.receive(self._rpc.open("Download", request, left))

        left = None if end is None else max(end - time.monotonic(), 0.001)
        try:
            array: np.ndarray[Any, Any] = self._retry(download, left)
        except errors.KernelboxError as error:
            raise self._told(error, tensor) from None
        spec = tensor._buffer.spec
        if spec.shape is None:
            spec.dtype, spec.shape = array.dtype, array.shape
        return array

    def _describe(self, tensor: Tensor) -> None:
        """Learns the tensor's shape and dtype from the server. Raises the error it holds."""
        self._check_readable(tensor)
        self._stream.drain(self.timeout)
        request = service_pb2.DescribeRequest(session_id=self.id, handles=[tensor.handle])
        (state,) = self._call("Describe", request).tensors
        if state.HasField("error"):
            raise self._told(from_error_message(state.error), tensor)
        _learn(tensor._buffer.spec, state.spec)

    def _check_readable(self, tensor: Tensor) -> None:
        if tensor._buffer.freed:
            raise errors.UnknownHandleError(
                f"{tensor!r} has been freed",
                code=grpc.StatusCode.NOT_FOUND,
                metadata={"handle": str(tensor.handle)},
            )

    def _told(self, error: errors.KernelboxError, tensor: Tensor) -> errors.KernelboxError:
        """Completes the error of a read; `sync` need not raise it again."""
        if isinstance(error, errors.UnknownHandleError) and not error.op_id:
            error = self._failures.lost(tensor.handle) or error
        if error.op_id:
            error.location = self._failures.location_of(error.op_id)
            self._failures.told(error.op_id)
        return error

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        timeout = self.timeout if timeout is None else timeout
        return self._retry(lambda left: self._rpc.open(method, request, left), timeout)

    def _retry(self, attempt: Callable[[float | None], Any], timeout: float | None) -> Any:
        """Does Rpc.retry; if the session turns out to be gone, all later use fails likewise."""
        self._stream.check_usable()
        try:
            return self._rpc.retry(attempt, timeout)
        except (errors.SessionNotFoundError, errors.ServerRestartedError) as error:
            self._stream.kill(error.again())
            raise

    def _no_tape_error(self, tensor: Tensor) -> errors.GradientError:
        reason = (
            "it does not come from an op"
            if tensor.requires_grad
            else "no tape recorded it, or nothing it was computed from requires a gradient"
        )
        return errors.GradientError(f"{tensor!r} has no gradient: {reason}")


def _learn(spec: Spec, described: Any) -> None:
    spec.dtype = dtypes.from_wire(described.dtype)
    spec.shape = tuple(described.shape)


def _keep_alive(
    rpc: Rpc, session_id: str, stream: OpStream, stop: threading.Event, pause: float
) -> None:
    """Extends the lease until `stop`; the thread's function. Holds no reference to the session."""
    request = service_pb2.KeepAliveRequest(session_id=session_id)
    while not stop.wait(pause):
        try:
            rpc.open("KeepAlive", request, max(pause, 1.0))
        except grpc.RpcError as failure:
            error = from_rpc_error(failure)
            if isinstance(error, (errors.SessionNotFoundError, errors.ServerRestartedError)):
                stream.kill(error)
                return
            _log.warning("session %s: no answer to KeepAlive: %s", session_id, error)
        except ValueError:  # the channel has been closed
            return


def _close(rpc: Rpc, session_id: str, stream: OpStream, stop: threading.Event) -> None:
    """Ends a session as well as it can be done; never raises. Holds no reference to it."""
    stop.set()
    stream.close()
    try:
        request = service_pb2.CloseSessionRequest(
            session_id=session_id, request_id=uuid.uuid4().hex
        )
        if stream.dead is None:
            rpc.open("CloseSession", request, 5.0)
    except (grpc.RpcError, ValueError) as error:
        _log.debug("session %s: close: %s", session_id, error)
    rpc.close()
