"""Starts the real server once for all tests and gives each test a session of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from pathlib import Path

import hypothesis
import kernelbox
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

# Shapes and options are drawn; values come from a generator seeded by the draw. `derandomize` makes
# every run the same, so that a red CI can be reproduced.
hypothesis.settings.register_profile(
    "default",
    max_examples=int(os.environ.get("KERNELBOX_EXAMPLES", "12")),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    database=None,
)
hypothesis.settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", default="auto", choices=("auto", "cpu", "cuda"))
    parser.addoption("--server", default=None, help="path of kernelboxd")


def find_server(config: pytest.Config) -> str:
    """Returns the path of kernelboxd: --server, $KERNELBOXD or what is built here."""
    named = config.getoption("--server") or os.environ.get("KERNELBOXD")
    if named:
        return str(named)
    for preset in ("cuda", "cpu"):
        built = ROOT / "build" / preset / "bin" / "kernelboxd"
        if built.exists():
            return str(built)
    pytest.exit("no kernelboxd: build it, or name it with --server or $KERNELBOXD", returncode=2)


@pytest.fixture(scope="session")
def server_path(pytestconfig: pytest.Config) -> str:
    return find_server(pytestconfig)


@pytest.fixture(scope="session")
def start_server(server_path: str, pytestconfig: pytest.Config):
    """A function that starts a further server; each is ended with the tests."""
    started = []

    def start(**options) -> kernelbox.Server:
        options.setdefault("backend", pytestconfig.getoption("--backend"))
        server = kernelbox.Server(server_path, **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def server(start_server) -> kernelbox.Server:
    server = start_server()
    yield server
    assert server.stop() == 0, f"the server did not end cleanly; see {server.log}"


@pytest.fixture(scope="session")
def backend(server: kernelbox.Server) -> str:
    return server.backend


def used_bytes(target: str) -> int:
    """Returns the device bytes that all sessions of a server hold."""
    return sum(d.memory_used_bytes for d in kernelbox.server_info(target).devices)


def wait_for_used_bytes(target: str, expected: int, seconds: float = 10.0) -> None:
    """Waits until a server holds `expected` device bytes; fails if it does not come to that."""
    end = time.monotonic() + seconds
    while (used := used_bytes(target)) != expected and time.monotonic() < end:
        time.sleep(0.02)
    assert used == expected, f"{used} device bytes are held, {expected} are expected"


@pytest.fixture
def session(server: kernelbox.Server):
    """A session; when it has closed no byte of it may be left."""
    session = server.connect()
    yield session
    session.close()
    wait_for_used_bytes(server.target, 0)


@pytest.fixture
def unharmed(session: kernelbox.Session, server: kernelbox.Server):
    """After the test the session still computes, and holds no more bytes than before."""
    before = used_bytes(server.target)
    yield
    session._rng = None
    gc.collect()  # exceptions hold the test's variables
    x = session.tensor([-1.0, 2.0])
    np.testing.assert_array_equal(session.relu(x).numpy(), [0, 2])
    del x
    with contextlib.suppress(kernelbox.KernelboxError):  # what the test has provoked
        session.sync()
    wait_for_used_bytes(server.target, before)


@pytest.fixture(scope="module")
def shared_session(server: kernelbox.Server):
    """One session for many examples of a test, whose tensors are garbage after each."""
    session = server.connect()
    yield session
    session.close()
    wait_for_used_bytes(server.target, 0)
