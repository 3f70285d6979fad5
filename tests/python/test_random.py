"""The random numbers themselves, apart from how they are mapped to elements."""

from __future__ import annotations

import numpy as np
import philox
import pytest

SEEDS = [0, 1, -1, 2**63 - 1]


def test_philox_known_answers():
    """The test vectors that the authors of Philox publish with Random123 (kat_vectors)."""
    zero = philox.blocks(0, 0, 1)[0]
    assert [hex(word) for word in zero] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_uniform_stays_in_its_range(session, backend, dtype):
    if dtype == "float64" and backend == "cuda":
        pytest.skip("cuda does not compute in float64")
    session.manual_seed(0)
    for low, high in [(0.0, 1.0), (-1.0, 0.0), (3.0, 3.5)]:
        y = session.uniform(shape=(1 << 16,), dtype=dtype, low=low, high=high).numpy()
        y = y.astype(np.float64)
        assert low <= y.min()
        assert y.max() < high
        spread = (high - low) / 12**0.5
        assert abs(y.mean() - (low + high) / 2) < 6 * spread / 256
        assert abs(y.std() - spread) < 0.02 * spread


@pytest.mark.parametrize("seed", SEEDS)
def test_normal_is_normal(session, seed):
    session.manual_seed(seed)
    y = np.sort(session.normal(shape=(1 << 16,)).numpy().astype(np.float64))
    # Moments within 6 standard errors of 65,536 samples: 1 / 256, sqrt(2) / 256, ...
    assert abs(y.mean()) < 6 / 256
    assert abs((y**2).mean() - 1) < 6 * 2**0.5 / 256
    assert abs((y**3).mean()) < 6 * 15**0.5 / 256
    assert abs((y**4).mean() - 3) < 6 * 96**0.5 / 256
    assert abs(y).max() < 7


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share(session, p):
    session.manual_seed(2)
    ones = session.fill(shape=(1 << 16,), dtype="float32", value=1)
    dropped = (session.dropout(ones, p=p).numpy() == 0).mean()
    assert abs(dropped - p) < 6 * (p * (1 - p)) ** 0.5 / 256


def test_consecutive_draws_do_not_overlap(session):
    session.manual_seed(9)
    first = session.uniform(shape=(10,)).numpy()
    second = session.uniform(shape=(10,)).numpy()
    session.manual_seed(9)
    together = session.uniform(shape=(24,)).numpy()
    np.testing.assert_array_equal(first, together[:10])
    np.testing.assert_array_equal(second, together[12:22])
