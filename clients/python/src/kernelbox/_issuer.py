"""Turns the call of an op's method into an op on its way to the server."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import grpc

from kernelbox import dtypes, errors
from kernelbox._failures import Location
from kernelbox._op_methods import PLANS, outputs_type
from kernelbox._ops import Ops
from kernelbox._plan import OpPlan, TensorField
from kernelbox._proto.kernelbox.v1 import layers_pb2
from kernelbox._specs import SpecTable
from kernelbox.tape import Tape, make_backward_plans
from kernelbox.tensor import Buffer, Tensor

_BACKWARD_PLANS = make_backward_plans(PLANS)


class OpIssuer(Ops):
    """The part of a session that issues ops. The methods of Ops call `_issue`."""

    _backward_plans = MappingProxyType(_BACKWARD_PLANS)

    def __init__(self) -> None:
        self._specs = SpecTable()
        self._handles = itertools.count(1)
        self._op_ids = itertools.count(1)
        self._tape: Tape | None = None

    # What a session adds.

    @property
    def rng(self) -> Tensor:
        """The random state that ops use unless they are given another."""
        raise NotImplementedError

    def _submit(
        self, op: Any, handles: int, made: Mapping[str, Tensor], location: Location
    ) -> None:
        """Sends an op, which has about that many handles."""
        raise NotImplementedError

    # Issuing.

    def _issue(
        self,
        plan: OpPlan,
        tensors: Sequence[Any],
        attributes: Sequence[Any],
        outputs: Sequence[str] | None,
    ) -> Any:
        """Issues an op and returns what its method returns."""
        asked = plan.required_outputs if outputs is None else _asked_outputs(plan, outputs)
        made = self._issue_named(plan, tensors, attributes, asked)
        if len(asked) == 1:
            return made[asked[0]]
        if not asked:
            return None
        return outputs_type(plan, asked)(*[made[name] for name in asked])  # type: ignore[arg-type]

    def _issue_named(
        self,
        plan: OpPlan,
        tensors: Sequence[Any],
        attributes: Sequence[Any],
        outputs: Sequence[str],
    ) -> dict[str, Tensor]:
        """Issues an op and returns its outputs by name: `outputs` and those always made."""
        op = layers_pb2.Op()
        op.id = next(self._op_ids)
        message = getattr(op, plan.name)
        message.SetInParent()
        if len(outputs) < len(plan.required_outputs):
            outputs = plan.required_outputs

        key: list[Any] = [plan.name]  # all that decides the outputs' shapes
        in_outs: list[Buffer] = []
        handles, recorded = self._set_inputs(plan, message, tensors, key, in_outs)
        _set_attributes(plan, message, attributes, key)

        tape = self._tape
        if recorded and tape is not None and plan.optional_outputs:
            backward = self._backward_plans.get(plan.name)
            if backward is not None:
                needed = backward.reads.intersection(plan.optional_outputs)
                outputs = [*outputs, *needed.difference(outputs)]
        made: dict[str, Tensor] = {}
        if outputs:
            key.append(tuple(outputs))
            specs = self._specs.outputs(tuple(key), len(outputs))
            for name, spec in zip(outputs, specs, strict=True):
                handle = next(self._handles)
                setattr(message, name, handle)
                made[name] = Tensor(Buffer(self, handle, spec))  # type: ignore[arg-type]

        location = _caller()
        if tape is not None and in_outs:
            tape.check_in_place(plan, tensors)
        self._submit(op, handles, made, location)
        if tape is not None and recorded:
            tape.record(plan, tensors, attributes, made, location)
        for buffer in in_outs:
            buffer.version += 1
        return made

    def _set_inputs(
        self,
        plan: OpPlan,
        message: Any,
        tensors: Sequence[Any],
        key: list[Any],
        in_outs: list[Buffer],
    ) -> tuple[int, bool]:
        """Sets the handles of inputs; adds to `key`, and to `in_outs` what is updated in place.

        Returns about how many handles the op has, and whether an input requires a gradient.
        """
        handles = len(plan.inputs) + len(plan.outputs)
        recorded = False
        for field, value in zip(plan.inputs, tensors, strict=True):
            if value is None:
                if field.takes_session_rng:
                    value = self.rng
                elif not field.required:
                    key.append(None)
                    continue
                else:
                    raise errors.ZeroHandleError(
                        f"{plan.name}: {field.name} must be a tensor, not None",
                        code=grpc.StatusCode.INVALID_ARGUMENT,
                        metadata={"field": field.name},
                    )
            if field.repeated:
                buffers = [self._buffer_of(plan, field, item) for item in value]
                getattr(message, field.name).extend([buffer.handle for buffer in buffers])
                handles += len(buffers)
                key.append(tuple([buffer.spec for buffer in buffers]))
                if field.is_in_out:
                    in_outs += buffers
                if plan.outputs and self._tape and any(item._requires_grad for item in value):
                    raise errors.GradientError(f"{plan.name}: a list has no gradient")
                continue
            buffer = self._buffer_of(plan, field, value)
            setattr(message, field.name, buffer.handle)
            key.append(buffer.spec)
            if value._requires_grad:
                recorded = True
            if field.is_in_out:
                in_outs.append(buffer)
        return handles, recorded

    def _buffer_of(self, plan: OpPlan, field: TensorField, value: Any) -> Buffer:
        """Returns the buffer of an argument, which must be a tensor of this session."""
        if type(value) is Tensor:
            buffer = value._buffer
            if buffer.session is self and not buffer.freed:
                return buffer
            what = "has been freed" if buffer.session is self else "belongs to another session"
            raise errors.UnknownHandleError(
                f"{plan.name}: the tensor given as {field.name} {what}",
                code=grpc.StatusCode.NOT_FOUND,
                metadata={"field": field.name, "handle": str(buffer.handle)},
            )
        raise TypeError(
            f"{plan.name}: {field.name} must be a Tensor, not a {type(value).__name__}; "
            "session.tensor uploads arrays"
        )

    def _full(self, shape: Sequence[int], dtype: dtypes.DTypeLike, value: float) -> Tensor:
        """Issues the making of a tensor of one value."""
        return self.fill(shape=tuple(shape), dtype=dtype, value=value)


def _asked_outputs(plan: OpPlan, outputs: Sequence[str]) -> tuple[str, ...]:
    """Returns the outputs that are always made and those asked for, in the message's order."""
    wanted = {outputs} if isinstance(outputs, str) else set(outputs)
    known = plan.required_outputs + plan.optional_outputs
    if unknown := wanted.difference(known):
        raise ValueError(
            f"{plan.name} has no output {sorted(unknown)[0]!r}, only {', '.join(known)}"
        )
    return tuple(field.name for field in plan.outputs if field.required or field.name in wanted)


def _set_attributes(plan: OpPlan, message: Any, attributes: Sequence[Any], key: list[Any]) -> None:
    """Sets the attributes that differ from their defaults; adds all to `key`."""
    for attribute, value in zip(plan.attributes, attributes, strict=True):
        if value is attribute.default:
            key.append(None)
            continue
        value = attribute.convert(value)
        key.append(value)
        try:
            if attribute.repeated:
                getattr(message, attribute.name).extend(value)
            else:
                setattr(message, attribute.name, value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{plan.name}: {attribute.name}: {error}") from None


def _caller() -> Location:
    """Returns file and line of the innermost frame outside this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("kernelbox."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
