"""Gradients by the naming rule of layers.proto.

The backward op of message Name is the member of Op.kind whose message is NameBackward. Its inputs
are the forward op's inputs and outputs by the same name and d_<output>, the gradient coming in;
its outputs are d_<input>. So nothing here knows an op by name, except for the one that sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelbox import errors
from kernelbox._plan import BACKWARD_SUFFIX, GRADIENT_PREFIX, OpPlan
from kernelbox.tensor import Buffer, Tensor

if TYPE_CHECKING:
    from kernelbox.session import Session

_SUM_OP = "add"


@dataclass(frozen=True)
class BackwardPlan:
    """How a backward op's fields are found from its forward op."""

    op: OpPlan
    # For each input of the backward op: where it comes from and the name there.
    sources: tuple[tuple[str, str], ...]
    # Forward inputs and outputs that must be kept until backward.
    reads: frozenset[str]
    # Forward outputs whose gradient the backward op takes; forward inputs it gives one for.
    outputs: tuple[str, ...]
    inputs: frozenset[str]
    # For each attribute of the backward op: its index among the forward op's.
    attributes: tuple[int, ...]


def make_backward_plans(plans: dict[str, OpPlan]) -> dict[str, BackwardPlan]:
    """Returns, by the forward op's name, how to call the backward op of each op that has one.

    Raises TypeError if a backward message breaks the naming rule.
    """
    by_message = {plan.message_name: plan for plan in plans.values()}
    return {
        plan.name: _make(plan, by_message[plan.message_name + BACKWARD_SUFFIX])
        for plan in plans.values()
        if plan.message_name + BACKWARD_SUFFIX in by_message
    }


def _make(forward: OpPlan, backward: OpPlan) -> BackwardPlan:
    forward_inputs = {field.name for field in forward.inputs}
    forward_outputs = {field.name for field in forward.outputs}
    sources, reads, outputs = [], set(), []
    for field in backward.inputs:
        output = field.name.removeprefix(GRADIENT_PREFIX)
        if field.name in forward_inputs or field.name in forward_outputs:
            kind = "input" if field.name in forward_inputs else "output"
            sources.append((kind, field.name))
            reads.add(field.name)
        elif output != field.name and output in forward_outputs:
            sources.append(("gradient", output))
            outputs.append(output)
        else:
            raise TypeError(f"{backward.message_name}.{field.name} names nothing of forward's")
    if len(outputs) > 1:  # kept to make zeros of their shape where no gradient came
        reads.update(outputs)
    inputs = {field.name.removeprefix(GRADIENT_PREFIX) for field in backward.outputs}
    if not inputs <= forward_inputs:
        raise TypeError(f"{backward.message_name} has gradients of {inputs - forward_inputs}")
    names = [field.name for field in forward.attributes]
    attributes = tuple(names.index(field.name) for field in backward.attributes)
    return BackwardPlan(
        backward, tuple(sources), frozenset(reads), tuple(outputs), frozenset(inputs), attributes
    )


