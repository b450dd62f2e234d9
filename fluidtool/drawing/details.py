"""What the page says of operators and variables: attributes, shapes, data types, statistics of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidtool.drawing.build import value_text
from fluidtool.drawing.graph import Place
from fluidtool.drawing.kinds import UNKNOWN, kind_of
from fluidtool.drawing.text import visible
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.callstack import written_in
from fluidtool.ir.roles import CALLSTACK_ATTR, NAMESCOPE_ATTR
from fluidtool.ir.variable import data_type_name
from fluidtool.proto.enums import VarType
from fluidtool.tensor.statistics import Statistics

LONGEST = 600  # characters of an attribute
MOST_ITEMS = 60  # of a list
LEFT_OUT = frozenset({CALLSTACK_ATTR, NAMESCOPE_ATTR, "op_device", "with_quant_attr"})


class Details:
    """Operators and variables as the page has them, each variable once."""

    def __init__(self, program: Program, statistics: Mapping[str, Statistics]) -> None:
        self.program = program
        self.statistics = statistics
        self.variables: list[list[Any]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def variable(self, block: Block, name: str) -> int:
        """The number of a variable that a block calls by this name."""
        var = block.find_var_recursive(name)
        key = (-1 if var is None else var.block.idx, name)
        if key not in self._numbers:
            self._numbers[key] = len(self.variables)
            self.variables.append([visible(name), _type(var), self._figures(name, var)])
        return self._numbers[key]

    def operator(self, place: Place) -> dict[str, Any]:
        """One operator."""
        block = self.program.block(place.block)
        op = block.ops[place.operator]
        return {
            "type": visible(op.type),
            "block": place.block,
            "number": place.operator,
            "inputs": self._slots(block, op.inputs),
            "outputs": self._slots(block, op.outputs),
            "attributes": [
                [visible(name), attribute_text(op, name)]
                for name in op.attr_names
                if name not in LEFT_OUT and op.attr(name) != []
            ],
            "made": visible(written_in(op)),
            "note": "fluidtool does not know this operator" if kind_of(op.type) == UNKNOWN else "",
        }

    def _slots(self, block: Block, slots: Mapping[str, list[str]]) -> list[list[Any]]:
        return [
            [visible(slot), [self.variable(block, name) for name in names]] for slot, names in slots.items() if names
        ]

    def _figures(self, name: str, var: Variable | None) -> list[str]:
        found = self.statistics.get(name) if var is not None and var.persistable else None
        return [] if found is None else list(statistics_lines(found))


def _type(var: Variable | None) -> str:
    """'float32 (-1, 64)', 'parameter float32 (64, 10)'."""
    if var is None:
        return "not declared"
    known = var.type in VarType._value2member_map_
    kind = (
        ""
        if var.type == VarType.LOD_TENSOR
        else VarType(var.type).name.lower().replace("_", " ")
        if known
        else f"type {var.type}"
    )
    data_type = "" if var.dtype is None else data_type_name(var.dtype)
    return " ".join(filter(None, ["parameter" if var.persistable else "", kind, data_type, value_text(var)]))


def statistics_lines(found: Statistics) -> list[str]:
    """Least, mean, greatest and deviation; then what is strange."""
    if found.mean is None:
        lines = ["no finite values"]
    else:
        lines = [
            f"min {found.minimum:.4g}, mean {found.mean:.4g}, max {found.maximum:.4g}, std {found.deviation:.4g}",
        ]
    counts = {"zero": found.zeros, "NaN": found.nans, "infinite": found.infinities}
    strange = [f"{count} {name}" for name, count in counts.items() if count]
    return [*lines, f"{', '.join(strange)} of {found.elements}"] if strange else lines


def attribute_text(op: Operator, name: str) -> str:
    """The value of an attribute, shortened if it is long."""
    value = op.attr(name)
    if isinstance(value, (list, tuple)):
        shown = ", ".join(_item(each) for each in value[:MOST_ITEMS])
        text = f"[{shown}]" if len(value) <= MOST_ITEMS else f"[{shown}, … {len(value)} items]"
    else:
        text = _item(value)
    text = visible(text[: LONGEST + 1])
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _item(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)
