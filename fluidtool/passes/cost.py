"""What a program costs to run: multiply-adds by operator, and the memory of its activations along a plan.

Counted are the operators that declare how (`ops/multiply_adds.py`), by the sizes of shape inference. A first size that only
a run can tell (the batch, the rows of sequences) counts as the batch asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from fluidtool.ir import Block, Operator, Program
from fluidtool.ops.inference import Inferred, declared_meta, infer_program
from fluidtool.ops.multiply_adds import Shape, Shapes, UnknownShapeError
from fluidtool.ops.registry import find_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.validation import Broken, schema_faults
from fluidtool.records import dataclass
from fluidtool.runtime.plan import Plan
from fluidtool.tensor import numpy_dtype


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-adds of one run; `unknown` are the operators whose sizes cannot be told, `loops` those within loops.

    Operators within sub-blocks count as if they ran once.
    """

    multiply_adds: int
    by_operator: dict[str, int]
    unknown: tuple[str, ...] = ()
    loops: bool = False


def input_metas(
    program: Program, names: Iterable[str], batch: int = 1, shapes: Mapping[str, Shape] | None = None
) -> dict[str, TensorMeta]:
    """The declared inputs with -1 as first size replaced by `batch`, or with the shapes given."""
    metas = {}
    for name in names:
        meta = declared_meta(program.global_block().vars.get(name))
        if meta is None:
            continue
        if shapes and name in shapes:
            meta = meta.with_shape(shapes[name])
        metas[name] = meta.with_shape(with_batch(meta.shape, batch))
    return metas


def with_batch(shape: Shape, batch: int) -> Shape:
    """The shape with `batch` for a first size that only a run can tell."""
    return (batch, *shape[1:]) if shape and shape[0] < 0 else shape


def count(program: Program, inputs: Mapping[str, TensorMeta] | None = None, batch: int = 1) -> Cost:
    """The multiply-adds of a program for inputs of these shapes; first sizes that cannot be told count as `batch`."""
    inferred = infer_program(program, dict(inputs or {}))
    by_operator: dict[str, int] = {}
    unknown: dict[str, None] = {}
    loops = False
    for block in program.blocks:
        for op in block.ops:
            loops = loops or bool(op.sub_blocks())
            info = find_op(op.type)
            if info is None or info.multiply_adds is None:
                continue
            try:
                if any(fault.broken is Broken.ATTRIBUTE_TYPE for fault in schema_faults(op, info)):
                    raise UnknownShapeError
                number = info.multiply_adds(op, _shapes_of(block, op, inferred, batch))
                by_operator[op.type] = by_operator.get(op.type, 0) + number
            except UnknownShapeError:
                unknown[op.type] = None
    return Cost(sum(by_operator.values()), by_operator, tuple(unknown), loops)


def _shapes_of(block: Block, op: Operator, inferred: Inferred, batch: int) -> Shapes:
    def shape(slot: str, index: int = 0, rank: int = 0) -> Shape:
        names = op.output(slot[1:]) if slot.startswith(">") else op.input(slot)
        meta = inferred.find(block, names[index]) if index < len(names) else None
        found = () if meta is None else with_batch(meta.shape, batch)
        if meta is None or len(found) < rank or any(size < 0 for size in found):
            raise UnknownShapeError
        return found

    return shape


# ---------------------------------------------------------------- memory
@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of activations alive while each step of a plan runs; `unknown` names have sizes that cannot be told."""

    by_step: tuple[int, ...]
    unknown: tuple[str, ...]

    @property
    def peak(self) -> int:
        """The most that is alive at once."""
        return max(self.by_step, default=0)


def footprint(plan: Plan, inputs: Mapping[str, TensorMeta] | None = None, batch: int = 1) -> Footprint:
    """Follow the steps of block 0 of a plan: outputs come alive, what a step releases goes; parameters do not count."""
    program = plan.program
    inferred = infer_program(program, dict(inputs or {}))
    block = program.global_block()
    alive: dict[str, int] = {}
    unknown: dict[str, None] = {}

    def take(name: str) -> int:
        var = block.vars.get(name)
        if name in alive or var is None or var.persistable:
            return 0
        size = _nbytes(inferred.find(block, name), batch)
        if size is None:
            unknown[name] = None
        alive[name] = size or 0
        return alive[name]

    in_use = sum(take(name) for name in inputs or {})
    by_step = []
    for step in plan.block(0).steps:
        in_use += sum(take(name) for name in (*step.op.input_arg_names, *step.op.output_arg_names))
        by_step.append(in_use)
        in_use -= sum(alive.pop(name, 0) for name in step.release)
    return Footprint(tuple(by_step), tuple(unknown))


def _nbytes(meta: TensorMeta | None, batch: int) -> int | None:
    shape = () if meta is None else with_batch(meta.shape, batch)
    if meta is None or any(size < 0 for size in shape):
        return None
    return prod(shape) * numpy_dtype(meta.dtype).itemsize