class Node:
    """One value of a recorded computation: an op's output, or a tensor it started from."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Tensor | None = None) -> None:
        # The tensor that gets the gradient, if this is where the computation started.
        self.leaf = leaf


class _Record:
    """One recorded op."""

    __slots__ = ("attributes", "backward", "inputs", "location", "outputs", "plan", "saved")

    def __init__(
        self,
        plan: OpPlan,
        backward: BackwardPlan | None,
        inputs: dict[str, Node],
        outputs: dict[str, Node],
        saved: dict[str, tuple[Buffer, int]],
        attributes: Sequence[Any],
        location: tuple[str, int],
    ) -> None:
        self.plan = plan
        self.backward = backward
        # Of the tensors that require a gradient, by field name.
        self.inputs = inputs
        self.outputs = outputs
        # With the version that backward has to see.
        self.saved = saved
        self.attributes = attributes
        self.location = location

    def __str__(self) -> str:
        return f"{self.plan.name} (issued at {self.location[0]}:{self.location[1]})"


class Tape:
    """Records the ops whose inputs require a gradient, while its `with` block runs.

    Use it as `with session.tape() as tape:`. Whatever backward needs stays on the server until
    `backward` or `gradients` has used it, or the tape and the tensors it recorded are gone.
    Not safe to use from several threads at once.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._records: list[_Record] = []
        self._leaves: dict[int, Node] = {}
        self._outer: list[Tape | None] = []
        self._used = False

    def __enter__(self) -> Tape:
        self._outer.append(self._session._tape)
        self._session._tape = self
        return self

    def __exit__(self, *_: object) -> None:
        self._session._tape = self._outer.pop()

    def backward(
        self, loss: Tensor, gradient: Tensor | None = None, *, retain: bool = False
    ) -> None:
        """Adds the gradient of `loss` to `grad` of every tensor it was computed from.

        Args:
            loss: a tensor that an op made while this tape recorded.
            gradient: the gradient of the final result by `loss`, of its shape; may be left out if
                `loss` has one element (it is 1 then).
            retain: keep what was recorded, so that backward can be called again.

        Raises GradientError if it can't be done; failures on the server come at the next read or
        `sync`, as with every op.
        """
        gradients = self._run(loss, gradient, None, retain)
        for node, value in gradients.items():
            leaf = node.leaf
            assert leaf is not None
            leaf.grad = value if leaf.grad is None else self._sum(leaf.grad, value)

    def gradients(
        self,
        loss: Tensor,
        sources: Iterable[Tensor],
        gradient: Tensor | None = None,
        *,
        retain: bool = False,
    ) -> list[Tensor | None]:
        """Returns the gradients of `loss` by `sources` and leaves their `grad` alone.

        A source that `loss` does not depend on gets None. The rest is as in `backward`.
        """
        sources = list(sources)
        nodes = [self._node_of(source, record=False) for source in sources]
        wanted = {node for node in nodes if node is not None}
        found = self._run(loss, gradient, wanted, retain)
        return [found.get(node) if node is not None else None for node in nodes]

    # The session calls these for each op while the tape records.

    def record(
        self,
        plan: OpPlan,
        tensors: Sequence[Any],
        attributes: Sequence[Any],
        outputs: dict[str, Tensor],
        location: tuple[str, int],
    ) -> None:
        """Records an op at least one of whose inputs requires a gradient."""
        if self._used:
            raise errors.GradientError(
                "this tape has been used by backward; record each step on a tape of its own"
            )
        inputs: dict[str, Node] = {}
        for field, value in zip(plan.inputs, tensors, strict=True):
            if isinstance(value, Tensor) and value._requires_grad:
                node = self._node_of(value, record=True)
                assert node is not None
                inputs[field.name] = node
        if not outputs or not inputs:
            return
        backward = self._session._backward_plans.get(plan.name)
        saved = {}
        if backward is not None:
            for field, value in zip(plan.inputs, tensors, strict=True):
                if field.name in backward.reads and value is not None:
                    saved[field.name] = (value._buffer, value._buffer.version)
            for name, tensor in outputs.items():
                if name in backward.reads:
                    saved[name] = (tensor._buffer, tensor._buffer.version)
        nodes = {}
        differentiable = plan.required_outputs if backward is None else backward.outputs
        for name in differentiable:
            if name not in outputs:
                continue
            node = nodes[name] = Node()
            tensor = outputs[name]
            tensor._node, tensor._tape, tensor._requires_grad = node, self, True
        self._records.append(_Record(plan, backward, inputs, nodes, saved, attributes, location))

    def check_in_place(self, plan: OpPlan, tensors: Sequence[Any]) -> None:
        """Raises GradientError if an op would update in place what a recorded op has made."""
        for field, value in zip(plan.inputs, tensors, strict=True):
            if not field.is_in_out or value is None:
                continue
            for tensor in value if field.repeated else (value,):
                if tensor._node is not None and tensor._tape is self:
                    raise errors.GradientError(
                        f"{plan.name} would update {field.name} in place, which a recorded op has "
                        "made"
                    )

    def _node_of(self, tensor: Tensor, *, record: bool) -> Node | None:
        if tensor._node is not None and tensor._tape is self:
            return tensor._node
        node = self._leaves.get(id(tensor))  # the node keeps the tensor, so the id stays its own
        if node is None and record:
            node = self._leaves[id(tensor)] = Node(tensor)
        return node

    def _run(
        self, loss: Tensor, gradient: Tensor | None, wanted: set[Node] | None, retain: bool
    ) -> dict[Node, Tensor]:
        """Returns the gradients of the leaves (`wanted` None) or of the wanted nodes."""
        if loss._node is None or loss._tape is not self:
            raise errors.GradientError(
                "the tensor was not computed, while this tape recorded, from one that requires "
                "a gradient"
            )
        if self._used:
            raise errors.GradientError(
                "backward has been called on this tape: pass retain=True the first time to call "
                "it again"
            )
        if gradient is None:
            if loss.size != 1:
                raise errors.GradientError(
                    f"backward of a tensor of shape {loss.shape} needs its gradient: only one of "
                    "one element can do without"
                )
            gradient = self._session._full(loss.shape, loss.dtype, 1.0)
        found: dict[Node, Tensor] = {}
        arrived = {loss._node: gradient}
        with self._session.no_grad():
            records = self._records if retain else []
            if not retain:
                records, self._records = self._records, []
                self._used = True
            for index in range(len(records) - 1, -1, -1):
                record = records[index]
                if not retain:
                    records.pop()
                gradients = {
                    name: arrived.pop(node)
                    for name, node in record.outputs.items()
                    if node in arrived
                }
                if wanted is not None:
                    for name, value in gradients.items():
                        if record.outputs[name] in wanted:
                            found[record.outputs[name]] = value
                if gradients:
                    self._step(record, gradients, arrived)
        for node, value in arrived.items():
            if node.leaf is not None and (wanted is None or node in wanted):
                found[node] = value
        if not retain:
            self._leaves.clear()
        return found

    def _step(
        self, record: _Record, gradients: dict[str, Tensor], arrived: dict[Node, Tensor]
    ) -> None:
        """Issues one backward op and adds what it gives to the gradients that have arrived."""
        backward = record.backward
        if backward is None:
            raise errors.GradientError(f"{record} has no backward")
        for name in record.inputs:
            if name not in backward.inputs:
                raise errors.GradientError(f"{record} has no gradient for {name}")
        values: list[Tensor | None] = []
        for field, (source, name) in zip(backward.op.inputs, backward.sources, strict=True):
            if source == "gradient":
                value = gradients.get(name)
                if value is None and field.required:
                    like = Tensor(record.saved[name][0])
                    value = self._session._full(like.shape, like.dtype, 0.0)
                values.append(value)
            elif name in record.saved:
                buffer, version = record.saved[name]
                if buffer.version != version:
                    raise errors.GradientError(
                        f"{name} of {record} has been updated in place since; backward needs its "
                        "old value"
                    )
                values.append(Tensor(buffer))
            else:
                values.append(None)
        results = self._session._issue_named(
            backward.op,
            values,
            [record.attributes[index] for index in backward.attributes],
            [GRADIENT_PREFIX + name for name in record.inputs],
        )
        for name, node in record.inputs.items():
            result = results[GRADIENT_PREFIX + name]
            before = arrived.get(node)
            arrived[node] = result if before is None else self._sum(before, result)

    def _sum(self, a: Tensor, b: Tensor) -> Tensor:
        with self._session.no_grad():
            result: Tensor = getattr(self._session, _SUM_OP)(a, b)
        return result


class NoGrad:
    """Pauses recording while its `with` block runs."""

    __slots__ = ("_session", "_tapes")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tapes: list[Tape | None] = []

    def __enter__(self) -> None:
        self._tapes.append(self._session._tape)
        self._session._tape = None

    def __exit__(self, *_: object) -> None:
        self._session._tape = self._tapes.pop()
