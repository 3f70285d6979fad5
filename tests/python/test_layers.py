"""Each layer against its own reference in float64, which is checked in turn against finite
differences and, where it is installed, PyTorch."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import kernelbox
import numpy as np
import pytest
from check import as_stored, compare_all, field_dtype, fields, on_lists, plain, run
from hypothesis import given
from hypothesis import strategies as st
from kernelbox._op_methods import PLANS
from kernelbox.dtypes import FLOATING as FLOATING_DTYPES
from layers import all_layers
from layers.case import FLOATING, Approx, Draw, Example, Layer
from layers.cast import convert

LAYERS = all_layers()
CELLS = [(layer, dtype) for layer in LAYERS.values() for dtype in layer.tested]
BACKWARD_CELLS = [(layer, d) for layer, d in CELLS if layer.backward and d in FLOATING]


def cell_id(value):
    return value.op if isinstance(value, Layer) else str(value)


def backward_name(layer: Layer) -> str:
    return f"{layer.op}_backward"


def test_every_op_has_a_reference():
    covered = {op for layer in LAYERS.values() for op in (layer.op, layer.op + "_backward")}
    assert set(PLANS) <= covered, "an op without a test: add tests/python/layers/<op>.py"
    for name in PLANS:
        if name.endswith("_backward"):
            assert LAYERS[name.removesuffix("_backward")].backward is not None


def store(layer: Layer, example: Example, dtype: str):
    """Returns the inputs as the server gets them."""
    return {
        name: on_lists(
            lambda v, name=name: as_stored(np.asarray(v), field_dtype(layer, example, name, dtype)),
            value,
        )
        for name, value in example.inputs.items()
    }


def refuses_float64(layer: Layer, dtype: str, backend: str) -> bool:
    return dtype == "float64" and backend == "cuda" and not layer.float64_on_cuda


def run_and_sync(session, op: str, stored, example: Example) -> None:
    """Runs an op for its failure, which shows in its outputs or, without any, at sync."""
    # A gradient may be asked for only of an input that was given.
    absent = {"d_" + name for name, value in stored.items() if value is None}
    outputs = [field.name for field in PLANS[op].outputs if field.name not in absent]
    run(session, op, stored, example.attributes, outputs)
    session.sync()


def check_forward(session, layer: Layer, example: Example, dtype: str) -> None:
    stored = store(layer, example, dtype)
    expected = layer.forward(fields(layer.op, stored, example))
    got = run(session, layer.op, stored, example.attributes, list(expected))
    compare_all(layer, example, got, expected, dtype)


def backward_inputs(layer: Layer, example: Example, dtype: str, random: np.random.Generator):
    """Returns the inputs of the backward op: forward's, its outputs and gradients coming in."""
    stored = store(layer, example, dtype)
    outputs = {
        name: as_stored(plain(value), field_dtype(layer, example, name, dtype))
        for name, value in layer.forward(fields(layer.op, stored, example)).items()
    }
    inputs = {}
    for field in PLANS[backward_name(layer)].inputs:
        source = field.name.removeprefix("d_")
        if field.name in stored:
            inputs[field.name] = stored[field.name]
        elif field.name in outputs:
            inputs[field.name] = outputs[field.name]
        else:
            gradient = random.normal(size=outputs[source].shape)
            inputs[field.name] = as_stored(
                np.asarray(gradient), field_dtype(layer, example, source, dtype)
            )
    return inputs


def check_backward(session, layer: Layer, example: Example, dtype: str, random) -> None:
    name = backward_name(layer)
    output = PLANS[layer.op].required_outputs[0]
    if field_dtype(layer, example, output, dtype) not in FLOATING_DTYPES:
        return  # integers have no gradient
    inputs = backward_inputs(layer, example, dtype, random)
    expected = layer.backward(fields(name, inputs, example))
    got = run(session, name, inputs, example.attributes, list(expected))
    compare_all(layer, example, got, expected, dtype)


@pytest.mark.parametrize(("layer", "dtype"), CELLS, ids=cell_id)
@given(data=st.data())
def test_forward(shared_session, backend, layer, dtype, data):
    example = layer.draw(Draw(data, dtype))
    if refuses_float64(layer, dtype, backend):
        stored = store(layer, example, dtype)
        with pytest.raises(kernelbox.errors.UnsupportedError):
            run_and_sync(shared_session, layer.op, stored, example)
        return
    check_forward(shared_session, layer, example, dtype)


@pytest.mark.parametrize(("layer", "dtype"), BACKWARD_CELLS, ids=cell_id)
@given(data=st.data())
def test_backward(shared_session, backend, layer, dtype, data):
    draw = Draw(data, dtype)
    example = layer.draw(draw)
    if refuses_float64(layer, dtype, backend):
        inputs = backward_inputs(layer, example, dtype, draw.random)
        with pytest.raises(kernelbox.errors.UnsupportedError):
            run_and_sync(shared_session, backward_name(layer), inputs, example)
        return
    check_backward(shared_session, layer, example, dtype, draw.random)


