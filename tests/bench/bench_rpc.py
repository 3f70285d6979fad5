"""Measures ops a second that the Python client issues by pipelined Execute.

    python bench_rpc.py --connect 127.0.0.1:50051
    python bench_rpc.py --server build/cpu/bin/kernelboxd

The op is the cheapest there is, ReLU of one element, so that the figure is that of the way there
and back. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time

import kernelbox


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


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description="Ops a second from Python.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--connect", metavar="TARGET", help="a running server")
    where.add_argument("--server", help="kernelboxd to start")
    parser.add_argument("--ops", type=int, default=50_000, help="ops of one round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        target = options.connect
        if target is None:
            target = stack.enter_context(kernelbox.Server(options.server)).target
        session = stack.enter_context(kernelbox.connect(target))
        ops_per_second(session, options.ops // 10)
        rates = sorted(ops_per_second(session, options.ops) for _ in range(options.rounds))
        unary = unary_microseconds(session, 1000)
    median = rates[len(rates) // 2]
    print(f"python: {rates[0]:,.0f} to {rates[-1]:,.0f} ops/s pipelined, median {median:,.0f}")
    print(f"python: {unary:.0f} us an op by unary Run")
    print(json.dumps({"execute_ops_per_s_python": round(median)}))


if __name__ == "__main__":
    main()
