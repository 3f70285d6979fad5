"""What the descriptors say about each op, laid out for quick use.

A plan is made from an op's message once, at import; nothing here knows an op by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from kernelbox import dtypes
from kernelbox._proto.kernelbox.v1 import layers_pb2, options_pb2, types_pb2

GRADIENT_PREFIX = "d_"
BACKWARD_SUFFIX = "Backward"
# In-out fields of this name take the session's own random state when none is given.
RNG_FIELD = "rng_state"

REQUIRED = object()


@dataclass(frozen=True)
class TensorField:
    """A field that holds handles."""

    name: str
    shape: str
    required: bool
    repeated: bool
    is_output: bool
    # Updated in place: both read and written.
    is_in_out: bool

    @property
    def takes_session_rng(self) -> bool:
        """Whether the session's random state stands in when no tensor is given."""
        return self.name == RNG_FIELD and self.is_in_out and not self.repeated


@dataclass(frozen=True)
class AttributeField:
    """A field that holds a plain value."""

    name: str
    # What the argument is when not given: REQUIRED, None (no value) or a value.
    default: Any
    # The value that goes into the message for what the caller gave; raises TypeError, ValueError.
    convert: Callable[[Any], Any]
    repeated: bool
    # For messages, signatures and stubs.
    type_name: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpPlan:
    """One member of Op.kind."""

    # The member's name, such as "linear_backward", and its message's, such as "LinearBackward".
    name: str
    message_name: str
    # Tensors read or updated: those that must be given first, each group in message order.
    inputs: tuple[TensorField, ...]
    outputs: tuple[TensorField, ...]
    attributes: tuple[AttributeField, ...]
    # Names of outputs made always, and only when asked for.
    required_outputs: tuple[str, ...] = field(init=False)
    optional_outputs: tuple[str, ...] = field(init=False)
    has_lists: bool = field(init=False)

    def __post_init__(self) -> None:
        required = tuple(f.name for f in self.outputs if f.required)
        optional = tuple(f.name for f in self.outputs if not f.required)
        object.__setattr__(self, "required_outputs", required)
        object.__setattr__(self, "optional_outputs", optional)
        object.__setattr__(self, "has_lists", any(f.repeated for f in self.inputs))


_INPUT_ROLES = {
    options_pb2.ROLE_INPUT: (True, False),
    options_pb2.ROLE_OPTIONAL_INPUT: (False, False),
    options_pb2.ROLE_IN_OUT: (True, True),
    options_pb2.ROLE_OPTIONAL_IN_OUT: (False, True),
}
_OUTPUT_ROLES = {options_pb2.ROLE_OUTPUT: True, options_pb2.ROLE_OPTIONAL_OUTPUT: False}


def make_plans() -> dict[str, OpPlan]:
    """Returns the plan of each member of Op.kind, by its name."""
    kind = layers_pb2.Op.DESCRIPTOR.oneofs_by_name["kind"]
    return {member.name: _make_plan(member.name, member.message_type) for member in kind.fields}


def _make_plan(name: str, message: Any) -> OpPlan:
    inputs, outputs, attributes = [], [], []
    for descriptor in message.fields:
        spec: options_pb2.FieldSpec = descriptor.GetOptions().Extensions[options_pb2.field]
        if spec.role in _INPUT_ROLES:
            required, in_out = _INPUT_ROLES[spec.role]
            inputs.append(
                TensorField(
                    descriptor.name, spec.shape, required, _is_repeated(descriptor), False, in_out
                )
            )
        elif spec.role in _OUTPUT_ROLES:
            required = _OUTPUT_ROLES[spec.role]
            outputs.append(
                TensorField(
                    descriptor.name, spec.shape, required, _is_repeated(descriptor), True, False
                )
            )
        elif spec.role == options_pb2.ROLE_ATTRIBUTE:
            attributes.append(_make_attribute(descriptor, spec.default_value))
        else:
            raise TypeError(f"{message.full_name}.{descriptor.name} has no role")
    inputs.sort(key=lambda f: not f.required)  # stable
    return OpPlan(name, message.name, tuple(inputs), tuple(outputs), tuple(attributes))


def _is_repeated(descriptor: FieldDescriptor) -> bool:
    # `label` is deprecated in new protobuf runtimes, `is_repeated` absent in old ones.
    repeated = getattr(descriptor, "is_repeated", None)
    if repeated is None:
        repeated = getattr(descriptor, "label") == FieldDescriptor.LABEL_REPEATED  # noqa: B009
    return bool(repeated)


def _make_attribute(descriptor: FieldDescriptor, default_text: str) -> AttributeField:
    repeated = _is_repeated(descriptor)
    convert: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    default: Any = None if descriptor.has_presence else REQUIRED
    if descriptor.enum_type is not None:
        if descriptor.enum_type.full_name == types_pb2.DType.DESCRIPTOR.full_name:
            type_name, convert = "dtype", dtypes.to_wire
            if default_text:
                default = dtypes.from_wire(types_pb2.DType.Value(default_text)).name
        else:
            names = _enum_names(descriptor.enum_type)
            type_name, convert, choices = "enum", _enum_converter(descriptor.name, names), (*names,)
            if default_text:
                number = descriptor.enum_type.values_by_name[default_text].number
                default = next(name for name, value in names.items() if value == number)
    elif descriptor.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        type_name, convert = "bool", _bool_converter(descriptor.name)
        if default_text:
            default = default_text == "true"
    elif descriptor.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        type_name, convert = "float", _float_converter(descriptor.name)
        if default_text:
            default = float(default_text)
    elif descriptor.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        type_name, convert = "str", str
        if default_text:
            default = default_text
    else:
        type_name, convert = "int", _int_converter(descriptor.name)
        if default_text:
            default = int(default_text)
    if repeated:
        default = REQUIRED
        convert = _list_converter(convert)
    return AttributeField(descriptor.name, default, convert, repeated, type_name, choices)


def _enum_names(enum: EnumDescriptor) -> dict[str, int]:
    """Returns numbers by short names: ACTIVATION_GELU_TANH is "gelu_tanh"."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        value.name.removeprefix(prefix).lower(): value.number
        for value in enum.values
        if value.number != 0
    }


def _enum_converter(field_name: str, names: dict[str, int]) -> Callable[[Any], int]:
    numbers: dict[Any, int] = {**names, **{number: number for number in (0, *names.values())}}
    if "none" in names:
        numbers[None] = names["none"]

    def convert(value: Any) -> int:
        try:
            return numbers[value]
        except (KeyError, TypeError):
            listed = ", ".join(repr(name) for name in names)
            raise ValueError(f"{field_name} is one of {listed}, not {value!r}") from None

    return convert


def _bool_converter(field_name: str) -> Callable[[Any], bool]:
    def convert(value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise TypeError(f"{field_name} is True or False, not {value!r}")

    return convert


def _float_converter(field_name: str) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        if isinstance(value, (int, float, np.number)):
            return float(value)
        raise TypeError(f"{field_name} is a plain number, not a {type(value).__name__}")

    return convert


def _int_converter(field_name: str) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"{field_name} is an integer, not a {type(value).__name__}") from None

    return convert


def _list_converter(convert_one: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, (list, tuple, np.ndarray)):
            return tuple(convert_one(item) for item in value)
        return (convert_one(value),)

    return convert
