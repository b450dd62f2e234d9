"""Two programs compared operator by operator, attribute by attribute, variable by variable (call stacks aside)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.roles import CALLSTACK_ATTR


def differences(ours: Program, theirs: Program) -> Iterator[str]:
    """What differs, a line each."""
    if len(ours.blocks) != len(theirs.blocks):
        yield f"{len(ours.blocks)} blocks, expected {len(theirs.blocks)}"
    for mine, other in zip(ours.blocks, theirs.blocks, strict=False):
        yield from block_differences(mine, other)


def block_differences(ours: Block, theirs: Block) -> Iterator[str]:
    at = f"block {ours.idx}"
    for fact in ("parent_idx", "forward_block_idx"):
        if getattr(ours, fact) != getattr(theirs, fact):
            yield f"{at}: {fact} {getattr(ours, fact)}, expected {getattr(theirs, fact)}"
    types = [op.type for op in ours.ops], [op.type for op in theirs.ops]
    if types[0] != types[1]:
        position = next((i for i, (a, b) in enumerate(zip(*types, strict=False)) if a != b), min(map(len, types)))
        yield f"{at}: {len(types[0])} operators, expected {len(types[1])}; from {position}: {types[0][position : position + 4]}"
        yield f"    expected {types[1][position : position + 4]}"
        return
    for position, (mine, other) in enumerate(zip(ours.ops, theirs.ops, strict=True)):
        yield from (f"{at}, op {position} {mine.type}: {text}" for text in operator_differences(mine, other))
    for name in sorted(set(ours.vars) ^ set(theirs.vars)):
        yield f"{at}: variable {name} is {'not expected' if name in ours.vars else 'missing'}"
    for name in sorted(set(ours.vars) & set(theirs.vars)):
        yield from (f"{at}, variable {name}: {t}" for t in variable_differences(ours.vars[name], theirs.vars[name]))


def operator_differences(ours: Operator, theirs: Operator) -> Iterator[str]:
    for kind in ("inputs", "outputs"):
        mine = {slot: names for slot, names in getattr(ours, kind).items() if names}
        other = {slot: names for slot, names in getattr(theirs, kind).items() if names}
        if mine != other:
            yield f"{kind} {mine}, expected {other}"
    mine_attrs, other_attrs = attributes(ours), attributes(theirs)
    for name in sorted(set(mine_attrs) | set(other_attrs)):
        if mine_attrs.get(name) != other_attrs.get(name):
            yield f"attribute {name} is {mine_attrs.get(name)}, expected {other_attrs.get(name)}"


def attributes(op: Operator) -> dict[str, Any]:
    import struct

    def single(value: Any) -> Any:
        """A float as the file keeps it."""
        return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value

    found = {}
    for name in op.attr_names:
        if name != CALLSTACK_ATTR:
            value = op.attr(name)
            value = [single(v) for v in value] if isinstance(value, list) else single(value)
            found[name] = (getattr(op.attr_type(name), "name", op.attr_type(name)), value)
    if found.get("op_role_var", (None, 0))[1] == []:
        del found["op_role_var"]
    return found


def variable_differences(ours: Variable, theirs: Variable) -> Iterator[str]:
    for fact in ("type", "shape", "dtype", "lod_level", "persistable", "need_check_feed"):
        if getattr(ours, fact) != getattr(theirs, fact):
            yield f"{fact} {getattr(ours, fact)}, expected {getattr(theirs, fact)}"
