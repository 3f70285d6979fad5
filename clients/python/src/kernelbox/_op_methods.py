"""Makes the class whose methods are the ops.

Each method is compiled from a line of source with the op's own parameter list, so that Python
itself binds the arguments; the work is the same for every op and in `_issue` of the class that
inherits them.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

from kernelbox._plan import REQUIRED, AttributeField, OpPlan, TensorField, make_plans

PLANS = make_plans()


def make_ops_class() -> type:
    """Returns a class with a method for each member of Op.kind."""
    methods: dict[str, Any] = {name: _make_method(plan) for name, plan in PLANS.items()}
    methods["__doc__"] = "Every op of the server as a method."
    methods["__module__"] = "kernelbox._ops"
    return type("Ops", (), methods)


def _make_method(plan: OpPlan) -> Callable[..., Any]:
    """Compiles `def linear(self, x, weight, bias=None, *, activation='none', outputs=None)`."""
    names: dict[str, Any] = {"__name__": "kernelbox._ops", "_plan": plan}
    positional, keyword = ["self"], []
    for field in plan.inputs:
        if field.takes_session_rng:
            keyword.append(f"{field.name}=None")
        else:
            positional.append(field.name if field.required else f"{field.name}=None")
    for attribute in plan.attributes:
        if attribute.default is REQUIRED:
            keyword.append(attribute.name)
        else:
            names[f"_default_{attribute.name}"] = attribute.default
            keyword.append(f"{attribute.name}=_default_{attribute.name}")
    if plan.optional_outputs:
        keyword.append("outputs=None" if plan.required_outputs else "outputs")
    parameters = ", ".join(positional + (["*", *keyword] if keyword else []))
    tensors = "".join(f"{field.name}, " for field in plan.inputs)
    attributes = "".join(f"{field.name}, " for field in plan.attributes)
    outputs = "outputs" if plan.optional_outputs else "None"
    source = (
        f"def {plan.name}({parameters}):\n"
        f"    return self._issue(_plan, ({tensors}), ({attributes}), {outputs})\n"
    )
    exec(compile(source, f"<kernelbox op {plan.name}>", "exec"), names)
    method: Callable[..., Any] = names[plan.name]
    method.__qualname__ = f"Ops.{plan.name}"
    method.__doc__ = describe(plan)
    return method


@functools.cache
def outputs_type(plan: OpPlan, names: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """Returns the named tuple for these outputs of an op."""
    return collections.namedtuple(f"{plan.message_name}Outputs", names)


def describe(plan: OpPlan) -> str:
    """Returns the docstring of an op's method."""
    lines = [f"Issues the op {plan.message_name}.", ""]
    if plan.inputs or plan.attributes:
        lines.append("Args:")
        lines += [f"    {_describe_tensor(field)}" for field in plan.inputs]
        lines += [f"    {_describe_attribute(field)}" for field in plan.attributes]
        if plan.optional_outputs:
            verb = "also return" if plan.required_outputs else "return"
            lines.append(
                f"    outputs: names of outputs to {verb}: {_list(plan.optional_outputs)}."
            )
    if plan.outputs:
        lines += ["", "Returns:"]
        lines += [f"    {_describe_tensor(field)}" for field in plan.outputs]
        if plan.optional_outputs:
            lines += ["    If there are several, a named tuple of those asked for, in this order."]
    return "\n".join(lines)


def _describe_tensor(field: TensorField) -> str:
    what = "list of tensors" if field.repeated else "tensor"
    if field.is_in_out:
        what += " updated in place"
    if field.takes_session_rng:
        what += "; the session's rng unless given"
    elif not field.required:
        what += "; only if asked for" if field.is_output else " or None"
    return f"{field.name}: {what}; shape {field.shape}."


def _describe_attribute(field: AttributeField) -> str:
    what = {"enum": "one of " + _list(field.choices)}.get(field.type_name, field.type_name)
    return f"{field.name}: {'list of ' if field.repeated else ''}{what}."


def _list(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
