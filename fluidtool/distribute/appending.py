"""Appending operators to programs as Paddle does: defaults filled in, outputs declared; no call stack, so that the same
plan always gives the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from fluidtool.distribute.sharding import Shard
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.roles import CALLSTACK_ATTR, DEVICE_ATTR, NAMESCOPE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.building import prepare
from fluidtool.ops.inference import infer_declared

CONTROL = "__control_var"
RPC, DIST = int(OpRole.RPC), int(OpRole.Dist)
Names = Mapping[str, Iterable[str]]
# What programs say of their own distribution, and servers take over (Paddle 1.8.5 framework.py, _copy_dist_param_info_from).
DISTRIBUTION_FIELDS = (
    "_is_distributed",
    "_is_chief",
    "_parameters_on_pservers",
    "_endpoints",
    "_ps_endpoint",
    "_distributed_lookup_table",
)


def make(
    block: Block,
    kind: str,
    inputs: Names,
    outputs: Names,
    attrs: Mapping[str, Any] | None = None,
    *,
    role: int = 0,
    role_var: Iterable[str] = (),
) -> Operator:
    """An operator with this role, not yet put in."""
    framework = {
        ROLE_ATTR: int(role),
        ROLE_VAR_ATTR: list(role_var),
        NAMESCOPE_ATTR: "/",
        CALLSTACK_ATTR: [],
        DEVICE_ATTR: "",
    }
    given = {slot: list(names) for slot, names in inputs.items()}
    made = {slot: list(names) for slot, names in outputs.items()}
    op = Operator(block, type=kind, inputs=given, outputs=made, attrs={**framework, **(attrs or {})})
    prepare(op)
    return op


def insert(block: Block, index: int, op: Operator) -> Operator:
    """Put an operator before position `index` and declare what it implies of its outputs."""
    block.ops.insert(index, op)
    block.program.touch()
    infer_declared(op)
    return op


def append(
    block: Block, kind: str, inputs: Names, outputs: Names, attrs: Mapping[str, Any] | None = None, **role: Any
) -> Operator:
    """Make an operator and put it last; arguments of `make`."""
    return insert(block, len(block.ops), make(block, kind, inputs, outputs, attrs, **role))


def append_copy(
    block: Block, op: Operator, inputs: Names, outputs: Names, changed: Mapping[str, Any] | None = None
) -> Operator:
    """Append the same operator with other variables and the attributes `changed`, outside all name scopes."""
    attrs = {name: op.attr(name) for name in op.attr_names} | {NAMESCOPE_ATTR: "/"} | dict(changed or {})
    return append(block, op.type, inputs, outputs, attrs)


def control_variable(block: Block) -> str:
    """Declare a variable that stands for the order of two operators; its name is new in the block."""

    def is_free(number: int) -> bool:
        return f"{CONTROL}@{number}" not in block.vars

    number = bisect_left(range(len(block.vars)), True, key=is_free)  # they were numbered one after the other
    while not is_free(number):
        number += 1
    return block.create_var(name=f"{CONTROL}@{number}").name


def declare_shard(block: Block, shard: Shard, *, persistable: bool = False) -> Variable:
    """Declare a shard under its name."""
    level = shard.lod_level or None
    return block.create_var(
        name=shard.name, persistable=persistable, type=shard.type, dtype=shard.dtype, shape=shard.shape, lod_level=level
    )


def declare_like(block: Block, var: Variable, name: str, *, persistable: bool = False) -> Variable:
    """Declare a variable of the kind, data type and shape of another."""
    return block.create_var(name=name, persistable=persistable, type=var.type, dtype=var.dtype, shape=var.shape)


def copy_distribution_fields(program: Program, source: Program) -> None:
    """Take over what a program says of its distribution."""
    for field in DISTRIBUTION_FIELDS:
        setattr(program, field, getattr(source, field))
