"""`activations(program, inputs)`: how much memory the values that are no parameters take, without running.

Two figures, since runtimes differ: one keeps every value to the end of the run unless a `delete_var` operator takes it
away (Paddle's executor without garbage collection, for which memory_optimize and release_memory were made), the other
drops each value after its last use (Paddle's garbage collection, and fluidtool itself).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from fluidtool.errors import FluidError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import sub_block_operators
from fluidtool.ops.inference import declared_meta, infer_operator
from fluidtool.ops.schema import TensorMeta
from fluidtool.tensor import numpy_dtype

DELETE = "delete_var"


@dataclass(frozen=True, slots=True)
class Activations:
    """The largest number of bytes at once: `kept` to the end, or freed after their last use (`live`).

    `unknown` are variables whose sizes only a run can tell; they count as nothing.
    """

    kept: int
    live: int
    unknown: tuple[str, ...] = ()


def activations(
    program: Program, inputs: Mapping[str, TensorMeta] | None = None, keep: Collection[str] = (), batch: int = 1
) -> Activations:
    """Follow the operators of block 0; those of sub-blocks count as one round. A first size of -1 counts as `batch`.

    A name that is written again takes what the largest of its values takes, as a buffer does that is used again.
    inputs: shapes of what is fed. keep: names that are not freed after their last use, since they are fetched.
    """
    return _Walk(program, dict(inputs or {}), batch).run(frozenset(keep))


class _Walk:
    """One pass over block 0: the metadata that names have by now, the bytes that they hold."""

    def __init__(self, program: Program, metas: dict[str, TensorMeta], batch: int) -> None:
        self.program, self.metas, self.batch = program, metas, batch
        self.unknown: dict[str, None] = {}

    def run(self, keep: frozenset[str]) -> Activations:
        block = self.program.global_block()
        names = [self._names(op) for op in block.ops]
        last = {name: position for position, used in enumerate(names) for name in used}
        kept: dict[str, int] = {}
        live: dict[str, int] = {}
        peaks = [0, 0]
        for name in self.metas:
            kept[name] = live[name] = self._size(block, name)
        for position, op in enumerate(block.ops):
            inner = self._infer(op)
            for name in names[position]:
                size = self._size(block, name)
                for held in (kept, live):
                    held[name] = max(held.get(name, 0), size)
            for index, held in enumerate((kept, live)):
                peaks[index] = max(peaks[index], sum(held.values()) + inner)
            for name in op.input_arg_names if op.type == DELETE else ():
                kept.pop(name, None)
                live.pop(name, None)
            for name in names[position]:
                if last[name] == position and name not in keep:
                    live.pop(name, None)
        return Activations(peaks[0], peaks[1], tuple(self.unknown))

    def _names(self, op: Operator) -> dict[str, None]:
        """The variables of block 0 that an operator, with the blocks below it, reads or writes; parameters left out."""
        block = self.program.global_block()
        found: dict[str, None] = {}
        for each in (op, *sub_block_operators(self.program, op)):
            for name in (*each.input_arg_names, *each.output_arg_names):
                var = block.vars.get(name)
                if var is not None and not var.persistable and (each.block is block or name not in each.block.vars):
                    found[name] = None
        return found

    def _infer(self, op: Operator) -> int:
        """Take what an operator's outputs are into account; returns the bytes of the variables of blocks below it."""
        inner = 0
        for index in op.sub_blocks():
            below = self.program.block(index)
            for each in below.ops:
                inner += self._infer(each)
            inner += sum(self._size(below, var.name) for var in below.vars.values() if not var.persistable)
        try:
            found = infer_operator(op, lambda name: self._meta(op.block, name))
        except FluidError:  # `fluidtool check` reports what cannot work; declarations serve here
            found = {}
        written = {name: meta for name in op.output_arg_names if (meta := self._declared(op.block, name)) is not None}
        self.metas |= written | found
        return inner

    def _meta(self, block: Block, name: str) -> TensorMeta | None:
        return self.metas.get(name) or self._declared(block, name)

    def _declared(self, block: Block, name: str) -> TensorMeta | None:
        meta = declared_meta(block.find_var_recursive(name))
        return None if meta is None else meta.with_shape(self._with_batch(meta.shape))

    def _with_batch(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.batch, *shape[1:]) if shape and shape[0] < 0 else shape

    def _size(self, block: Block, name: str) -> int:
        meta = self._meta(block, name)
        shape = () if meta is None else self._with_batch(meta.shape)
        if meta is None or any(size < 0 for size in shape):
            self.unknown[name] = None
            return 0
        return prod(shape) * numpy_dtype(meta.dtype).itemsize
