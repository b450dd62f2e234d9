"""Whether the operators of a program match their schemas: attributes of the declared types, slots filled as declared.

Code that reads an attribute or the first variable of a slot relies on this. A program is checked once: when a model is
loaded, when a pass starts, when a block is compiled; unknown operators have no schema to violate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, auto
from typing import Any

from fluidtool.errors import Hint, Location, OperatorError
from fluidtool.ir import Operator, Program
from fluidtool.ir.structure import attr_type_name
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.registry import OpInfo, find_op
from fluidtool.ops.schema import AttrSpec, Slot
from fluidtool.proto.enums import VARIABLES, AttrType
from fluidtool.records import dataclass

FEED_FETCH = frozenset({"feed", "fetch"})


class Broken(Enum):
    """A violation of an operator's schema."""

    NEEDED_ATTRIBUTE = auto()
    NEEDED_INPUT = auto()
    NEEDED_OUTPUT = auto()
    ATTRIBUTE_TYPE = auto()
    SINGLE_VARIABLE = auto()


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """Where an operator violates its schema: what is broken, and the end of a sentence about the operator."""

    broken: Broken
    text: str


def require_valid(program: Program, source: str = "the program") -> None:
    """Raise OperatorError naming the first operator of `source` that does not match its schema."""
    for block in program.blocks:
        for op in block.ops:
            require_valid_operator(op, find_op(op.type), source)


def require_valid_operator(op: Operator, info: OpInfo | None, source: str = "") -> None:
    """Raise OperatorError if one operator does not match its schema; `info` None: it has no schema.

    A required attribute that the kernel does not read may be missing: later versions of Paddle renamed some.
    """
    fault = next(schema_faults(op, info, info.kernel_attrs if info else ()), None)
    if fault is not None:
        within = f" of {source}" if source else ""
        raise OperatorError(
            f"operator {op.type} in block {op.block.idx}{within} {fault.text}",
            hint=Hint("fluidtool.check lists all such faults", "'fluidtool check' lists all such faults"),
            location=Location(source or None, op.block.idx, op.idx, op.type),
        )


def schema_faults(op: Operator, info: OpInfo | None, needed: Collection[str] | None = None) -> Iterator[SchemaFault]:
    """Every violation of an operator's schema; `needed`: the attributes that must be present, of those required.

    What a raw kernel gets it looks at itself; `feed` and `fetch` have none. Of the outputs only the first must be there: what
    others would hold is dropped.
    """
    if info is None:
        return
    declared = info.attrs
    for name, found in op._attr_types.items():
        spec = declared.get(name)
        if spec is None:
            if found in (AttrType.BLOCK, AttrType.BLOCKS):
                yield SchemaFault(Broken.ATTRIBUTE_TYPE, f"names a block in attribute {name}, but runs none")
        elif found in VARIABLES and spec.variable:
            continue
        elif found not in (spec.type, spec.also) and not fits(spec, op._attrs[name], found):
            text = f"has attribute {name} {_a(attr_type_name(found))}, expected {spec.type.name}"
            yield SchemaFault(Broken.ATTRIBUTE_TYPE, text)
    for name, spec in declared.items():
        there = name in op._attr_types or spec.renamed in op._attr_types
        if spec.required and not there and (needed is None or name in needed):
            yield SchemaFault(Broken.NEEDED_ATTRIBUTE, f"lacks the required attribute {name} ({spec.type.name})")
    for slot in info.inputs:
        names = op._inputs.get(slot.name, ())
        if len(names) > 1 and not slot.duplicable:
            yield SchemaFault(
                Broken.SINGLE_VARIABLE, f"names {len(names)} variables for its input {slot.name}, which takes one"
            )
        elif not names and _required_input(slot, info):
            yield SchemaFault(Broken.NEEDED_INPUT, f"names no variable for its required input {slot.name}")
    for number, slot in enumerate(info.outputs):
        names = op._outputs.get(slot.name, ())
        if len(names) > 1 and not slot.duplicable:
            yield SchemaFault(
                Broken.SINGLE_VARIABLE, f"names {len(names)} variables for its output {slot.name}, which takes one"
            )
        elif not names and not number and _required_output(slot):
            yield SchemaFault(Broken.NEEDED_OUTPUT, f"names no variable for its required output {slot.name}")


def fits(spec: AttrSpec, value: Any, found: int) -> bool:
    """Whether a value of another type than declared is acceptable.

    Paddle 1.8.5 accepts integers as booleans and floats, and INT or FLOAT as LONG (attribute.h); later versions
    write INT as LONG or SCALAR, and FLOAT as FLOAT64. An empty list is one of every type.
    """
    wanted, never = spec.type, (AttrType.BLOCK, AttrType.BLOCKS, *VARIABLES)
    if value == []:
        return wanted in _ITEMS or wanted == AttrType.BLOCKS
    if wanted in never or found in never:
        return False
    if wanted in _ITEMS:
        return isinstance(value, list) and all(isinstance(item, _ITEMS[wanted]) for item in value)
    if wanted == AttrType.LONG and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _VALUES[wanted])


# The types of Python in which an attribute of a type, or an item of its list, may come.
_VALUES: dict[AttrType, tuple[type, ...]] = {
    AttrType.INT: (int,),
    AttrType.LONG: (int,),
    AttrType.BOOLEAN: (int, float),
    AttrType.FLOAT: (int, float),
    AttrType.FLOAT64: (int, float),
    AttrType.STRING: (str,),
}
_ITEMS: dict[AttrType, tuple[type, ...]] = {
    AttrType.INTS: (int,),
    AttrType.LONGS: (int,),
    AttrType.BOOLEANS: (int,),
    AttrType.FLOATS: (int, float),
    AttrType.FLOAT64S: (int, float),
    AttrType.STRINGS: (str,),
}


def _required_input(slot: Slot, info: OpInfo) -> bool:
    return not (slot.dispensable or slot.duplicable) and (not info.raw or info.type in FEED_FETCH)


def _required_output(slot: Slot) -> bool:
    return not (slot.dispensable or slot.duplicable or slot.intermediate or GRAD in slot.name)


def _a(type_name: str) -> str:
    return type_name if type_name.startswith("of ") else f"as {type_name}"
