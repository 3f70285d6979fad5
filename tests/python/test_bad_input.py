"""Whatever a client gets wrong has a clear error, costs nothing and leaves the session usable."""

from __future__ import annotations

from pathlib import Path

import kernelbox
import numpy as np
import pytest
import raw
import xxhash
from kernelbox import errors
from kernelbox._proto.kernelbox.v1 import layers_pb2, service_pb2

UNUSED = 10**9  # no test creates so many handles

pytestmark = pytest.mark.usefixtures("unharmed")


def zeros(session, *shape):
    return session.tensor(np.zeros(shape), dtype="float32")


def metadata(error: pytest.ExceptionInfo) -> dict[str, str]:
    return error.value.metadata


class TestHandles:
    def test_unknown(self, session):
        y = session.relu(raw.forge(session, UNUSED))
        with pytest.raises(errors.UnknownHandleError) as error:
            y.numpy()
        assert metadata(error)["field"] == "x"
        assert metadata(error)["handle"] == str(UNUSED)
        assert error.value.reason == "UNKNOWN_HANDLE"
        assert error.value.op == "relu"
        assert Path(error.value.location.rpartition(":")[0]) == Path(__file__)
        assert isinstance(error.value, KeyError)

    def test_unknown_by_every_call(self, session):
        tensor = raw.forge(session, UNUSED)
        with pytest.raises(errors.UnknownHandleError):
            tensor.numpy()
        with pytest.raises(errors.UnknownHandleError):
            _ = tensor.shape
        request = service_pb2.FreeRequest(session_id=session.id, handles=[UNUSED])
        with pytest.raises(errors.UnknownHandleError) as error:
            raw.call(session, "Free", request)
        assert metadata(error)["handle"] == str(UNUSED)

    def test_free_of_an_unknown_handle_frees_the_known_ones(self, session):
        x = session.tensor([1.0])
        request = service_pb2.FreeRequest(session_id=session.id, handles=[UNUSED, x.handle])
        with pytest.raises(errors.UnknownHandleError):
            raw.call(session, "Free", request)
        with pytest.raises(errors.UnknownHandleError):
            x.numpy()

    def test_freed(self, session):
        x = session.tensor([1.0])
        x.free()
        with pytest.raises(errors.UnknownHandleError, match="freed") as error:
            session.relu(x)
        assert metadata(error)["field"] == "x"
        with pytest.raises(errors.UnknownHandleError, match="freed"):
            x.numpy()
        session.sync()
        with pytest.raises(errors.UnknownHandleError) as error:
            session.relu(raw.forge(session, x.handle)).numpy()
        assert metadata(error)["handle"] == str(x.handle)

    def test_duplicate_output(self, session):
        x, y = session.tensor([-1.0]), session.tensor([7.0])
        with pytest.raises(errors.DuplicateHandleError) as error:
            raw.run(session, relu={"x": x.handle, "y": y.handle})
        assert metadata(error)["field"] == "y"
        assert metadata(error)["handle"] == str(y.handle)
        np.testing.assert_array_equal(y.numpy(), [7])

    def test_duplicate_upload(self, session):
        x = session.tensor([7.0])
        data = np.zeros(1, np.float32).tobytes()
        with pytest.raises(errors.DuplicateHandleError) as error:
            raw.upload(session, x.handle, (1,), [data], xxhash.xxh3_64_intdigest(data))
        assert metadata(error)["handle"] == str(x.handle)
        np.testing.assert_array_equal(x.numpy(), [7])

    def test_one_handle_for_two_outputs(self, session):
        x = session.tensor([1.0])
        with pytest.raises(errors.DuplicateHandleError):
            raw.run(
                session,
                dropout={
                    "x": x.handle,
                    "rng_state": session.rng.handle,
                    "y": UNUSED,
                    "rng_used": UNUSED,
                },
            )

    def test_zero(self, session):
        with pytest.raises(errors.ZeroHandleError) as error:
            raw.run(session, relu={"x": 0, "y": UNUSED})
        assert metadata(error)["field"] == "x"
        x = session.tensor([1.0])
        with pytest.raises(errors.ZeroHandleError) as error:
            raw.run(session, relu={"x": x.handle, "y": 0})
        assert metadata(error)["field"] == "y"
        with pytest.raises(errors.ZeroHandleError) as error:
            session.relu(None)
        assert metadata(error)["field"] == "x"
        data = np.zeros(1, np.float32).tobytes()
        with pytest.raises(errors.ZeroHandleError):
            raw.upload(session, 0, (1,), [data], xxhash.xxh3_64_intdigest(data))

    def test_another_sessions(self, session, server):
        with server.connect() as other:
            for _ in range(5):
                theirs = other.tensor([1.0])  # the last one's number is not in use in `session`
            with pytest.raises(errors.UnknownHandleError, match="another session"):
                session.relu(theirs)
            with pytest.raises(errors.UnknownHandleError) as error:
                session.relu(raw.forge(session, theirs.handle + 100)).numpy()
            assert metadata(error)["field"] == "x"
            raw.run(other, relu={"x": theirs.handle, "y": UNUSED})
            with pytest.raises(errors.UnknownHandleError):
                raw.run(session, relu={"x": UNUSED, "y": UNUSED + 1})

    def test_upload_in_progress(self, session):
        """An op that reads a tensor whose upload has not ended is refused, not made to wait."""
        import queue

        parts: queue.Queue = queue.Queue()
        spec = {"dtype": raw.FLOAT32, "shape": [2]}
        header = service_pb2.UploadHeader(
            session_id=session.id, handle=UNUSED, spec=spec, size_bytes=8
        )
        parts.put(service_pb2.UploadRequest(header=header))
        pending = session._rpc._methods["Upload"].future(iter(parts.get, None))
        for _ in range(200):
            with pytest.raises(errors.HandleError) as error:
                raw.run(session, relu={"x": UNUSED, "y": UNUSED + 1})
            if error.type is errors.TensorNotReadyError:
                break
        assert metadata(error) == {"field": "x", "handle": str(UNUSED)}
        pending.cancel()
        parts.put(None)


