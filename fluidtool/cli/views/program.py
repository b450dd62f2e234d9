"""What the views of `inspect` share: small tables and texts of variables and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fluidtool.cli.render import Table, shape_text, table
from fluidtool.ir import Block, Operator
from fluidtool.summary import Declared, declaration


def kernel(module: str) -> str:
    """'fluidtool.ops.math.mul' -> 'ops/math/mul'."""
    return module.removeprefix("fluidtool.").replace(".", "/")


def block_title(block: Block) -> str:
    """'' for the only block of a program."""
    if block.program.num_blocks == 1:
        return ""
    return f"Block {block.idx}" + (f" (within block {block.parent_idx})" if block.parent_idx >= 0 else "")


def declared_table(title: str, items: Iterable[Declared]) -> Table:
    """Inputs or outputs."""
    rows = list(items)
    level = any(item.lod_level for item in rows)
    out = table(title, "name", "!type", "!shape", *([">LoD levels"] if level else []))
    for item in rows:
        out.add(item.name, item.data_type, shape_text(item.shape), *([item.lod_level or ""] if level else []))
    return out


def variables_of(block: Block) -> list[Declared]:
    """The declarations of a block, by name."""
    return [declaration(block.vars[name]) for name in sorted(block.vars)]


def variables_table(block: Block) -> Table:
    """The variables of a block."""
    out = table(block_title(block) or "Variables", "variable", "!kind", "!type", "!shape", ">0LoD", "!persists")
    for item in variables_of(block):
        kind = item.kind.lower().replace("_", " ")
        shape = "" if item.shape is None else shape_text(item.shape)
        type_name = item.data_type if item.data_type != "?" else ""
        out.add(item.name, kind, type_name, shape, item.lod_level or "", "yes" if item.persistable else "")
    return out


def slots_text(slots: Mapping[str, list[str]]) -> str:
    """'X=a, b' line by line; slots without variables are left out."""
    return "\n".join(f"{slot}={', '.join(names)}" for slot, names in slots.items() if names)


def operator_data(op: Operator) -> dict[str, Any]:
    """Type, inputs and outputs."""
    return {"type": op.type, "inputs": op.inputs, "outputs": op.outputs}


def attributes(op: Operator) -> dict[str, Any]:
    """The attributes; blocks by their index."""
    return {name: op.attr(name) for name in op.attr_names}
