"""Writes src/kernelbox/_ops.pyi, the ops' signatures for type checkers and editors.

With --check it writes nothing and fails if the file isn't what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernelbox._op_methods import PLANS, describe
from kernelbox._plan import REQUIRED, AttributeField, OpPlan, TensorField

STUB = Path(__file__).resolve().parents[1] / "src" / "kernelbox" / "_ops.pyi"

HEADER = """\
# Written by tools/gen_ops_stub.py from the descriptors. Do not edit.
from collections.abc import Sequence
from typing import Any, Literal, overload

from kernelbox.dtypes import DTypeLike
from kernelbox.tensor import Tensor
"""


def stub_text() -> str:
    """Returns what the stub has to be."""
    parts = [HEADER]
    for plan in PLANS.values():
        if plan.optional_outputs:
            parts += [f"class {plan.message_name}Outputs(tuple[Tensor, ...]):"]
            parts += [f"    {field.name}: Tensor" for field in plan.outputs]
            parts += [""]
    parts += ["class Ops:"]
    for plan in PLANS.values():
        parts += _method(plan)
    return "\n".join(parts) + "\n"


def _method(plan: OpPlan) -> list[str]:
    several = f"{plan.message_name}Outputs"
    if not plan.optional_outputs:
        returns = {0: "None", 1: "Tensor"}.get(len(plan.outputs), "tuple[Tensor, ...]")
        return _definition(plan, None, returns, documented=True)
    choices = ", ".join(f'"{field.name}"' for field in plan.outputs)
    wanted = f"outputs: Sequence[Literal[{choices}]]"
    if not plan.required_outputs:
        return _definition(plan, wanted, "Any", documented=True)
    one = "Tensor" if len(plan.required_outputs) == 1 else several
    return [
        "    @overload",
        *_definition(plan, "outputs: None = None", one, documented=True),
        "    @overload",
        *_definition(plan, wanted, several, documented=False),
    ]


def _definition(plan: OpPlan, outputs: str | None, returns: str, *, documented: bool) -> list[str]:
    positional = ["self", *(_tensor(f) for f in plan.inputs if not f.takes_session_rng)]
    keyword = [_tensor(field) for field in plan.inputs if field.takes_session_rng]
    keyword += [_attribute(field) for field in plan.attributes]
    keyword += [outputs] if outputs else []
    parameters = positional + (["*", *keyword] if keyword else [])
    lines = [f"    def {plan.name}("]
    lines += [f"        {parameter}," for parameter in parameters]
    if not documented:
        return [*lines, f"    ) -> {returns}: ..."]
    lines.append(f"    ) -> {returns}:")
    text = describe(plan).splitlines()
    lines.append(f'        """{text[0]}')
    lines += [f"        {line}".rstrip() for line in text[1:]]
    return [*lines, '        """']


def _tensor(field: TensorField) -> str:
    kind = "Sequence[Tensor]" if field.repeated else "Tensor"
    if field.required and not field.takes_session_rng:
        return f"{field.name}: {kind}"
    return f"{field.name}: {kind} | None = None"


def _attribute(field: AttributeField) -> str:
    kind = {
        "dtype": "DTypeLike",
        "enum": f"Literal[{', '.join(_quoted(name) for name in field.choices)}] | int | None",
    }.get(field.type_name, field.type_name)
    if field.repeated:
        kind = f"Sequence[{kind}] | {kind}"
    if field.default is REQUIRED:
        return f"{field.name}: {kind}"
    if field.default is None and not kind.endswith("None"):
        kind += " | None"
    default = _quoted(field.default) if isinstance(field.default, str) else repr(field.default)
    return f"{field.name}: {kind} = {default}"


def _quoted(text: str) -> str:
    return f'"{text}"'


def main(arguments: list[str]) -> int:
    """Writes or checks the stub; returns the exit status."""
    text = stub_text()
    if "--check" in arguments:
        if not STUB.exists() or STUB.read_text() != text:
            print(f"{STUB} is not current: run python {Path(__file__).name}", file=sys.stderr)
            return 1
        return 0
    STUB.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
