"""Gradients found by the naming rule alone."""

from __future__ import annotations

import gc

import kernelbox
import numpy as np
import pytest
from conftest import used_bytes, wait_for_used_bytes
from kernelbox import errors
from kernelbox._op_methods import PLANS
from kernelbox.tape import make_backward_plans


def leaf(session, values):
    return session.tensor(values, dtype="float32", requires_grad=True)


def test_every_backward_message_follows_the_rule():
    plans = make_backward_plans(PLANS)
    named = {name.removesuffix("_backward") for name in PLANS if name.endswith("_backward")}
    assert set(plans) == named
    assert plans["linear"].reads == {"x", "weight", "bias", "pre_activation"}
    assert plans["dropout"].reads == {"rng_used"}


def test_chain(session):
    x = session.tensor([[1.0, -2.0, 3.0]])
    w = leaf(session, [[1.0, 1, 1], [1.0, -1, 1]])
    with session.tape() as tape:
        y = session.relu(session.linear(x, w))
        z = session.cross_entropy_loss(y, session.tensor([1]))
    assert y.requires_grad
    assert z.requires_grad
    tape.backward(z)
    p = np.exp([2.0, 6.0]) / np.exp([2.0, 6.0]).sum() - [0, 1]
    np.testing.assert_allclose(w.grad.numpy(), np.outer(p, [1, -2, 3]), rtol=1e-5)
    assert x.grad is None


def test_method_of_the_loss(session):
    x = leaf(session, [[1.0, -1.0]])
    with session.tape():
        loss = session.cross_entropy_loss(x, session.tensor([0]))
    loss.backward()
    assert x.grad.shape == (1, 2)


def test_several_uses_add_up(session):
    x = leaf(session, [1.0, 2.0])
    with session.tape() as tape:
        y = session.add(x, x, alpha=3)
        z = session.add(y, session.relu(x))
    tape.backward(z, session.tensor([1.0, 10.0]))
    np.testing.assert_array_equal(x.grad.numpy(), [5, 50])


def test_grad_accumulates_over_calls(session):
    x = leaf(session, [1.0, 2.0])
    for _ in range(3):
        with session.tape() as tape:
            y = session.relu(x)
        tape.backward(y, session.tensor([1.0, 1.0]))
    np.testing.assert_array_equal(x.grad.numpy(), [3, 3])


def test_gradients_leaves_grad_alone(session):
    x, unused = leaf(session, [1.0, -2.0]), leaf(session, [1.0])
    with session.tape() as tape:
        y = session.relu(x)
        z = session.add(y, y)
    by_x, by_y, by_unused = tape.gradients(z, [x, y, unused], session.tensor([1.0, 1.0]))
    np.testing.assert_array_equal(by_x.numpy(), [2, 0])
    np.testing.assert_array_equal(by_y.numpy(), [2, 2])
    assert by_unused is None
    assert x.grad is None


def test_only_what_is_asked_for_is_computed(session, monkeypatch):
    issued = []
    issue = session._issue_named

    def spy(plan, tensors, attributes, outputs):
        issued.append((plan.name, tuple(outputs)))
        return issue(plan, tensors, attributes, outputs)

    monkeypatch.setattr(session, "_issue_named", spy)
    x = session.tensor([[1.0, 2.0]])
    w, b = session.tensor([[1.0, 2.0]]), leaf(session, [0.0])
    with session.tape() as tape:
        y = session.linear(x, w, b)
    tape.backward(y, session.tensor([[1.0]]))
    assert issued[-1] == ("linear_backward", ("d_bias",))
    assert w.grad is None


def test_nothing_is_recorded_without_need(session):
    x = session.tensor([1.0])
    with session.tape() as tape:
        session.relu(x)
        y = session.relu(leaf(session, [1.0]))
        with session.no_grad():
            z = session.relu(y)
    assert len(tape._records) == 1
    assert not z.requires_grad
    outside = session.relu(y)
    assert not outside.requires_grad


