#!/usr/bin/env python3
"""Carries out docs/add-a-layer.md on a scratch copy of the tree.

Applies its code blocks, builds the server and runs the new layer's tests. Fails if they fail, so
the page can't grow stale.

    tools/try_walkthrough.py            build for the cpu
    tools/try_walkthrough.py --compile  only compile the layer, with nvcc too where it is found
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = ROOT / "build" / "walkthrough"
PAGE = ROOT / "docs" / "add-a-layer.md"
BLOCK = re.compile(
    r"<!-- (append to|insert into the oneof of) (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL
)
# The last line of the oneof, by what stands before it.
ONEOF_END = re.compile(r"(oneof kind \{.*?)(\n  \}\n)", re.DOTALL)


def run(*command: str, **options: object) -> None:
    """Runs a command in the scratch copy; ends the program if it fails."""
    print("+", " ".join(command), flush=True)
    if subprocess.run(command, cwd=SCRATCH, check=False, **options).returncode != 0:  # type: ignore[call-overload]
        sys.exit(
            f"try_walkthrough.py: error: {command[0]} failed (above): docs/add-a-layer.md is wrong"
        )


def copy_tree() -> None:
    """Makes SCRATCH hold what git knows or would add; keeps its build."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]
    for name in wanted:
        target = SCRATCH / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # With its time, so that a second run builds only what has changed.
        shutil.copy2(ROOT / name, target)


def apply_page() -> list[str]:
    """Applies every block; returns the files they touch."""
    touched: dict[str, str] = {}
    for kind, name, code in BLOCK.findall(PAGE.read_text()):
        path = SCRATCH / name
        text = touched.get(name, path.read_text() if path.exists() else "")
        if kind == "append to":
            text += code
        else:
            text, count = ONEOF_END.subn(
                lambda m, code=code: f"{m[1]}\n{code.rstrip()}{m[2]}", text, 1
            )
            if count != 1:
                sys.exit(f"try_walkthrough.py: error: {name} has no oneof kind")
        touched[name] = text
    for name, text in touched.items():
        (SCRATCH / name).parent.mkdir(parents=True, exist_ok=True)
        (SCRATCH / name).write_text(text)
    return sorted(touched)


def main() -> None:
    """Runs the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--compile", action="store_true", help="compile the layer, build and run nothing"
    )
    options = parser.parse_args()
    # New files of an earlier version of the page must not stay.
    for folder in ("kernels", "tests", "proto"):
        shutil.rmtree(SCRATCH / folder, ignore_errors=True)
    copy_tree()
    touched = apply_page()
    print("docs/add-a-layer.md touches", ", ".join(touched))
    if len(touched) != 3:
        sys.exit("try_walkthrough.py: error: adding a layer takes three files")
    layer = next(name for name in touched if name.endswith(".cu"))
    common = ["-std=c++20", "-O1", "-I."]
    run(
        "g++",
        *common,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fopenmp",
        "-x",
        "c++",
        "-c",
        layer,
        "-o",
        "/dev/null",
    )
    nvcc = subprocess.run(
        [ROOT / "tools/cuda_toolkit.sh", "--find"], capture_output=True, text=True, check=False
    )
    if nvcc.returncode == 0:
        flags = [
            "-gencode=arch=compute_90a,code=sm_90a",
            "--extended-lambda",
            "--expt-relaxed-constexpr",
        ]
        run(nvcc.stdout.strip(), *common, *flags, "-c", layer, "-o", "build-layer.o")
    if options.compile:
        return
    googleapis = next((ROOT / ".venv").glob("lib/python3*/site-packages/google/rpc")).parents[1]
    if not (SCRATCH / "build/cpu/build.ninja").exists():
        run(
            "cmake",
            "--preset",
            "cpu",
            "-DKERNELBOX_TESTS=OFF",
            f"-DKERNELBOX_GOOGLEAPIS_DIR={googleapis}",
            stdout=subprocess.DEVNULL,
        )
    run("cmake", "--build", "build/cpu", "--target", "kernelboxd")
    python = str(ROOT / ".venv/bin/python")
    source = SCRATCH / "clients/python/src"
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHON": python}
    (SCRATCH / ".venv").unlink(missing_ok=True)
    (SCRATCH / ".venv").symlink_to(ROOT / ".venv")
    run("tools/gen_proto.sh", env=environment)
    server = str(SCRATCH / "build/cpu/bin/kernelboxd")
    run(
        python,
        "-m",
        "pytest",
        "tests/python/test_layers.py",
        "-q",
        "-k",
        "my_rms_norm or reference",
        "--backend",
        "cpu",
        "--server",
        server,
        env=environment,
    )


if __name__ == "__main__":
    main()
