"""Pipelining, deferred failures, waiting, modes and ends of a session."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import grpc
import kernelbox
import numpy as np
import pytest
from conftest import ROOT, used_bytes, wait_for_used_bytes
from kernelbox import errors
from kernelbox._op_methods import PLANS
from kernelbox._proto.kernelbox.v1 import errors_pb2
from kernelbox._stream import _UNANSWERED_OPS

HERE = Path(__file__).name


def here() -> str:
    """Returns "file:line" of the line that calls this."""
    frame = inspect.currentframe().f_back
    return f"{__file__}:{frame.f_lineno}"


def fail(session, name="relu"):
    """Issues an op that fails on the server."""
    return getattr(session, name)(session.tensor([1, 2]))


class TestPipeline:
    def test_ops_return_before_they_have_run(self, session):
        x = session.tensor(np.ones(8, np.float32))
        for _ in range(3000):
            x = session.relu(x)
        np.testing.assert_array_equal(x.numpy(), np.ones(8))

    def test_order_is_kept(self, session):
        x = session.tensor(np.zeros(1, np.float32))
        one = session.tensor(np.ones(1, np.float32))
        for _ in range(2000):
            x = session.add(x, one)
        assert x.item() == 2000

    def test_unanswered_ops_are_bounded(self, session):
        x = session.fill(shape=(128, 64), dtype="float32", value=0)
        most = 0
        for _ in range(3 * _UNANSWERED_OPS // 2):
            session.relu(x)
            most = max(most, session._stream._unanswered)
        assert most <= _UNANSWERED_OPS + 1
        session.sync()
        assert session._stream._unanswered == 0

    def test_threads(self, session):
        """Several threads issue and read at once; each sees its own chain."""
        results = {}

        def work(number):
            x = session.tensor(np.full(4, number, np.float32))
            one = session.tensor(np.ones(4, np.float32))
            for _ in range(300):
                x = session.add(x, one)
            results[number] = x.numpy()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(4):
            np.testing.assert_array_equal(results[number], np.full(4, number + 300))

    def test_garbage_is_freed(self, session, server):
        before = used_bytes(server.target)
        x = session.fill(shape=(1 << 20,), dtype="float32", value=1)
        for _ in range(50):
            x = session.relu(x)
        session.sync()
        assert used_bytes(server.target) - before <= 2 * (4 << 20)
        del x
        # Freed without another op or wait.
        wait_for_used_bytes(server.target, before)

    def test_freed_without_any_op(self, session, server):
        before = used_bytes(server.target)
        x = session.tensor(np.zeros(1 << 20, np.float32))
        assert used_bytes(server.target) == before + (4 << 20)
        del x
        wait_for_used_bytes(server.target, before)

    def test_explicit_free(self, session, server):
        before = used_bytes(server.target)
        with session.fill(shape=(1 << 20,), dtype="float32", value=1) as x:
            assert x.numpy()[0] == 1
        wait_for_used_bytes(server.target, before)
        x.free()  # once more does nothing
        assert "freed" in repr(x)


class TestDeferredFailures:
    def test_raised_by_read_with_its_origin(self, session):
        x = session.tensor([1, 2])
        y, where = session.relu(x), here()
        z = session.relu(y)
        with pytest.raises(errors.InvalidDTypeError) as error:
            z.numpy()
        assert error.value.location == where
        assert error.value.op == "relu"
        assert error.value.op_id > 0
        assert where in str(error.value)
        assert error.value.code is grpc.StatusCode.INVALID_ARGUMENT

    def test_raised_by_shape(self, session):
        with pytest.raises(errors.InvalidDTypeError) as error:
            _ = fail(session).shape
        assert HERE in error.value.location

    def test_sync_raises_one(self, session):
        fail(session)
        with pytest.raises(errors.InvalidDTypeError) as error:
            session.sync()
        assert HERE in error.value.location
        session.sync()  # only once

    def test_sync_raises_several(self, session):
        bad = [fail(session), fail(session, "gelu")]
        session.relu(bad[0])  # does not count: it failed for another's fault
        with pytest.raises(errors.FailedOpsError, match="2 ops failed") as error:
            session.sync()
        assert [e.op for e in error.value.errors] == ["relu", "gelu"]
        assert all(HERE in e.location for e in error.value.errors)
        session.sync()

    def test_sync_does_not_repeat_what_a_read_raised(self, session):
        y = fail(session)
        with pytest.raises(errors.InvalidDTypeError):
            y.numpy()
        session.sync()

    def test_end_of_block_raises(self, server):
        with pytest.raises(errors.InvalidDTypeError), server.connect() as session:
            fail(session)

    def test_end_of_block_does_not_hide_another_error(self, server):
        def block():
            with server.connect() as session:
                fail(session)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            block()

    def test_unrelated_work_goes_on(self, session):
        fail(session)
        y = session.relu(session.tensor([-1.0, 1.0]))
        np.testing.assert_array_equal(y.numpy(), [0, 1])
        with pytest.raises(errors.InvalidDTypeError):
            session.sync()


class TestBlockingMode:
    def test_fails_where_it_is_issued(self, server):
        with server.connect(blocking=True) as session:
            with pytest.raises(errors.InvalidDTypeError) as error:
                fail(session)
            assert HERE in error.value.location
            assert error.value.op == "relu"

    def test_computes(self, server):
        with server.connect(blocking=True) as session:
            x = session.tensor([[1.0, 2.0]], requires_grad=True)
            with session.tape() as tape:
                loss = session.cross_entropy_loss(session.relu(x), session.tensor([0]))
            assert "shape=()" in repr(loss)  # known from the answer
            tape.backward(loss)
            np.testing.assert_allclose(x.grad.numpy(), [[-0.731059, 0.731059]], rtol=1e-5)

    def test_can_be_switched(self, session):
        x = session.relu(session.tensor([1.0]))
        session.blocking = True
        y = session.relu(x)
        session.blocking = False
        assert session.relu(y).item() == 1


class TestArguments:
    def test_numpy_array_instead_of_a_tensor(self, session):
        with pytest.raises(TypeError, match="x must be a Tensor, not a ndarray"):
            session.relu(np.ones(3))

    def test_tensor_instead_of_a_number(self, session):
        x = session.tensor([1.0])
        with pytest.raises(TypeError, match="p is a plain number, not a Tensor"):
            session.dropout(x, p=x)

    def test_unknown_choice(self, session):
        x = session.tensor([[1.0]])
        with pytest.raises(ValueError, match="'none', 'relu', 'gelu', 'gelu_tanh', not 'silu'"):
            session.linear(x, x, activation="silu")

    @pytest.mark.parametrize("activation", ["relu", 2])
    def test_choices(self, session, activation):
        x = session.tensor([[-1.0]])
        w = session.tensor([[1.0]])
        assert session.linear(x, w, activation=activation).item() == 0
        assert session.linear(x, w, activation=None).item() == -1

    def test_unknown_output(self, session):
        x = session.tensor([[1.0]])
        with pytest.raises(ValueError, match="linear has no output 'z', only y, pre_activation"):
            session.linear(x, x, outputs=["z"])

    def test_extra_outputs(self, session):
        x = session.tensor([[2.0]])
        out = session.linear(x, x, activation="relu", outputs=["pre_activation"])
        assert out._fields == ("y", "pre_activation")
        y, pre_activation = out
        assert y.item() == pre_activation.item() == 4
        loss, total = session.cross_entropy_loss(
            session.tensor([[1.0, 1.0]]), session.tensor([1]), outputs="total_weight"
        )
        assert loss.item() == pytest.approx(np.log(2))
        assert total.item() == 1

    def test_attribute_out_of_the_wire_types_range(self, session):
        with pytest.raises(ValueError, match="fill: shape"):
            session.fill(shape=(2**63,), dtype="float32", value=0)

    def test_mistakes_cost_nothing(self, session, server):
        before = used_bytes(server.target)
        for _ in range(10):
            with pytest.raises(TypeError):
                session.relu()
            with pytest.raises(TypeError):
                session.relu(1)
        session.sync()
        assert used_bytes(server.target) == before


class TestRandom:
    def test_seed_repeats(self, session):
        session.manual_seed(5)
        a = [session.uniform(shape=(10,)).numpy() for _ in range(2)]
        session.manual_seed(5)
        b = [session.uniform(shape=(10,)).numpy() for _ in range(2)]
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a[0], a[1])

    def test_own_state(self, session):
        state = session.tensor([5, 0])
        a = session.uniform(shape=(4,), rng_state=state).numpy()
        np.testing.assert_array_equal(state.numpy(), [5, 1])
        session.manual_seed(5)
        np.testing.assert_array_equal(session.uniform(shape=(4,)).numpy(), a)

    def test_sessions_differ_unless_seeded(self, server, session):
        with server.connect() as other:
            a, b = session.uniform(shape=(4,)).numpy(), other.uniform(shape=(4,)).numpy()
        assert not np.array_equal(a, b)


class TestEnds:
    def test_session_goes_with_its_last_reference(self, server):
        before = used_bytes(server.target)
        session = server.connect()
        x = session.tensor(np.zeros(1 << 20, np.float32))
        _ = x.shape
        del x, session
        gc.collect()
        wait_for_used_bytes(server.target, before)

    def test_interpreter_that_ends_without_close(self, server):
        program = textwrap.dedent(
            """
            import sys, kernelbox
            session = kernelbox.connect(sys.argv[1])
            x = session.tensor([1.0] * 1000)
            for _ in range(100):
                x = session.relu(x)
            kept = [session.relu(x) for _ in range(10)]
            print(x.numpy()[0])
            """
        )
        before = used_bytes(server.target)
        result = subprocess.run(
            [sys.executable, "-c", program, server.target],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout == "1.0\n"
        assert result.stderr == ""
        wait_for_used_bytes(server.target, before)

    def test_lease_runs_out(self, server):
        """A client that falls silent loses its session, and is told so."""
        before = used_bytes(server.target)
        session = server.connect(ttl=1.0)
        x = session.tensor(np.zeros(1000, np.float32))
        session._closer.peek()[2][3].set()  # the KeepAlive thread stops
        wait_for_used_bytes(server.target, before, seconds=20)
        with pytest.raises(errors.SessionNotFoundError) as error:
            x.numpy()
        assert error.value.metadata["session_id"] == session.id
        with pytest.raises(errors.SessionNotFoundError):
            session.relu(x)
        session.close()

    def test_lease_is_kept(self, server):
        session = server.connect(ttl=1.0)
        x = session.tensor([1.0])
        threading.Event().wait(3.0)
        assert x.item() == 1
        session.close()

    def test_no_server(self):
        with pytest.raises(errors.UnavailableError, match=r"127\.0\.0\.1:1 can't be reached"):
            kernelbox.connect("127.0.0.1:1")
        assert issubclass(errors.UnavailableError, ConnectionError)


class TestInterface:
    def test_signatures(self):
        def text(name):
            return str(inspect.signature(getattr(kernelbox.Session, name)))

        assert text("linear") == (
            "(self, x, weight, bias=None, *, activation='none', outputs=None)"
        )
        assert text("dropout") == (
            "(self, x, *, rng_state=None, p=0.5, training=True, outputs=None)"
        )
        assert text("uniform") == (
            "(self, *, rng_state=None, shape, dtype='float32', low=0.0, high=1.0)"
        )
        assert text("sgd").startswith("(self, params, grads, lr, step, momentum_buffers=None, *, ")

    def test_help(self):
        text = inspect.getdoc(kernelbox.Session.linear)
        assert "x: tensor; shape (*, in_features)." in text
        assert 'one of "none", "relu", "gelu", "gelu_tanh"' in text
        for name in PLANS:
            method = getattr(kernelbox.Session, name)
            assert method.__doc__
            assert method.__name__ == name

    def test_every_op_of_the_server(self, server):
        assert set(server.info.ops) == set(PLANS)

    def test_every_reason_has_a_class(self):
        for name in errors_pb2.ErrorReason.keys()[1:]:
            reason = name.removeprefix("ERROR_REASON_")
            cls = errors.class_of(reason, grpc.StatusCode.UNKNOWN)
            assert cls is not errors.KernelboxError, reason
            assert cls.reason == reason

    def test_errors_can_be_raised_again(self):
        for cls in errors.KernelboxError._class_of.values():
            error = errors.make(3, cls.reason, "text", {"field": "x"}, op_id=7, op="relu")
            again = error.again()
            assert type(again) is cls
            assert again.metadata == {"field": "x"}
            assert str(again) == "text [op 7, relu]"

    def test_stub_is_current(self):
        script = ROOT / "clients" / "python" / "tools" / "gen_ops_stub.py"
        if not script.exists():
            pytest.skip("only the installed package is here")
        result = subprocess.run([sys.executable, script, "--check"], check=False)
        assert result.returncode == 0, f"run {script}"