def test_dropout_backward_draws_the_same_mask(session):
    session.manual_seed(3)
    x = leaf(session, np.ones(1000))
    with session.tape() as tape:
        y = session.dropout(x, p=0.4)
    tape.backward(y, session.tensor(np.ones(1000), dtype="float32"))
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert 450 < np.count_nonzero(y.numpy()) < 750


def test_through_a_cast(session):
    x = leaf(session, [1.0, -2.0])
    with session.tape() as tape:
        y = session.relu(session.cast(x, dtype="bfloat16"))
    tape.backward(y, session.tensor([2.0, 2.0], dtype="bfloat16"))
    assert x.grad.dtype == kernelbox.float32
    np.testing.assert_array_equal(x.grad.numpy(), [2, 0])


def test_broadcast_bias(session):
    x, b = leaf(session, np.ones((3, 2))), leaf(session, [1.0, 2.0])
    with session.tape() as tape:
        y = session.add(x, b)
    tape.backward(y, session.tensor(np.ones((3, 2)), dtype="float32"))
    np.testing.assert_array_equal(b.grad.numpy(), [3, 3])


class TestMistakes:
    def test_not_a_scalar(self, session):
        with session.tape() as tape:
            y = session.relu(leaf(session, [1.0, 2.0]))
        with pytest.raises(errors.GradientError, match=r"shape \(2,\)"):
            tape.backward(y)

    def test_not_recorded(self, session):
        x = leaf(session, [1.0])
        y = session.relu(x)
        with pytest.raises(errors.GradientError, match="no tape recorded it"):
            y.backward()
        with pytest.raises(errors.GradientError, match="does not come from an op"):
            x.backward()
        with session.tape() as tape:
            session.relu(x)
        with pytest.raises(errors.GradientError, match="not computed, while this tape"):
            tape.backward(y)

    def test_twice(self, session):
        x = leaf(session, [1.0])
        with session.tape() as tape:
            y = session.relu(x)
        tape.backward(y, retain=True)
        tape.backward(y)
        np.testing.assert_array_equal(x.grad.numpy(), [2])
        with pytest.raises(errors.GradientError, match="retain=True"):
            tape.backward(y)

    def test_updated_in_place(self, session):
        w = leaf(session, [[1.0]])
        optimizer = kernelbox.optim.SGD([w], lr=0.1)
        with session.tape() as tape:
            x = leaf(session, [[1.0]])
            y = session.linear(x, w)
        w.grad = session.tensor([[1.0]])
        optimizer.step()
        with pytest.raises(errors.GradientError, match=r"weight of linear .*updated in place"):
            tape.backward(y)

    def test_output_updated_in_place(self, session):
        with session.tape():
            y = session.relu(leaf(session, [1.0]))
            lr, step = session.tensor(1.0), session.tensor(0)
            with pytest.raises(errors.GradientError, match="sgd would update params in place"):
                session.sgd([y], [y], lr, step)
        assert step.item() == 0

    def test_freed(self, session):
        x = leaf(session, [1.0])
        with session.tape() as tape:
            h = session.relu(x)
            y = session.relu(h)
        h.free()
        with pytest.raises(errors.UnknownHandleError, match="freed"):
            tape.backward(y)

    def test_no_gradient_for_that_input(self, session):
        weight = leaf(session, [1.0, 1.0])
        x = session.tensor([[1.0, 2.0]])
        with session.tape() as tape:
            y = session.cross_entropy_loss(x, session.tensor([0]), weight)
        with pytest.raises(errors.GradientError, match="no gradient for weight"):
            tape.backward(y)

    def test_op_without_backward(self, session, monkeypatch):
        plans = {k: v for k, v in session._backward_plans.items() if k != "relu"}
        monkeypatch.setattr(session, "_backward_plans", plans)
        with session.tape() as tape:
            y = session.relu(leaf(session, [1.0]))
        with pytest.raises(errors.GradientError, match=r"relu .*test_tape.py.* has no backward"):
            tape.backward(y)

    def test_integers_have_no_gradient(self, session):
        with pytest.raises(TypeError, match="int64"):
            session.tensor([1, 2], requires_grad=True)

    def test_requires_grad_of_an_output(self, session):
        with session.tape():
            y = session.relu(leaf(session, [1.0]))
        with pytest.raises(ValueError, match="follows from"):
            y.requires_grad = False