class TestShapesAndDTypes:
    def test_wrong_shape(self, session):
        y = session.linear(zeros(session, 2, 3), zeros(session, 5, 4))
        with pytest.raises(errors.InvalidShapeError) as error:
            y.numpy()
        assert metadata(error)["field"] == "weight"
        assert "3" in metadata(error)["expected"]
        assert "[5, 4]" in metadata(error)["given"]
        assert metadata(error)["expected"] in str(error.value)
        assert metadata(error)["given"] in str(error.value)

    def test_wrong_dtype(self, session):
        y = session.relu(session.tensor([1, 2]))
        with pytest.raises(errors.InvalidDTypeError) as error:
            y.numpy()
        assert metadata(error)["field"] == "x"
        assert "float" in metadata(error)["expected"]
        assert metadata(error)["given"] == "int64"
        assert isinstance(error.value, TypeError)

    def test_wrong_attribute(self, session):
        y = session.dropout(session.tensor([1.0]), p=1.5)
        with pytest.raises(errors.InvalidAttributeError) as error:
            y.numpy()
        assert metadata(error)["field"] == "p"
        assert "1.5" in metadata(error)["given"]

    @pytest.mark.parametrize("shape", [(2**40, 2**40), (2**62,), (2**31, 2**31, 4)])
    def test_size_overflow_of_an_op(self, session, shape):
        with pytest.raises((errors.SizeOverflowError, errors.OutOfMemoryError)) as error:
            session.fill(shape=shape, dtype="float64", value=1).numpy()
        assert isinstance(error.value, (OverflowError, MemoryError))
        if shape != (2**62,):
            assert isinstance(error.value, errors.SizeOverflowError)
            assert metadata(error)["field"] in ("shape", "y")
            assert metadata(error)["given"]

    def test_size_overflow_of_an_upload(self, session):
        for shape in [(2**40, 2**40), (2**62, 4)]:
            with pytest.raises(errors.SizeOverflowError) as error:
                raw.upload(session, UNUSED, shape, [b""], 0, size_bytes=0)
            assert metadata(error)["given"]

    def test_negative_side(self, session):
        with pytest.raises(errors.InvalidArgumentError):
            session.fill(shape=(2, -1), dtype="float32", value=0).numpy()
        with pytest.raises(errors.InvalidShapeError):
            raw.upload(session, UNUSED, (2, -1), [b""], 0, size_bytes=0)

    def test_too_many_dimensions(self, session):
        with pytest.raises(errors.InvalidShapeError):
            session.tensor(np.zeros((1,) * 9))

    def test_more_than_the_device_has(self, session):
        with pytest.raises(errors.OutOfMemoryError) as error:
            session.fill(shape=(2**45,), dtype="float32", value=0).numpy()
        assert metadata(error)["requested_bytes"] == str(2**47)
        assert int(metadata(error)["free_bytes"]) > 0
        assert isinstance(error.value, MemoryError)

    def test_unknown_dtype(self, session):
        with pytest.raises(errors.InvalidDTypeError):
            raw.upload(session, UNUSED, (1,), [b"1234"], 0, dtype=99)


