"""Recompute (Chen et al. 2016): the backward pass computes forward segments again between checkpoints.

The segments and names are those of Paddle 1.8.5 (backward.py); its two scratch blocks are not left in the program.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fluidtool.errors import UnsupportedOperatorError
from fluidtool.ir import Block, Operator, unique_name
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ops.gradient import OpDescription, make_grad_ops
from fluidtool.passes.backward.descriptions import drop_no_grad, output_arguments, rename, sum_repeated
from fluidtool.proto.enums import AttrType, VarType

Segment = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Uses:
    """Which operators, by position, write and read each variable."""

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
    names = sorted({n for n in checkpoints if uses.known(n)}, key=lambda n: max(uses.writers.get(n, [-1])))
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
    """Give every dropout a `seed` operator, so that computing it again gives the same mask."""
    out: list[Operator] = []
    for op in ops:
        if op.type == "dropout":
            name = unique_name.generate(unique_name.generate("seed") + ".tmp")
            var = block.create_var(name=name, dtype=VarType.INT32)
            seed = int(op.get_attr("seed", 0)) if op.get_attr("fix_seed") else 0
            out.append(block.insert_op(op.idx, type="seed", outputs={"Out": [var]}, attrs={"seed": seed}))
            op.set_input("Seed", [name])
            op.remove_attr("fix_seed")
            op.remove_attr("seed")
        out.append(op)
    return out


def _segments(uses: _Uses, names: Sequence[str]) -> list[Segment]:
    """The runs of operators between checkpoints, with what comes before the first."""
    segments: list[Segment] = []
    if len(names) == 1:
        last = max(uses.writers.get(names[0], [-1]))
        if last > 0:
            segments.append((0, last + 1))
    for before, after in itertools.pairwise(names):
        first, last = min(uses.readers.get(before, [10**9])), max(uses.writers.get(after, [-1]))
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
            held |= {n for n in op.output_arg_names if any(i >= last for i in uses.readers.get(n, []))}
            held |= {n for n in op.input_arg_names if any(i < first for i in uses.writers.get(n, []))}
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
    for old, new in renamed.items():
        rename(description, old, new)
