"""Two programs compared operator by operator, attribute by attribute, variable by variable (call stacks aside)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.roles import CALLSTACK_ATTR

# Slots that real Paddle fills from Python sets, so in a random order; slots (or attributes) in one tuple go together.
UNORDERED: dict[str, tuple[tuple[str, ...], ...]] = {
    "while": (("X",), ("Out",)),
    "while_grad": (("X", "X@GRAD"), ("Out",), ("Out@GRAD", "original_output_grad")),
    "conditional_block": (("Input",), ("Out",)),
    "conditional_block_grad": (("Input", "Input@GRAD"), ("Out", "Out@GRAD")),
    "recurrent": (("parameters",),),
    "recurrent_grad": (("parameters", "parameters@GRAD"),),
}


def differences(ours: Program, theirs: Program) -> Iterator[str]:
    """What differs, a line each."""
    if len(ours.blocks) != len(theirs.blocks):
        yield f"{len(ours.blocks)} blocks, expected {len(theirs.blocks)}"
    for mine, other in zip(ours.blocks, theirs.blocks, strict=False):
        yield from block_differences(mine, other)


def block_differences(ours: Block, theirs: Block) -> Iterator[str]:
    at = f"block {ours.idx}"
    for field in ("parent_idx", "forward_block_idx"):
        if getattr(ours, field) != getattr(theirs, field):
            yield f"{at}: {field} {getattr(ours, field)}, expected {getattr(theirs, field)}"
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
    mine, other = arguments(ours), arguments(theirs)
    for slot in sorted(set(mine) | set(other)):
        if mine.get(slot) != other.get(slot):
            yield f"{slot} {mine.get(slot)}, expected {other.get(slot)}"
    mine_attrs, other_attrs = attributes(ours), attributes(theirs)
    for name in sorted(set(mine_attrs) | set(other_attrs)):
        if mine_attrs.get(name) != other_attrs.get(name):
            yield f"attribute {name} is {mine_attrs.get(name)}, expected {other_attrs.get(name)}"


def arguments(op: Operator) -> dict[str, Any]:
    """The variables by slot, where their order says nothing in order of their names."""
    found: dict[str, Any] = {f"input {slot}": names for slot, names in op.inputs.items() if names}
    found |= {f"output {slot}": names for slot, names in op.outputs.items() if names}
    plain: Mapping[str, list[str]] = {slot.split()[1]: names for slot, names in found.items()}
    for slots in UNORDERED.get(op.type, ()):
        lists = [
            plain[slot] if slot in plain else op.attr(slot) for slot in slots if slot in plain or op.has_attr(slot)
        ]
        for slot in slots:
            found.pop(f"input {slot}", None)
            found.pop(f"output {slot}", None)
        found[" with ".join(slots)] = sorted(zip(*lists, strict=False))
    return found


def attributes(op: Operator) -> dict[str, Any]:
    import struct

    def single(value: Any) -> Any:
        """A float as the file keeps it."""
        return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value

    found = {}
    for name in op.attr_names:
        if name != CALLSTACK_ATTR and not any(name in slots for slots in UNORDERED.get(op.type, ())):
            value = op.attr(name)
            value = [single(v) for v in value] if isinstance(value, list) else single(value)
            found[name] = (getattr(op.attr_type(name), "name", op.attr_type(name)), value)
    if found.get("op_role_var", (None, 0))[1] == []:
        del found["op_role_var"]
    return found


def variable_differences(ours: Variable, theirs: Variable) -> Iterator[str]:
    # Paddle multiplies unknown sizes: -4 says no more than -1.
    shapes = [tuple(max(size, -1) for size in var.shape) for var in (ours, theirs)]
    if shapes[0] != shapes[1]:
        yield f"shape {shapes[0]}, expected {shapes[1]}"
    for field in ("type", "dtype", "lod_level", "persistable", "need_check_feed"):
        if getattr(ours, field) != getattr(theirs, field):
            yield f"{field} {getattr(ours, field)}, expected {getattr(theirs, field)}"
