"""Broken connections and servers that go away."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import kernelbox
import numpy as np
import pytest
from kernelbox import errors


def _shut(end: socket.socket) -> None:
    """Ends a connection both ways; one that has ended already stays so."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Forwards TCP connections to a server, until they are cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks every connection; new ones are forwarded again."""
        with self._lock:
            for end in self._open:
                _shut(end)
            self._open.clear()

    def close(self) -> None:
        _shut(self._listener)  # wakes the thread that accepts
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._server)
            except OSError:
                return
            with self._lock:
                self._open += [near, far]
                self.connections += 1
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            _shut(end)


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.target)
    yield proxy
    proxy.close()


def test_connection_cut_while_ops_flow(proxy):
    """Whatever was in flight is sent again, and nothing is applied twice."""
    session = kernelbox.connect(proxy.target, ttl=5)
    weight = session.tensor(np.zeros(1, np.float32))
    grad = session.tensor(np.full(1, -1.0, np.float32))
    lr = session.tensor(1.0)
    step = session.tensor(0)
    stop = threading.Event()

    def cut_now_and_then():
        while not stop.wait(0.05):
            proxy.cut()

    cutter = threading.Thread(target=cut_now_and_then)
    cutter.start()
    count = 20_000
    for _ in range(count):
        session.sgd([weight], [grad], lr, step)
    stop.set()
    cutter.join()
    session.sync()
    assert proxy.connections > 1, "the connection was never cut"
    assert step.item() == count
    assert weight.item() == count
    session.close()


def test_connection_cut_while_idle(proxy):
    session = kernelbox.connect(proxy.target, ttl=5)
    x = session.tensor([1.0, -1.0])
    for _ in range(3):
        proxy.cut()
        np.testing.assert_array_equal(session.relu(x).numpy(), [1, 0])
        proxy.cut()
        assert session.tensor([5.0]).item() == 5
    session.close()


def test_server_out_of_reach(server):
    proxy = Proxy(server.target)
    session = kernelbox.connect(proxy.target, ttl=5)
    x = session.tensor([1.0])
    proxy.close()
    y = session.relu(x)
    start = time.monotonic()
    with pytest.raises(errors.UnavailableError, match="can't be reached"):
        y.numpy()
    assert time.monotonic() - start < 30
    session.close()


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_server_killed_and_restarted(start_server, free_port):
    """The client learns that its tensors are gone, and which run of the server it talks to."""
    listen = f"127.0.0.1:{free_port}"
    first = start_server(listen=listen)
    session = first.connect()
    x = session.tensor([1.0])
    assert session.relu(x).item() == 1
    first.kill()
    second = start_server(listen=listen)
    assert second.info.epoch != first.info.epoch
    with pytest.raises(errors.ServerRestartedError) as error:
        session.relu(x).numpy()
    assert error.value.metadata == {
        "session_epoch": first.info.epoch,
        "server_epoch": second.info.epoch,
    }
    assert isinstance(error.value, ConnectionError)
    for use in (lambda: session.relu(x), lambda: x.numpy(), lambda: session.tensor([1.0])):
        with pytest.raises(errors.ServerRestartedError):
            use()
    session.close()
    with second.connect() as again:
        assert again.epoch == second.info.epoch
        assert again.relu(again.tensor([2.0])).item() == 2
    assert second.stop() == 0


def test_server_killed_in_the_middle_of_ops(start_server):
    server = start_server()
    session = server.connect()
    x = session.fill(shape=(512, 512), dtype="float32", value=0)
    for _ in range(200):
        x = session.linear(x, x)
    server.kill()
    with pytest.raises(errors.UnavailableError):
        session.sync()
    session.close()


def test_draining_server_finishes_what_it_has(start_server):
    server = start_server()
    session = server.connect()
    x = session.tensor(np.ones(4, np.float32))
    session.sync()
    session.close()
    assert x.handle
    assert server.stop() == 0
    with pytest.raises(errors.UnavailableError):
        kernelbox.connect(server.target)


def test_unix_socket(start_server, tmp_path):
    path = tmp_path / "kernelbox.sock"
    server = start_server(listen=f"unix:{path}")
    with kernelbox.connect(f"unix:{path}") as session:
        data = np.random.default_rng(0).normal(size=1 << 16).astype(np.float32)
        np.testing.assert_array_equal(session.tensor(data).numpy(), data)
    assert server.stop() == 0
