"""The README's example and the demo, as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

CLIENT = ROOT / "clients" / "python"
DEMO = CLIENT / "examples" / "digits_mlp.py"


def test_readme(server, capsys):
    readme = CLIENT / "README.md"
    if not readme.exists():
        pytest.skip("only the installed package is here")
    (program,) = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert len(program.strip().splitlines()) <= 20
    program = program.replace("127.0.0.1:50051", server.target)
    exec(compile(program, str(readme), "exec"), {})
    loss, shape = re.fullmatch(r"loss (\S+) weights (.*)\n", capsys.readouterr().out).groups()
    assert 0 < float(loss) < 1.2
    assert shape == "(3, 8)"


def run_demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: the demo needs it")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the demo needs it")
    return subprocess.run(
        [sys.executable, str(DEMO), "--out", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_demo(server_path, backend, tmp_path):
    result = run_demo(tmp_path, "--server", server_path, "--backend", backend)
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.splitlines()[-1]
    match = re.fullmatch(
        rf"demo: backend={backend} steps=(\d+) loss=(\d+\.\d+) test_accuracy=(0\.\d+|1\.0+)", last
    )
    assert match, last
    assert float(match[3]) >= 0.97
    for picture in ("loss.png", "digits.png"):
        data = (tmp_path / picture).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 10_000
    assert "drained" in (tmp_path / "kernelboxd.log").read_text()


def test_demo_fails_when_it_has_not_learned(server, tmp_path):
    result = run_demo(tmp_path, "--connect", server.target, "--epochs", "1", "--batch", "700")
    assert result.returncode == 1
    assert "below 0.97" in result.stderr
