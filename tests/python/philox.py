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


def units(state: np.ndarray, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, int]:
    """Returns the numbers in [0, 1) of that many elements, and how many blocks they take.

    Float64 takes the upper 53 of 64 bits, whose lower half is the first of two lanes; other dtypes
    take the upper 24 bits of one lane.
    """
    count = int(np.prod(shape))
    if dtype == "float64":
        needed = -(-count // 2)
        words = blocks(int(state[0]), int(state[1]), needed).astype(np.uint64)
        pairs = words.reshape(-1, 2)[:count]
        long = (pairs[:, 1] << _SHIFT) | pairs[:, 0]
        return ((long >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape), needed
    words = lanes(state, count)
    numbers = (words >> np.uint32(8)).astype(np.float64) * 2.0**-24
    return numbers.reshape(shape), -(-count // 4)
