"""Recompute (Chen et al. 2016): the backward pass computes forward segments again between checkpoints.

The segments and names are those of Paddle 1.8.5 (backward.py); its two scratch blocks are not left in the program.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ir import Block, Operator, unique_name
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ops.gradient import OpDescription, make_grad_ops
from fluidtool.passes.backward.descriptions import drop_no_grad, output_arguments, sum_repeated
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.records import dataclass

Segment = tuple[int, int]
NEVER = sys.maxsize


@dataclass(frozen=True, slots=True)
class _Uses:
    """Which operators, by ascending position, write and read each variable."""

    writers: dict[str, list[int]]
    readers: dict[str, list[int]]

    @classmethod
    def of(cls, ops: Sequence[Operator]) -> _Uses:
        writers: defaultdict[str, list[int]] = defaultdict(list)
        readers: defaultdict[str, list[int]] = defaultdict(list)
        for position, op in enumerate(ops):
            for name in op.input_arg_names:
                readers[name].append(position)
            for name in op.output_arg_names:
                writers[name].append(position)
        return cls(dict(writers), dict(readers))

    def known(self, name: str) -> bool:
        return name in self.writers or name in self.readers

    def first_reader(self, name: str) -> int:
        """The position of the first operator that reads the variable; behind all without one."""
        return self.readers.get(name, [NEVER])[0]

    def last_reader(self, name: str) -> int:
        """The position of the last operator that reads the variable; -1 without one."""
        return self.readers.get(name, [-1])[-1]

    def first_writer(self, name: str) -> int:
        """The position of the first operator that writes the variable; behind all without one."""
        return self.writers.get(name, [NEVER])[0]

    def last_writer(self, name: str) -> int:
        """The position of the last operator that writes the variable; -1 without one."""
        return self.writers.get(name, [-1])[-1]


def recompute_gradients(
    block: Block, path: Sequence[Operator], no_grad: Collection[str], checkpoints: Sequence[str]
) -> tuple[list[OpDescription], dict[str, str]]:
    """Gradient operators of `path` with the forward segments between checkpoints computed again.

    Returns the operators to append and gradient name -> forward name. Raises UnsupportedOperatorError for control flow.
    """
    ops = _seed_dropouts(block, list(path))
    for op in ops:
        if op.sub_blocks():
            raise UnsupportedOperatorError(
                f"Recompute don't support ops with sub_block: operator {op.type}; leave it out"
            )
    uses = _Uses.of(ops)
    names = sorted({n for n in checkpoints if uses.known(n)}, key=uses.last_writer)
    segments = _segments(uses, names)
    held = _held(block, ops, uses, segments)
    kept = held | set(names)
    descriptions: list[OpDescription] = []
    grad_to_var: dict[str, str] = {}
    renamed: dict[str, str] = {}

    def differentiate(selected: Sequence[Operator], rename_too: bool) -> None:
        for op in reversed(selected):
            for made in make_grad_ops(op, no_grad):
                forward = {*op.input_arg_names, *op.output_arg_names}
                grad_to_var.update(
                    {n: n.removesuffix("@GRAD") for n in output_arguments(made) if n.removesuffix("@GRAD") in forward}
                )
                if rename_too:
                    _rename_all(made, renamed)
                descriptions.append(made)

    end = len(ops)
    for number, (first, last) in enumerate(reversed(segments)):
        differentiate(ops[last:end], rename_too=False)
        end = first
        again = ops[first:last]
        for op in again:
            for name in (*op.input_arg_names, *op.output_arg_names):
                if not block.var_recursive(name).persistable and name not in kept:
                    renamed.setdefault(name, f"{name}.subprog_{number}")
        for op in again:
            if _needed(block, op, kept):
                copy = _describe(op)
                _rename_all(copy, renamed)
                descriptions.append(copy)
        differentiate(again, rename_too=True)
    if not segments:
        differentiate(ops, rename_too=False)
    needed, _ = drop_no_grad(sum_repeated(descriptions, block.idx), no_grad)
    return needed, grad_to_var


def _seed_dropouts(block: Block, ops: list[Operator]) -> list[Operator]:
    """Give every dropout of `ops`, in the block's order, a `seed` operator, so that computing it again gives the same mask."""
    out: list[Operator] = []
    positions = {id(op): position for position, op in enumerate(block.ops)}
    for number, op in enumerate(ops):
        if op.type == "dropout":
            name = unique_name.generate(unique_name.generate("seed") + ".tmp")
            var = block.create_var(name=name, dtype=VarType.INT32)
            seed = int(op.get_attr("seed", 0)) if op.get_attr("fix_seed") else 0
            position = positions[id(op)] + len(out) - number  # behind the seeds that were inserted
            out.append(block.insert_op(position, type="seed", outputs={"Out": [var]}, attrs={"seed": seed}))
            op.set_input("Seed", [name])
            op.remove_attr("fix_seed")
            op.remove_attr("seed")
        out.append(op)
    return out


def _segments(uses: _Uses, names: Sequence[str]) -> list[Segment]:
    """The runs of operators between checkpoints, with what comes before the first."""
    segments: list[Segment] = []
    if len(names) == 1:
        last = uses.last_writer(names[0])
        if last > 0:
            segments.append((0, last + 1))
    for before, after in itertools.pairwise(names):
        first, last = uses.first_reader(before), uses.last_writer(after)
        if first < last:
            segments.append((first, last + 1))
    if segments and segments[0][0] != 0:
        segments.insert(0, (0, segments[0][0]))
    return segments


def _held(block: Block, ops: Sequence[Operator], uses: _Uses, segments: Sequence[Segment]) -> set[str]:
    """What is not computed again: what crosses a segment's border, seeds, and inputs."""
    held = {name for op in ops if op.type in ("seed", "read") for name in op.output_arg_names}
    for first, last in segments:
        for op in ops[first:last]:
            held |= {name for name in op.output_arg_names if uses.last_reader(name) >= last}
            held |= {name for name in op.input_arg_names if uses.first_writer(name) < first}
    for name in uses.readers:
        if name not in uses.writers and not block.var_recursive(name).persistable:
            held.add(name)
    return held


def _needed(block: Block, op: Operator, kept: set[str]) -> bool:
    """Whether computing an operator again gives anything that is not there any more."""
    return any(
        name not in kept and not (block.has_var(name) and block.var(name).persistable) for name in op.output_arg_names
    )


def _describe(op: Operator) -> OpDescription:
    attrs = {name: op.attr(name) for name in op.attr_names} | {ROLE_ATTR: int(OpRole.Backward)}
    types = {name: op.attr_type(name) for name in op.attr_names} | {ROLE_ATTR: AttrType.INT}
    return OpDescription(
        op.type,
        {slot: list(names) for slot, names in op.inputs.items()},
        {slot: list(names) for slot, names in op.outputs.items()},
        attrs,
        types,
    )


def _rename_all(description: OpDescription, renamed: dict[str, str]) -> None:
    for names in (*description.inputs.values(), *description.outputs.values()):
        names[:] = [renamed.get(name, name) for name in names]
