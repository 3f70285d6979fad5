"""Measures ops a second from Python and, with --cpp, everything that `make bench-rpc` prints.

    python bench_rpc.py --server build/cpu/bin/kernelboxd --cpp build/cpu/bin/bench_rpc

The op is the cheapest there is, ReLU of one element, so that the figure is that of the way there
and back. The C++ program is run as `bench_rpc --target ADDRESS` against the same server and its
last line is a JSON object of its figures; the last line here has those and ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import time

import kernelbox

# In the order of the last line.
FIGURES = (
    "unary_us",
    "execute_ops_per_s_cpp",
    "execute_ops_per_s_python",
    "upload_ratio",
    "download_ratio",
)


def ops_per_second(session: kernelbox.Session, count: int) -> float:
    """Returns how many ops a second are issued and completed, over `count` of them."""
    x = session.tensor([1.0])
    session.sync()
    start = time.perf_counter()
    for _ in range(count):
        session.relu(x)
    session.sync()
    return count / (time.perf_counter() - start)


def unary_microseconds(session: kernelbox.Session, count: int) -> float:
    """Returns the microseconds that an op takes by a call of its own."""
    x = session.tensor([1.0])
    session.blocking = True
    start = time.perf_counter()
    for _ in range(count):
        session.relu(x)
    elapsed = time.perf_counter() - start
    session.blocking = False
    return 1e6 * elapsed / count


def run_cpp(program: str, target: str) -> dict[str, float]:
    """Runs the C++ benchmark, passes its lines on and returns its figures."""
    last = ""
    with subprocess.Popen(
        [program, "--target", target], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if last:
                print(last, flush=True)
            last = line.rstrip()
    if process.returncode != 0:
        raise SystemExit(f"{program} failed with status {process.returncode}; it said: {last}")
    figures: dict[str, float] = json.loads(last)
    return figures


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description="Ops a second from Python.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--connect", metavar="TARGET", help="a running server")
    where.add_argument("--server", help="kernelboxd to start")
    parser.add_argument("--cpp", metavar="PROGRAM", help="the C++ benchmark, to be run too")
    parser.add_argument("--ops", type=int, default=50_000, help="ops of one round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        target = options.connect
        if target is None:
            target = stack.enter_context(kernelbox.Server(options.server)).target
        if options.cpp:
            figures = run_cpp(options.cpp, target)
        session = stack.enter_context(kernelbox.connect(target))
        ops_per_second(session, options.ops // 10)
        rates = sorted(ops_per_second(session, options.ops) for _ in range(options.rounds))
        unary = unary_microseconds(session, 1000)
    median = rates[len(rates) // 2]
    print(f"python: {rates[0]:,.0f} to {rates[-1]:,.0f} ops/s pipelined, median {median:,.0f}")
    print(f"python: {unary:.0f} us an op by unary Run")
    figures["execute_ops_per_s_python"] = round(median)
    print(json.dumps({name: figures[name] for name in FIGURES if name in figures}))


if __name__ == "__main__":
    main()
