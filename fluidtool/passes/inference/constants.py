"""`fold-constants`: what the parameters alone determine is computed once and becomes a parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.dataflow import operator_effects
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.surgery import copy_operator
from fluidtool.ops.inference import Inferred, infer_program
from fluidtool.passes.inference.queries import is_persistable, is_pure, is_tensor, trains, writers
from fluidtool.passes.inference.rewriting import drop_unused
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.records import dataclass
from fluidtool.runtime.executor import Executor
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor, Place, numpy_dtype, var_type_of

NAME = "fold-constants"
SIZE_LIMIT = 1 << 20  # bytes that the results of an operator may take; more only where its constants take as much

# Operators that read the dimensions of an input and never its numbers: which dimensions, None for all of them.
DIMENSIONS_READ: dict[str, dict[str, tuple[int, ...] | None]] = {
    "shape": {"Input": None},
    "fill_zeros_like": {"X": None},
    "fill_any_like": {"X": None},
    "prior_box": {"Input": (2, 3), "Image": (2, 3)},
    "density_prior_box": {"Input": (2, 3), "Image": (2, 3)},
    "anchor_generator": {"Input": (2, 3)},
}


def fold_constants(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Compute operators whose inputs are constants and store what is still needed as parameters, in place.

    Constants are persistable variables with a value that no operator writes, and results of operators without inputs.
    Some operators need dimensions only (`shape`, `prior_box`): declared ones are constants too. A result may take
    SIZE_LIMIT bytes, or as many as what it is computed from. What an operator would write to a persistable variable at
    every run (the scale of a quantised weight) is left in the scope, too. Only operators of block 0 are folded, and none in
    programs that train. A parameter that is fed without a feed operator must be named in `keep`.
    """
    ops = [op for block in program.blocks for op in block.ops]
    read = frozenset(name for op in ops for name in op.input_arg_names)
    deleted = frozenset(name for op in ops if op.type == "delete_var" for name in op.input_arg_names)
    inferred, kept = infer_program(program), frozenset(keep)
    folding = _Folding(program, scope, kept, writers(program), inferred, trains(program), read, deleted)
    for position, op in enumerate(program.global_block().ops):
        folding.look_at(position, op)
    if folding.folded:
        folding.store()
        drop_unused(program, keep)
        program.touch()
    return PassResult(tuple(folding.decisions))


