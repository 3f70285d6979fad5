"""Arrays of every kind go up and come back bit for bit."""

from __future__ import annotations

import kernelbox
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelbox import errors
from layers.case import Draw

DTYPES = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool"]


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def random_bits(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an array of any bit patterns: NaNs of all payloads, infinities, subnormals."""
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape))
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_round_trip(shared_session, dtype, data):
    draw = Draw(data, dtype)
    array = random_bits(draw.random, draw.shape(0, 5), kernelbox.dtypes.as_dtype(dtype))
    tensor = shared_session.tensor(array)
    assert tensor.shape == array.shape
    assert tensor.dtype == array.dtype
    back = tensor.numpy()
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    assert bits(back) == bits(array)


def test_larger_than_a_chunk(session):
    count = session.limits.preferred_chunk_bytes * 3 // 4 + 17
    array = np.random.default_rng(0).integers(0, 2**31, count, np.int32)
    np.testing.assert_array_equal(session.tensor(array).numpy(), array)


def test_nan_payloads(session):
    words = np.array([0x7F800001, 0x7FC12345, 0xFFC00001, 0xFFBFFFFF], np.uint32)
    assert bits(session.tensor(words.view(np.float32)).numpy()) == bits(words)
    halves = np.array([0x7C01, 0x7E55, 0xFE01], np.uint16)
    assert bits(session.tensor(halves.view(np.float16)).numpy()) == bits(halves)
    brains = np.array([0x7F81, 0x7FC5, 0xFF81], np.uint16)
    assert bits(session.tensor(brains.view(ml_dtypes.bfloat16)).numpy()) == bits(brains)
    doubles = np.array([0x7FF0000000000001, 0xFFF8000012345678], np.uint64)
    assert bits(session.tensor(doubles.view(np.float64)).numpy()) == bits(doubles)
    # The other byte order too: swapped, never converted.
    swapped = words.astype(">u4").view(">f4")
    assert bits(session.tensor(swapped).numpy()) == bits(words)


ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "array",
    [
        ARRAY[:, ::2],
        ARRAY[::-1],
        ARRAY.T,
        np.asfortranarray(ARRAY),
        np.broadcast_to(np.float32(3), (2, 5)),
        np.frombuffer(b"x" + ARRAY.tobytes(), np.uint8)[1:].view(np.float32),
        np.ma.masked_array(ARRAY).data,
        ARRAY[1:1],
        ARRAY[0, 0, 0],
        np.array(5.0, np.float32),
        np.zeros((3, 0, 2), np.int64),
    ],
    ids=[
        "strided",
        "reversed",
        "transposed",
        "fortran",
        "stride 0",
        "unaligned",
        "masked",
        "empty",
        "scalar",
        "0-d",
        "empty 3-d",
    ],
)
def test_any_memory_layout(session, array):
    back = session.tensor(array).numpy()
    assert back.shape == np.shape(array)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dtype", [">f4", ">f2", ">f8", ">i4", ">i8"])
def test_big_endian(session, dtype):
    array = np.array([1.5, -2.0, 1e4], dtype) if "f" in dtype else np.array([1, -2], dtype)
    tensor = session.tensor(array)
    assert tensor.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_float64_stays(session, backend):
    x = session.tensor(np.array([1.0, np.pi]))
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x.numpy(), [1.0, np.pi])
    y = session.relu(x)
    if backend == "cuda":
        with pytest.raises(errors.UnsupportedError) as error:
            y.numpy()
        assert error.value.metadata["field"] == "x"
        assert "float64" in error.value.metadata["given"]
    else:
        np.testing.assert_array_equal(y.numpy(), [1.0, np.pi])


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, "float32"),
        (3, "int64"),
        (True, "bool"),
        ([1.0, 2], "float32"),
        ([[1, 2], [3, 4]], "int64"),
        ([True, False], "bool"),
        ([], "float32"),
        ((1, 2, 3), "int64"),
        (range(3), "int64"),
        (np.float16(1), "float16"),
        (np.int32(1), "int32"),
    ],
)
def test_python_values(session, data, dtype):
    tensor = session.tensor(data)
    assert tensor.dtype.name == dtype
    np.testing.assert_array_equal(tensor.numpy(), np.asarray(data, dtype))


def test_dtype_argument(session):
    for dtype in (kernelbox.bfloat16, "bfloat16", ml_dtypes.bfloat16, np.dtype("bfloat16")):
        tensor = session.tensor([1.0, 2.5], dtype=dtype)
        assert tensor.dtype == kernelbox.bfloat16
        assert tensor.numpy().dtype == ml_dtypes.bfloat16
    assert session.tensor([1.0], dtype=float).dtype == np.float64
    assert session.tensor([1, 2], dtype=np.uint8).numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        np.array([1j]),
        np.array(["text"]),
        np.array([object()]),
        np.array([1], np.int16),
        np.array([1], np.uint64),
        np.array(["2026-01-01"], "datetime64[D]"),
        [1 + 2j],
        ["a"],
    ],
)
def test_elements_no_tensor_can_have(session, data):
    with pytest.raises(errors.InvalidDTypeError, match="float32, float16, bfloat16") as error:
        session.tensor(data)
    assert isinstance(error.value, TypeError)


def test_ragged_list(session):
    with pytest.raises(errors.InvalidShapeError):
        session.tensor([[1, 2], [3]])


def test_tensor_is_like_an_array(session):
    x = session.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    assert x.ndim == 2
    assert x.size == 4
    assert x.nbytes == 16
    np.testing.assert_array_equal(np.asarray(x), [[1, 2], [3, 4]])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="one element"):
        x.item()
    one = session.tensor(2.5)
    assert one.item() == 2.5
    assert isinstance(one.item(), float)
    assert float(one) == 2.5
    assert int(one) == 2
    assert bool(one)
    assert session.tensor([[7]]).item() == 7
    assert session.tensor(1.5, dtype="bfloat16").item() == 1.5
    with pytest.raises(TypeError):
        len(one)


def test_what_is_known_of_an_op_output(session):
    x = session.tensor(np.zeros((2, 3), np.float32))
    y = session.relu(x)
    assert "shape" not in repr(y)
    assert y.shape == (2, 3)
    assert y.dtype == np.float32
    assert "(2, 3)" in repr(y)
    # The same computation again: known without asking.
    z = session.relu(session.tensor(np.ones((2, 3), np.float32)))
    assert "(2, 3)" in repr(z)
    assert "shape" not in repr(session.relu(session.tensor(np.ones((3, 3), np.float32))))
