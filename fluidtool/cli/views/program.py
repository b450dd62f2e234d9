"""What the views of `inspect` share: small tables and texts of variables and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.cli.render import Table, table
from fluidtool.ir import Block, Operator
from fluidtool.shapes import shape_text
from fluidtool.summary import Declared, declaration

if TYPE_CHECKING:
    from fluidtool.report import inspect as report
    from fluidtool.report.common import SizedInput


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
        sizes = "" if item.shape is None else shape_text(item.shape)
        type_name = item.data_type if item.data_type != "?" else ""
        out.add(item.name, kind, type_name, sizes, item.lod_level or "", "yes" if item.persistable else "")
    return out


def slots_text(slots: Mapping[str, list[str]]) -> str:
    """'X=a, b' line by line; slots without variables are left out."""
    return "\n".join(f"{slot}={', '.join(names)}" for slot, names in slots.items() if names)


def shaped_slots_text(slots: Mapping[str, list[str]], block: Block) -> str:
    """'X=a (-1, 3), b (3,)' line by line, with the shapes that are declared."""
    return slots_text({slot: [_with_shape(name, block) for name in names] for slot, names in slots.items()})


def _with_shape(name: str, block: Block) -> str:
    shape = declared_shape(name, block)
    return name if shape is None else f"{name} {shape_text(shape)}"


def declared_shape(name: str, block: Block) -> tuple[int, ...] | None:
    """The shape that the program declares for a variable; None if none."""
    var = block.find_var_recursive(name)
    return tuple(var.shape) if var is not None and var.has_shape else None


def shapes_of(op: Operator) -> dict[str, tuple[int, ...] | None]:
    """The declared shapes of the variables of an operator."""
    return {name: declared_shape(name, op.block) for name in (*op.input_arg_names, *op.output_arg_names)}


def operator_data(position: int, op: Operator) -> report.Operator:
    """Position, type, inputs and outputs."""
    return {"operator": position, "type": op.type, "inputs": op.inputs, "outputs": op.outputs}


def variable_data(found: Declared) -> report.Variable:
    """What a program declares of a variable."""
    return {
        "name": found.name,
        "kind": None if found.kind == "?" else found.kind,
        "data_type": None if found.data_type == "?" else found.data_type,
        "shape": found.shape,
        "lod_level": found.lod_level,
        "persistable": found.persistable,
    }


def sized_input(name: str, shape: Sequence[int]) -> SizedInput:
    """An input of this shape."""
    return {"name": name, "shape": shape}


def attributes(op: Operator) -> dict[str, Any]:
    """The attributes; blocks by their index."""
    return {name: op.attr(name) for name in op.attr_names}
