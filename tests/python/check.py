"""Runs one op on the server and compares what comes back with a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import kernelbox
import numpy as np
from kernelbox._op_methods import PLANS
from kernelbox._plan import REQUIRED
from kernelbox.dtypes import FLOATING, as_dtype
from layers.case import ACCUMULATOR, Approx, Example, Layer
from layers.cast import convert


def field_dtype(layer: Layer, example: Example, name: str, dtype: str) -> np.dtype:
    """Returns the dtype of a floating field; a gradient has that of the field it is of."""
    base = name.removeprefix("d_")
    rule = example.dtypes.get(base) or layer.dtypes.get(base) or dtype
    if rule == ACCUMULATOR:
        rule = "float64" if dtype == "float64" else "float32"
    elif rule.startswith("attribute "):
        rule = example.attributes[rule.removeprefix("attribute ")]
    return as_dtype(rule)


def on_lists(function, value: Any) -> Any:
    """Applies a function to an array or to each of a list of arrays; None stays None."""
    if value is None:
        return None
    return [function(v) for v in value] if isinstance(value, list) else function(value)


def as_stored(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns an array as the server gets it: floating ones in `dtype`, others as they are."""
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):
        return convert(array, dtype).astype(dtype)


def as_reference(array: np.ndarray) -> np.ndarray:
    """Returns a stored array as the reference gets it: floating ones in float64."""
    return array.astype(np.float64) if array.dtype in FLOATING else array


def plain(value: Any) -> Any:
    """Returns the value of a reference result, whatever it says of its exactness."""
    return on_lists(lambda v: np.asarray(v.value if isinstance(v, Approx) else v), value)


def fields(plan_name: str, stored: Mapping[str, Any], example: Example) -> SimpleNamespace:
    """Returns what a reference function gets."""
    plan = PLANS[plan_name]
    values = {f.name: on_lists(as_reference, stored.get(f.name)) for f in plan.inputs}
    for f in plan.attributes:
        default = None if f.default is REQUIRED else f.default
        values[f.name] = example.attributes.get(f.name, default)
    return SimpleNamespace(**values, dtypes=example.dtypes)


def run(
    session: kernelbox.Session,
    name: str,
    stored: Mapping[str, Any],
    attributes: Mapping[str, Any],
    wanted: Sequence[str],
) -> dict[str, Any]:
    """Uploads the inputs, runs the op and returns the wanted outputs and in-out fields."""
    plan = PLANS[name]
    inputs = {f.name: on_lists(session.tensor, stored.get(f.name)) for f in plan.inputs}
    known = {f.name for f in plan.attributes}
    options = {key: value for key, value in attributes.items() if key in known}
    if plan.optional_outputs:
        options["outputs"] = tuple(n for n in wanted if n in plan.optional_outputs)
    result = getattr(session, name)(**inputs, **options)
    if isinstance(result, kernelbox.Tensor):
        result = dict.fromkeys(plan.required_outputs or options["outputs"], result)
    else:
        result = {} if result is None else result._asdict()
    for f in plan.inputs:
        if f.is_in_out and f.name in wanted:
            result[f.name] = inputs[f.name]
    return {n: on_lists(lambda t: t.numpy(), value) for n, value in result.items()}


def compare(name: str, got: np.ndarray, expected: Any, dtype: np.dtype, tested: str) -> None:
    """Fails unless `got` is within what the reference allows; `dtype` is the output's."""
    approx = expected if isinstance(expected, Approx) else Approx(np.asarray(expected), 0.0)
    value = np.asarray(approx.value)
    assert got.shape == value.shape, f"{name}: shape {got.shape}, expected {value.shape}"
    if value.dtype.kind in "iub":
        np.testing.assert_array_equal(got, value, err_msg=name)
        return
    assert got.dtype == dtype, f"{name}: dtype {got.dtype}, expected {dtype}"
    exact = not isinstance(expected, Approx)
    rounded = convert(value, dtype)
    got = got.astype(np.float64)
    if exact:
        np.testing.assert_array_equal(got, rounded, err_msg=name)
        return
    scale = np.abs(value) if approx.scale is None else approx.scale
    computed = "float64" if tested == "float64" else "float32"
    with np.errstate(invalid="ignore"):
        allowed = (
            epsilon(dtype) * np.abs(rounded)
            + epsilon(as_dtype(tested)) * approx.stored
            + epsilon(as_dtype(computed)) * approx.steps * scale
            + tiniest(dtype)
        )
        off = np.abs(got - rounded)
        near = np.isfinite(rounded) & (off <= allowed)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded)) | near
    if not same.all():
        far = np.where(same, 0.0, np.nan_to_num(off, nan=np.inf))
        worst = np.unravel_index(np.argmax(far), same.shape)
        bound = np.broadcast_to(allowed, same.shape)[worst]
        raise AssertionError(
            f"{name}: {(~same).sum()} of {same.size} are wrong; at {[int(i) for i in worst]} got "
            f"{got[worst]!r}, expected {value[worst]!r}, allowed {bound:.3g} off"
        )


def compare_all(
    layer: Layer,
    example: Example,
    got: Mapping[str, Any],
    expected: Mapping[str, Any],
    dtype: str,
) -> None:
    """Compares every field of a result, lists element by element."""
    assert set(got) == set(expected)
    for name, value in expected.items():
        wanted = field_dtype(layer, example, name, dtype)
        if isinstance(value, list):
            assert len(got[name]) == len(value)
            for index, item in enumerate(value):
                compare(f"{name}[{index}]", got[name][index], item, wanted, dtype)
        else:
            compare(name, got[name], value, wanted, dtype)


def epsilon(dtype: np.dtype) -> float:
    """Returns the distance from 1 to the next larger number: twice the error of one rounding."""
    return {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[
        dtype.name
    ]


def tiniest(dtype: np.dtype) -> float:
    """Returns the smallest subnormal number, below which nothing is told apart; normal for
    float32 and bfloat16, whose subnormals a device may flush."""
    return {"float64": 5e-324, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}[
        dtype.name
    ]