@dataclass(slots=True)
class _Folding:
    """One run: the values known so far, and the positions of the operators that gave them."""

    program: Program
    scope: Scope
    keep: frozenset[str]
    written: Counter[str]
    inferred: Inferred
    training: bool
    read: frozenset[str]
    deleted: frozenset[str]
    values: dict[str, LoDTensor] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    sources: set[int] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    executor: Executor = field(default_factory=Executor)

    @property
    def block(self) -> Block:
        """Block 0."""
        return self.program.global_block()

    def look_at(self, position: int, op: Operator) -> None:
        """Compute the operator if its inputs are known, and note the decision."""
        feeds = self.inputs_of(op) if is_pure(op) and op.output_arg_names else None
        if feeds is None:
            return
        limit = max(SIZE_LIMIT, sum(own_bytes(value.numpy()) for value in feeds.values()))
        why = self.why_not(op) or why_too_large(sum(map(self.expected_bytes, op.output_arg_names)), limit)
        if not why:
            try:
                results = evaluate(op, feeds, self.executor)
                why = self.why_results_not(op, results, limit)
            except FluidError as error:
                why = str(error)
        if not why:
            self.values |= results
            (self.folded if feeds else self.sources).add(position)
        if feeds:
            self.decisions.append(decide(NAME, op, not why, why or "its inputs are constants"))

    def inputs_of(self, op: Operator) -> dict[str, LoDTensor] | None:
        """The values of all inputs, or None when one of them is no constant."""
        found = {}
        for slot, names in op.inputs.items():
            wanted = DIMENSIONS_READ.get(op.type, {}).get(slot, ())
            for name in names:
                value = self.constant(name)
                if value is None and wanted != ():
                    value = self.dimensions(name, wanted)
                if value is None:
                    return None
                found[name] = value
        return found

    def constant(self, name: str) -> LoDTensor | None:
        """The value of a constant."""
        if name in self.values:
            return self.values[name]
        var = self.block.vars.get(name)
        if var is None or not var.persistable or self.written[name] or name in self.keep:
            return None
        holder = self.scope.find_var(name)
        value = holder.value if holder is not None else None
        if not isinstance(value, LoDTensor) or value.array is None or value.offsets:
            return None
        return LoDTensor(value.numpy())

    def dimensions(self, name: str, wanted: tuple[int, ...] | None) -> LoDTensor | None:
        """A tensor of zeros (without memory) that has the dimensions wanted, when the program determines these."""
        meta = self.inferred.find(self.block, name)
        if meta is None or meta.lod_level:
            return None
        axes = range(meta.rank) if wanted is None else wanted
        if any(axis >= meta.rank or meta.shape[axis] < 0 for axis in axes):
            return None
        shape = tuple(max(size, 1) for size in meta.shape) if wanted is not None else meta.shape
        return LoDTensor(np.broadcast_to(np.zeros((), numpy_dtype(meta.dtype)), shape))

    def why_not(self, op: Operator) -> str:
        """Why the outputs of an operator may not become parameters; empty when they may."""
        if self.training:
            return "the program trains"
        if all(is_persistable(self.block, name) for name in op.output_arg_names):
            return "it initializes a persistable variable"
        for name in op.output_arg_names:
            if self.written[name] != 1:
                return f"{name} is written more than once"
            if not is_tensor(self.block, name):
                return f"{name} is not a tensor of block 0"
            if self.block.var(name).persistable and name in self.read:
                return f"{name} is persistable, and read by the program"
            if sum(name in block.vars for block in self.program.blocks) != 1:
                return f"{name} is declared in more than one block"
            if name in self.deleted:
                return f"{name} is deleted by the program"
        return ""

    def expected_bytes(self, name: str) -> int:
        """How much a result will take, 0 where the program does not tell."""
        meta = self.inferred.find(self.block, name)
        return (
            0 if meta is None or min(meta.shape, default=1) < 0 else numpy_dtype(meta.dtype).itemsize * prod(meta.shape)
        )

    def why_results_not(self, op: Operator, results: Mapping[str, LoDTensor], limit: int) -> str:
        """Why computed results are not to be stored; empty when they may be."""
        if any(value.offsets for value in results.values()):
            return "the result has a LoD"
        for name in op.output_arg_names:
            if name not in results and (name in self.read or name in self.keep):
                return f"{name} is read, but holds dimensions only"
        return why_too_large(sum(value.numpy().nbytes for value in results.values()), limit)

    def store(self) -> None:
        """Take the folded operators out; results that something else needs become parameters of block 0."""
        gone = self.folded | self.sources
        ops = self.block.ops
        needed = set(self.keep)
        for position, op in enumerate(ops):
            if position not in gone:
                needed |= operator_effects(self.program, op).reads
        for position in self.folded:
            for name in ops[position].output_arg_names:
                if name in self.values and (name in needed or self.block.var(name).persistable):
                    self.declare(name)
        kept = {position for position in self.sources if needed.intersection(ops[position].output_arg_names)}
        used = {name for position in self.folded for name in ops[position].input_arg_names}
        idle = {position for position in self.sources - kept if used.isdisjoint(ops[position].output_arg_names)}
        self.block.ops = [op for position, op in enumerate(ops) if position not in gone or position in kept | idle]

    def declare(self, name: str) -> None:
        """Make a result a parameter, where the other parameters are."""
        array = self.values[name].numpy()
        self.block.remove_var(name)  # it may be declared with another data type or shape than it turned out to have
        self.block.create_parameter(name=name, shape=list(array.shape), dtype=var_type_of(array.dtype), trainable=False)
        tensor = LoDTensor()
        tensor.set(array, self.place())
        self.scope.var(name).value = tensor

    def place(self) -> Place | None:
        """Where the parameters are; None when there are none."""
        holders = (self.scope.find_var(name) for name, var in self.block.vars.items() if var.persistable)
        values = (holder.value for holder in holders if holder is not None)
        return next(
            (value.place() for value in values if isinstance(value, LoDTensor) and value.array is not None), None
        )


def why_too_large(size: int, limit: int) -> str:
    """The reason not to store results of this size; empty when they are small enough."""
    return f"the result would take {size} bytes, more than {limit}" if size > limit else ""


def own_bytes(array: Any) -> int:
    """The memory behind an array; nothing behind dimensions."""
    return int(array.nbytes) if all(array.strides) else int(array.itemsize)


def evaluate(op: Operator, feeds: Mapping[str, LoDTensor], executor: Executor) -> dict[str, LoDTensor]:
    """The outputs of one operator that hold a value.

    Raises the operator's errors.
    """
    program = Program()
    block = program.global_block()
    for name in {*op.input_arg_names, *op.output_arg_names} - {EMPTY, ""}:
        block.add_var(_plain_copy(op.block.find_var_recursive(name), name, block))
    block.ops.append(copy_operator(op, block))
    outputs = [name for name in op.output_arg_names if name != EMPTY]
    values = executor.run(program, dict(feeds), outputs, Scope(), optional=outputs)
    found = zip(outputs, values, strict=True)
    return {name: value for name, value in found if isinstance(value, LoDTensor) and value.array is not None}


def _plain_copy(var: Variable | None, name: str, block: Block) -> Variable:
    if var is None or not var.has_shape:
        return Variable(block, name=name)
    return Variable(block, name=name, shape=var.shape, dtype=var.dtype, lod_level=var.lod_level)
