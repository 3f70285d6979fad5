"""Fifty steps of training agree with a NumPy twin in float64, and the backends with each other."""

from __future__ import annotations

import itertools

import kernelbox
import numpy as np
import pytest
from twin import Twin

SIZES = (20, 33, 17, 5)
BATCH, STEPS, SEED = 16, 50, 1234
OPTIONS = {"lr": 0.1, "weight_decay": 1e-3}


def start(dtype):
    random = np.random.default_rng(7)
    pairs = list(itertools.pairwise(SIZES))
    weights = [random.normal(0, i**-0.5, (o, i)).astype(dtype) for i, o in pairs]
    biases = [random.normal(0, 0.1, o).astype(dtype) for _, o in pairs]
    batches = [
        (random.normal(size=(BATCH, SIZES[0])).astype(dtype), random.integers(0, SIZES[-1], BATCH))
        for _ in range(STEPS)
    ]
    return weights, biases, batches


def flat(weights, biases):
    return [array for pair in zip(weights, biases, strict=True) for array in pair]


def train(session, dtype, p, momentum):
    """Trains on a server; returns weights and losses."""
    weights, biases, batches = start(dtype)
    session.manual_seed(SEED)
    params = [session.tensor(array, requires_grad=True) for array in flat(weights, biases)]
    optimizer = kernelbox.optim.SGD(params, momentum=momentum, **OPTIONS)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        h = session.tensor(x)
        with session.tape() as tape:
            for index in range(0, len(params) - 2, 2):
                h = session.linear(h, params[index], params[index + 1], activation="relu")
                if p:
                    h = session.dropout(h, p=p)
            h = session.linear(h, params[-2], params[-1])
            loss = session.cross_entropy_loss(h, session.tensor(target))
        tape.backward(loss)
        optimizer.step()
        losses.append(loss)
    session.sync()
    return [param.numpy() for param in params], [loss.item() for loss in losses]


def relative_difference(a, b):
    """Returns |a - b| / |b| over all parameters together."""
    a, b = (np.concatenate([np.ravel(v).astype(np.float64) for v in list_]) for list_ in (a, b))
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_same_as_the_twin(session, backend, dtype, p, momentum):
    if dtype == "float64" and backend == "cuda":
        pytest.skip("cuda does not compute in float64")
    weights, biases, batches = start(dtype)
    twin = Twin(weights, biases, p=p, seed=SEED, momentum=momentum, **OPTIONS)
    expected = [twin.step(x, target) for x, target in batches]
    params, losses = train(session, dtype, p, momentum)
    # Each step rounds anew and training magnifies that; these are the agreed bounds.
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    assert relative_difference(params, twin.params) <= tolerance
    np.testing.assert_allclose(losses, expected, rtol=100 * tolerance)
    moved = relative_difference(twin.params, flat(weights, biases))
    assert moved > 0.05, "training that changes nothing would prove nothing"


def test_cpu_and_cuda_agree(backend, session, start_server):
    if backend != "cuda":
        pytest.skip("no GPU here")
    on_cuda, _ = train(session, "float32", p=0.25, momentum=0.9)
    cpu_server = start_server(backend="cpu")
    with cpu_server.connect() as cpu_session:
        on_cpu, _ = train(cpu_session, "float32", p=0.25, momentum=0.9)
    assert relative_difference(on_cuda, on_cpu) <= 1e-4
    cpu_server.stop()