class TestMemory:
    SIDE = 512
    BYTES = 4 * SIDE * SIDE

    def test_intermediates_go_as_soon_as_they_can(self, session, server):
        """A chain of ops whose backward reads only the mask's seed keeps no activation."""
        x = leaf(session, np.ones((self.SIDE, self.SIDE)))
        session.sync()
        start = used_bytes(server.target)
        with session.tape() as tape:
            y = x
            for _ in range(20):
                y = session.dropout(y, p=0.1)
        session.sync()
        grown = used_bytes(server.target) - start
        assert grown < 2 * self.BYTES + 20 * 4096
        ones = session.fill(shape=(self.SIDE, self.SIDE), dtype="float32", value=1)
        tape.backward(y, ones)
        session.sync()

    def test_nothing_is_left_after_backward(self, session, server):
        x = leaf(session, np.ones((self.SIDE, self.SIDE)))
        session.sync()
        start = used_bytes(server.target)
        gc.disable()  # reference counts alone have to do it
        try:
            with session.tape() as tape:
                y = x
                for _ in range(10):
                    y = session.relu(y)
            ones = session.fill(shape=(self.SIDE, self.SIDE), dtype="float32", value=1)
            tape.backward(y, ones)
            del y, ones
            x.grad = None
            session.sync()
            wait_for_used_bytes(server.target, start)
        finally:
            gc.enable()

    def test_a_tape_that_is_never_used(self, session, server):
        x = leaf(session, np.ones((self.SIDE, self.SIDE)))
        session.sync()
        start = used_bytes(server.target)
        gc.disable()
        try:
            with session.tape() as tape:
                y = session.relu(session.relu(x))
            del y, tape
            session.sync()
            wait_for_used_bytes(server.target, start)
        finally:
            gc.enable()


def test_optimizer_options(session):
    w = leaf(session, [1.0])
    optimizer = kernelbox.optim.SGD([w], lr=0.5)
    with pytest.raises(ValueError, match="parameter 0 has no gradient"):
        optimizer.step()
    w.grad = session.tensor([1.0])
    optimizer.step()
    np.testing.assert_array_equal(w.numpy(), [0.5])
    optimizer.lr = 0.25
    assert optimizer.lr == 0.25
    optimizer.step()
    np.testing.assert_array_equal(w.numpy(), [0.25])
    optimizer.zero_grad()
    assert w.grad is None
    with pytest.raises(ValueError, match="at least one"):
        kernelbox.optim.SGD([])
    with pytest.raises(ValueError, match="float64"):
        kernelbox.optim.SGD([w, session.tensor([1.0], dtype="float64")])


COMMON = {"lr": 0.05, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {"betas": (0.8, 0.99), "amsgrad": False}),
        ("AdamW", {"betas": (0.8, 0.99), "amsgrad": True}),
        ("SGD", {"momentum": 0.9, "nesterov": False}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("SGD", {"maximize": True}),
    ],
)
def test_same_steps_as_torch(session, name, options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: not compared with it")
    start = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    grads = np.random.default_rng(1).normal(size=(10, 4, 3)).astype(np.float32)
    ours = leaf(session, start)
    theirs = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    optimizer = getattr(kernelbox.optim, name)([ours], **COMMON, **options)
    reference = getattr(torch.optim, name)([theirs], **COMMON, **options)
    for grad in grads:
        ours.grad = session.tensor(grad)
        theirs.grad = torch.from_numpy(grad.astype(np.float64))
        optimizer.step()
        reference.step()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