class TestValues:
    CLASSES = 10

    def loss(self, session, target):
        x = session.tensor(np.zeros((3, self.CLASSES)), dtype="float32")
        return x, session.cross_entropy_loss(x, session.tensor(np.array(target)))

    @pytest.mark.parametrize("bad", [10, -1, 2**40, -(2**63)])
    def test_target_out_of_range(self, session, bad):
        _, y = self.loss(session, [0, bad, 9])
        with pytest.raises(errors.ValueOutOfRangeError) as error:
            y.numpy()
        assert metadata(error)["field"] == "target"
        assert "10" in metadata(error)["expected"]
        assert str(bad) in metadata(error)["given"]
        assert error.value.op == "cross_entropy_loss"

    def test_error_stays_in_the_handle(self, session):
        _, y = self.loss(session, [0, 1, 10])
        for _ in range(3):
            with pytest.raises(errors.ValueOutOfRangeError):
                y.numpy()
            with pytest.raises(errors.ValueOutOfRangeError):
                session._describe(y)

    def test_dependents_carry_the_origin(self, session):
        _, y = self.loss(session, [0, 1, 10])
        z = session.relu(y)
        w = session.add(session.tensor(1.0), z)
        fine = session.relu(session.tensor([-1.0, 1.0]))
        for tensor in (w, z, y):
            with pytest.raises(errors.ValueOutOfRangeError) as error:
                tensor.numpy()
            assert error.value.op == "cross_entropy_loss"
            assert error.value.op_id
            assert Path(__file__).name in error.value.location
        np.testing.assert_array_equal(fine.numpy(), [0, 1])

    @pytest.mark.parametrize("optimizer", [kernelbox.optim.SGD, kernelbox.optim.AdamW])
    def test_optimizer_leaves_parameters_alone(self, session, optimizer):
        """A gradient that failed changes nothing: not one bit of any parameter."""
        random = np.random.default_rng(0)
        weight = random.normal(size=(self.CLASSES, 4)).astype(np.float32)
        bias = random.normal(size=self.CLASSES).astype(np.float32)
        params = [session.tensor(weight, requires_grad=True)]
        params.append(session.tensor(bias, requires_grad=True))
        optimizer = optimizer(params, lr=0.1)
        x = session.tensor(random.normal(size=(2, 4)), dtype="float32")

        def step(target):
            optimizer.zero_grad()
            with session.tape() as tape:
                y = session.linear(x, *params)
                loss = session.cross_entropy_loss(y, session.tensor(np.array(target)))
            tape.backward(loss)
            optimizer.step()

        step([3, 4])
        before = [param.numpy() for param in params]
        assert not np.array_equal(before[0], weight)
        step([3, self.CLASSES])
        with pytest.raises(errors.ValueOutOfRangeError) as error:
            session.sync()
        assert error.value.op == "cross_entropy_loss"
        for param, value in zip(params, before, strict=True):
            assert param.numpy().tobytes() == value.tobytes()
        assert optimizer._step.item() == 1
        step([3, 4])
        session.sync()
        assert optimizer._step.item() == 2
        assert not np.array_equal(params[0].numpy(), before[0])