@pytest.mark.parametrize(
    ("layer", "dtype"), [(la, d) for la, d in CELLS if la.special], ids=cell_id
)
def test_special_values(session, backend, layer, dtype):
    if refuses_float64(layer, dtype, backend):
        pytest.skip("cuda does not compute in float64")
    for example in layer.special:
        check_forward(session, layer, example, dtype)
        if layer.backward and dtype in FLOATING and "x" not in example.dtypes:
            check_backward(session, layer, example, dtype, np.random.default_rng(0))


def slope(forward, inputs, name, direction, weights, step):
    """Returns the derivative of sum(weights * output) along a direction, by differences."""

    def loss(sign):
        moved = dict(inputs)
        moved[name] = inputs[name] + sign * step * direction
        return float(np.sum(weights * forward(moved)))

    return (loss(1) - loss(-1)) / (2 * step)


FINITE = [(la, name) for la in LAYERS.values() for name in la.differentiable]


@pytest.mark.parametrize(("layer", "name"), FINITE, ids=cell_id)
@given(data=st.data())
def test_gradient_by_finite_differences(shared_session, backend, layer, name, data):
    """On cpu the server's own forward and backward in float64, elsewhere the references'."""
    draw = Draw(data, "float64")
    example = layer.draw(draw)
    if example.inputs.get(name) is None:
        return
    stored = store(layer, example, "float64")
    output = PLANS[layer.op].required_outputs[0]
    inputs = backward_inputs(layer, example, "float64", draw.random)
    gradient_name = "d_" + name

    def forward(moved):
        if backend == "cpu":
            return run(shared_session, layer.op, moved, example.attributes, [output])[output]
        return plain(layer.forward(fields(layer.op, moved, example))[output])

    if backend == "cpu":
        gradient = run(
            shared_session,
            backward_name(layer),
            inputs,
            example.attributes,
            [gradient_name],
        )[gradient_name]
    else:
        reference = layer.backward(fields(backward_name(layer), inputs, example))
        gradient = plain(reference[gradient_name])
    direction = draw.normal(gradient.shape)
    weights = inputs["d_" + output].astype(np.float64)
    if not np.isfinite(forward(stored)).all():
        return  # the mean over no target
    step = 1e-6
    measured = slope(forward, stored, name, direction, weights, step)
    expected = float(np.sum(gradient * direction))
    size = float(np.sum(np.abs(gradient * direction))) + float(np.sum(np.abs(weights)))
    # Differences are off by rounding, epsilon / step = 2e-10 of the values, and by step^2 times the
    # third derivative; a kink within the step (chance about 1e-6 an element) is not expected.
    assert abs(measured - expected) <= 1e-6 * (1 + size)


TORCH = [la for la in LAYERS.values() if la.torch]


@pytest.mark.parametrize("layer", TORCH, ids=cell_id)
@given(data=st.data())
def test_same_as_torch(shared_session, layer, data):
    """The server in float32 against PyTorch in float64 from the same numbers."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: not compared with it")
    draw = Draw(data, "float32")
    example = layer.draw(draw)
    stored = store(layer, example, "float32")
    reference = fields(layer.op, stored, example)
    tensors = {}
    for field in PLANS[layer.op].inputs:
        array = getattr(reference, field.name)
        tensors[field.name] = None if array is None else torch.from_numpy(np.array(array))
        if field.name in layer.differentiable and array is not None:
            tensors[field.name].requires_grad_()
    attributes = {f.name: getattr(reference, f.name) for f in PLANS[layer.op].attributes}
    theirs = layer.torch(SimpleNamespace(**tensors, **attributes))
    if theirs is None:
        return
    output = PLANS[layer.op].required_outputs[0]

    expected = layer.forward(reference)
    replaced = {output: with_value(expected[output], theirs.detach())}
    got = run(shared_session, layer.op, stored, example.attributes, [output])
    compare_all(layer, example, {output: got[output]}, replaced, "float32")

    if not layer.differentiable or not torch.isfinite(theirs).all():
        return
    inputs = backward_inputs(layer, example, "float32", draw.random)
    theirs.backward(torch.from_numpy(inputs["d_" + output].astype(np.float64)))
    expected = layer.backward(fields(backward_name(layer), inputs, example))
    replaced = {
        "d_" + name: with_value(expected["d_" + name], tensors[name].grad)
        for name in layer.differentiable
        if tensors[name] is not None
    }
    got = run(shared_session, backward_name(layer), inputs, example.attributes, list(replaced))
    compare_all(layer, example, got, replaced, "float32")


def with_value(approx, tensor):
    """Returns a reference result with PyTorch's value in place of its own."""
    array = tensor.numpy()
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    return replace(approx, value=array) if isinstance(approx, Approx) else array


def test_rounding_of_the_reference():
    """The reference's own rounding to bfloat16 is ml_dtypes', but for double rounding."""
    import ml_dtypes

    values = np.random.default_rng(0).normal(size=10000).astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(
        convert(values, "bfloat16"), values.astype(ml_dtypes.bfloat16).astype(np.float64)
    )
