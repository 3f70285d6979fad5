"""Philox4x32-10 in NumPy, written from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011), and the mapping to elements that layers.proto states."""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def blocks(seed: int, offset: int, count: int) -> np.ndarray:
    """Returns the lanes, uint32 of shape (count, 4), of the blocks offset, offset + 1, ...

    The key is the seed; the low half of the counter is the block's number, its high half is 0.
    """
    seed &= (1 << 64) - 1
    number = np.uint64(offset & ((1 << 64) - 1)) + np.arange(count, dtype=np.uint64)
    c = [number & _LOW, number >> _SHIFT, np.zeros_like(number), np.zeros_like(number)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        product0, product1 = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = [
            (product1 >> _SHIFT) ^ c[1] ^ np.uint64(key[0]),
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c[3] ^ np.uint64(key[1]),
            product0 & _LOW,
        ]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, _WEYL, strict=True)]
    return np.stack(c, axis=1).astype(np.uint32)


def lanes(state: np.ndarray, count: int) -> np.ndarray:
    """Returns a lane for each of `count` elements: lane i % 4 of block offset + i // 4."""
    seed, offset = (int(v) for v in state)
    return blocks(seed, offset, -(-count // 4)).reshape(-1)[:count]


def uniform(words: np.ndarray) -> np.ndarray:
    """Returns the number in [0, 1) that a lane stands for in float32: its upper 24 bits."""
    return (words >> np.uint32(8)).astype(np.float64) * 2.0**-24


def uniform64(words: np.ndarray) -> np.ndarray:
    """Returns the numbers in [0, 1) that pairs of lanes, shape (n, 2), stand for in float64."""
    high = words[:, 0].astype(np.uint64)
    low = words[:, 1].astype(np.uint64)
    return (((high << np.uint64(32)) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53