class TestLimits:
    def test_one_request_with_more_ops_than_the_queue(self, session):
        x = session.tensor([1.0])
        count = session.limits.max_queued_ops + 1
        relu = layers_pb2.Op(relu={"x": x.handle})
        request = service_pb2.ExecuteRequest(session_id=session.id)
        for index in range(count):
            relu.relu.y = UNUSED + index
            request.ops.append(relu)
        with pytest.raises(errors.QueueFullError) as error:
            self.execute(session, request)
        assert metadata(error) == {
            "limit": str(session.limits.max_queued_ops),
            "given": str(count),
        }

    def execute(self, session, request):
        import grpc
        from kernelbox._rpc import from_rpc_error

        try:
            return list(session._rpc.open("Execute", iter([request]), 60))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    def test_message_over_the_limit(self, session):
        request = service_pb2.FreeRequest(session_id=session.id)
        request.request_id = "x" * (session.limits.max_message_bytes + 1)
        with pytest.raises(errors.MessageTooLargeError) as error:
            raw.call(session, "Free", request)
        assert error.value.code.name == "RESOURCE_EXHAUSTED"
        assert str(session.limits.max_message_bytes) in str(error.value)

    def test_small_messages(self, start_server):
        """A client keeps to the server's limit; one op over it is refused where it is issued."""
        server = start_server(arguments=("--max-message-bytes=8192", "--max-queued-ops=16"))
        with server.connect() as session:
            param, step = session.tensor([0.0]), session.tensor(0)
            grad, lr = session.tensor([-1.0]), session.tensor(1.0)
            many = 4000
            with pytest.raises(errors.MessageTooLargeError, match=r"sgd: .* 8192 bytes"):
                session.sgd([param] * many, [grad] * many, lr, step)
            for _ in range(1000):
                session.sgd([param], [grad], lr, step)
                session.relu(param)  # garbage: handles to free come along
            assert param.item() == 1000
        assert server.stop() == 0

    def test_chunk_over_the_limit(self, session):
        data = bytes(session.limits.max_message_bytes + 16)
        with pytest.raises(errors.MessageTooLargeError):
            raw.upload(session, UNUSED, (len(data) // 4,), [data], 0)

    def test_deadline(self, session):
        side = 1024
        x = session.fill(shape=(side, side), dtype="float32", value=0)
        for _ in range(40):
            x = session.linear(x, x)
        with pytest.raises(errors.DeadlineExceededError) as error:
            x.numpy(timeout=0.01)
        assert isinstance(error.value, TimeoutError)
        with pytest.raises(TimeoutError):
            session.sync(timeout=0.01)
        session.sync()

    def test_no_such_device(self, server):
        with pytest.raises(errors.NoSuchDeviceError) as error:
            server.connect(device=99)
        assert metadata(error)["given"] == "99"

    def test_closed_session(self, server):
        other = server.connect()
        x = other.tensor([1.0])
        other.close()
        with pytest.raises(errors.SessionNotFoundError):
            other.tensor([1.0])
        with pytest.raises(errors.SessionNotFoundError):
            x.numpy()
        with pytest.raises(errors.SessionNotFoundError):
            other.relu(x)

    def test_unknown_session(self, session):
        request = service_pb2.KeepAliveRequest(session_id="nobody")
        with pytest.raises(errors.SessionNotFoundError):
            raw.call(session, "KeepAlive", request)
