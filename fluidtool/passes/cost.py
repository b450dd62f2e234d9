"""What a program costs to run: multiply-adds by operator, and the memory of its activations along a plan.

Counted are the operators that multiply matrices or convolve; everything else is small beside them. Sizes come from shape
inference. A first size that only a run can tell (the batch, the rows of sequences) counts as the batch asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from fluidtool.ir import Block, Operator, Program
from fluidtool.ops.inference import Inferred, declared_meta, infer_program
from fluidtool.ops.registry import find_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.validation import Broken, schema_faults
from fluidtool.runtime.plan import Plan
from fluidtool.tensor import numpy_dtype

Shape = tuple[int, ...]
Shapes = Callable[
    ..., Shape
]  # (slot, index=0, rank=0) -> shape of that input, of this rank at least; outputs by '>' + slot
Counter = Callable[[Operator, Shapes], int]


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-adds of one run; `unknown` are the operators whose sizes cannot be told, `loops` those within loops.

    Operators within sub-blocks count as if they ran once.
    """

    multiply_adds: int
    by_operator: dict[str, int]
    unknown: tuple[str, ...] = ()
    loops: bool = False


class Unknown(Exception):
    """A size that cannot be told."""


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
            counter = COUNTERS.get(op.type)
            loops = loops or bool(op.sub_blocks())
            if counter is None:
                continue
            try:
                if any(fault.broken is Broken.ATTRIBUTE_TYPE for fault in schema_faults(op, find_op(op.type))):
                    raise Unknown
                by_operator[op.type] = by_operator.get(op.type, 0) + counter(op, _shapes_of(block, op, inferred, batch))
            except Unknown:
                unknown[op.type] = None
    return Cost(sum(by_operator.values()), by_operator, tuple(unknown), loops)


def _shapes_of(block: Block, op: Operator, inferred: Inferred, batch: int) -> Shapes:
    def shape(slot: str, index: int = 0, rank: int = 0) -> Shape:
        names = op.output(slot[1:]) if slot.startswith(">") else op.input(slot)
        meta = inferred.find(block, names[index]) if index < len(names) else None
        found = () if meta is None else with_batch(meta.shape, batch)
        if meta is None or len(found) < rank or any(size < 0 for size in found):
            raise Unknown
        return found

    return shape


# ---------------------------------------------------------------- how each operator counts
def _convolution(op: Operator, shape: Shapes) -> int:
    """Every output element takes one product for each element of its filter."""
    filters = shape("Filter", 0)
    return prod(shape(">Output", 0)) * prod(filters[1:])


def _transposed(op: Operator, shape: Shapes) -> int:
    """Every input element meets each element of its filter."""
    return prod(shape("Input", 0)) * prod(shape("Filter", 0)[1:])


def _mul(op: Operator, shape: Shapes) -> int:
    """X flattened to [rows, depth] times Y flattened to [depth, columns]."""
    x, y = shape("X", 0), shape("Y", 0)
    return prod(x) * prod(y[int(op.get_attr("y_num_col_dims", 1)) :])


def _fc(op: Operator, shape: Shapes) -> int:
    return prod(shape("Input", 0)) * shape("W", 0, 2)[1]


def _matmul(op: Operator, shape: Shapes) -> int:
    """The elements of the output, each a dot product as long as the last axis of X (or the one before, transposed)."""
    x, y = shape("X", 0, 1), shape("Y", 0, 1)
    transposed = op.get_attr("transpose_X", False) or op.get_attr("trans_x", False)
    depth = x[-2] if transposed and len(x) > 1 else x[-1]
    y_transposed = op.get_attr("transpose_Y", False) or op.get_attr("trans_y", False)
    columns = 1 if len(y) == 1 else y[-2] if y_transposed else y[-1]
    rows = 1 if len(x) == 1 else x[-1] if transposed else x[-2]
    batch_x, batch_y = x[:-2], y[:-2]
    return max(prod(batch_x), prod(batch_y)) * rows * columns * depth


def _recurrent(slot: str, weight: str) -> Counter:
    """Every row of the input goes through the recurrent weight once."""

    def counter(op: Operator, shape: Shapes) -> int:
        return shape(slot, 0, 1)[0] * prod(shape(weight, 0))

    return counter


def _projected(op: Operator, shape: Shapes) -> int:
    """`lstmp`: the recurrent weight, and the projection after it."""
    return shape("Input", 0, 1)[0] * (prod(shape("Weight", 0)) + prod(shape("ProjWeight", 0)))


def _stacked(op: Operator, shape: Shapes) -> int:
    """`rnn`, `cudnn_lstm`: input [time, batch, size]; every weight matrix once for each step and row."""
    slot = "WeightList" if op.input("WeightList") else "W"
    names = op.input(slot)
    weights = sum(
        prod(shape(slot, index)) for index in range(len(names)) if slot == "W" or len(shape(slot, index)) == 2
    )
    steps = prod(shape("Input", 0)[:2])
    return steps * weights


def _sequence_conv(op: Operator, shape: Shapes) -> int:
    return shape("X", 0, 1)[0] * prod(shape("Filter", 0))


def _row_conv(op: Operator, shape: Shapes) -> int:
    return shape("X", 0, 1)[0] * prod(shape("Filter", 0))


def _bilinear(op: Operator, shape: Shapes) -> int:
    """out[k] = x W[k] y for each row."""
    return shape("X", 0, 1)[0] * prod(shape("Weight", 0))


COUNTERS: dict[str, Counter] = {
    **dict.fromkeys(
        ("conv2d", "depthwise_conv2d", "conv3d", "deformable_conv", "deformable_conv_v1", "conv2d_fusion"), _convolution
    ),
    **dict.fromkeys(("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"), _transposed),
    "mul": _mul,
    "fc": _fc,
    **dict.fromkeys(("matmul", "matmul_v2", "bmm"), _matmul),
    "lstm": _recurrent("Input", "Weight"),
    "gru": _recurrent("Input", "Weight"),
    "lstmp": _projected,
    "gru_unit": _recurrent("Input", "Weight"),
    **dict.fromkeys(("rnn", "cudnn_lstm"), _stacked),
    "sequence_conv": _sequence_conv,
    "row_conv": _row_conv,
    "bilinear_tensor_product": _bilinear,
}


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

    def take(name: str) -> None:
        var = block.vars.get(name)
        if name in alive or var is None or var.persistable:
            return
        size = _nbytes(inferred.find(block, name), batch)
        if size is None:
            unknown[name] = None
        alive[name] = size or 0

    for name in inputs or {}:
        take(name)
    by_step = []
    for step in plan.block(0).steps:
        for name in (*step.op.input_arg_names, *step.op.output_arg_names):
            take(name)
        by_step.append(sum(alive.values()))
        for name in step.release:
            alive.pop(name, None)
    return Footprint(tuple(by_step), tuple(unknown))


def _nbytes(meta: TensorMeta | None, batch: int) -> int | None:
    shape = () if meta is None else with_batch(meta.shape, batch)
    if meta is None or any(size < 0 for size in shape):
        return None
    return prod(shape) * numpy_dtype(meta.dtype).itemsize
