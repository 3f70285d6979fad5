"""Starts a kernelboxd process on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelbox.session import Session, connect, server_info


class Server:
    """A kernelboxd process that this one started.

    Use it as a context manager: it is stopped at the end of the block. Its log is kept in `log`.

    Args:
        binary: the program; None: $KERNELBOXD, or `kernelboxd` on the PATH.
        backend: "auto", "cpu" or "cuda".
        listen: address; port 0 takes a free one.
        log: where its output goes; None: a new file in the folder for temporary files.
        arguments: further command-line arguments.
        start_timeout: seconds that it may take to be ready.

    Raises FileNotFoundError if there is no such program, RuntimeError with the end of its log if
    it does not get ready.
    """

    def __init__(
        self,
        binary: str | os.PathLike[str] | None = None,
        *,
        backend: str = "auto",
        listen: str = "127.0.0.1:0",
        log: str | os.PathLike[str] | None = None,
        arguments: tuple[str, ...] = (),
        start_timeout: float = 60.0,
    ) -> None:
        program = shutil.which(str(binary or os.environ.get("KERNELBOXD") or "kernelboxd"))
        if program is None:
            raise FileNotFoundError(
                f"no program {binary or 'kernelboxd'}: build it, put it on the PATH or name it in "
                "$KERNELBOXD"
            )
        self._folder = Path(tempfile.mkdtemp(prefix="kernelbox-"))
        self.log = Path(log) if log is not None else self._folder / "kernelboxd.log"
        ready = self._folder / "ready"
        command = [
            program,
            f"--listen={listen}",
            f"--backend={backend}",
            f"--ready-file={ready}",
            *arguments,
        ]
        # Client and server share the cores: threads that spin while they wait for work would take
        # them from the others (seen: ten times slower on two busy cores).
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        try:
            self.target = self._wait_ready(ready, start_timeout)
            self.info: Any = server_info(self.target, timeout=start_timeout)
        except BaseException:
            self.kill()
            raise
        self.backend: str = self.info.backend

    def connect(self, **options: Any) -> Session:
        """Opens a session on it; the options are those of `kernelbox.connect`."""
        return connect(self.target, **options)

    def stop(self, timeout: float = 30.0) -> int:
        """Asks it to drain and end (SIGTERM), and waits; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()

    def kill(self) -> None:
        """Ends it at once (SIGKILL)."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_ready(self, ready: Path, timeout: float) -> str:
        """Returns the address it listens on: the first line of the file it writes when ready."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if ready.exists() and (targets := ready.read_text().split()):
                return targets[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        state = self.process.poll()
        what = "is not ready" if state is None else f"ended with status {state}"
        end_of_log = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.process.args!r} {what}; the end of its log:\n{end_of_log}")
