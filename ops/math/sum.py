"""sum: tensors, sparse rows or arrays of tensors added up; the operator that merges gradients."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import USE_MKLDNN, TensorMeta
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


@op("sum", inputs="X*", outputs="Out", attrs=USE_MKLDNN, lod="X", traits=Traits(gradient_scope=False))
def sum(ctx: OpContext, X: list[Any]) -> Any:
    """The sum of all X (Paddle 1.8.5 sum_op.h).

    Tensors of one shape and data type add up elementwise (empty ones are left out); SelectedRows alone give merged
    SelectedRows, beside tensors they are added into their rows; arrays add up position by position.
    """
    if not (X and all(x is not None for x in X)):
        raise ctx.error("an input X holds no value")
    if isinstance(X[0], LoDTensorArray):
        return _sum_arrays(ctx, X)
    sparse = [x for x in X if isinstance(x, SelectedRows)]
    dense = [x for x in X if not isinstance(x, SelectedRows)]
    if not dense:
        return merged_rows(ctx, sparse)
    return _sum_dense(ctx, dense, sparse)


def _sum_dense(ctx: OpContext, dense: list[Any], sparse: list[SelectedRows]) -> Any:
    filled = [x for x in dense if x.size] or dense[:1]
    total = filled[0]
    for other in filled[1:]:
        if other.size != total.size:
            raise ctx.error(
                f"the inputs X must have one shape, found {shape_text(total.shape)} and {shape_text(other.shape)}"
            )
        if other.dtype != total.dtype:
            raise ctx.error(f"the inputs X must have one dtype, found {total.dtype}, {other.dtype}")
        total = total + (other if other.shape == total.shape else other.reshape(total.shape))
    if any(len(rows.row_ids) for rows in sparse):
        total = total.copy()
        for rows in sparse:
            if len(rows.row_ids):
                check_rows(ctx, rows, total.shape)
                ctx.add_at(total, ctx.xp.asarray(rows.row_ids), rows.value.reshape(-1, *total.shape[1:]))
    return total


def check_rows(ctx: OpContext, rows: SelectedRows, shape: tuple[int, ...]) -> None:
    """Raise OperatorError unless every row number is a row of a table of this shape, of rows as wide as these."""
    low, high = int(rows.row_ids.min()), int(rows.row_ids.max())
    if not (low >= 0 and high < shape[0]):
        raise ctx.error(f"row numbers {low} to {high} are out of range for a table of {shape[0]} rows")
    width, expected = rows.value.size // max(len(rows.row_ids), 1), 1
    for size in shape[1:]:
        expected *= size
    if width != expected:
        raise ctx.error(f"sparse rows hold {width} numbers each, the table's rows hold {expected}")


def merged_rows(ctx: OpContext, parts: list[SelectedRows]) -> SelectedRows:
    """Sparse rows added up: every row once, in ascending order (math/selected_rows_functor.cc)."""
    filled = [part for part in parts if len(part.row_ids)]
    if not filled:
        like = parts[0].tensor.array
        return SelectedRows(
            (), parts[0].table_height, ctx.xp.zeros((0,), like.dtype if like is not None else "float32")
        )
    first = filled[0]
    for part in filled:
        if part.table_height != first.table_height or part.value.shape[1:] != first.value.shape[1:]:
            raise ctx.error(
                f"sparse inputs must be rows of one table, found heights {first.table_height} and {part.table_height}, row "
                f"shapes {shape_text(first.value.shape[1:])} and {shape_text(part.value.shape[1:])}"
            )
    ids = ctx.np.concatenate([part.row_ids for part in filled])
    rows, position = ctx.np.unique(ids, return_inverse=True)
    values = first.value if len(filled) == 1 else ctx.xp.concatenate([part.value for part in filled])
    merged = ctx.xp.zeros((len(rows), *values.shape[1:]), values.dtype)
    if len(rows) == len(ids):
        merged[ctx.xp.asarray(position)] = values
    else:
        ctx.add_at(merged, ctx.xp.asarray(position), values)
    return SelectedRows(rows, first.table_height, merged)


def _sum_arrays(ctx: OpContext, arrays: list[Any]) -> LoDTensorArray:
    total = LoDTensorArray()
    for array in arrays:
        if not isinstance(array, LoDTensorArray):
            raise ctx.error(f"every input X must be a LoDTensorArray as the first one is, found {type(array).__name__}")
        for index, item in enumerate(array):
            if index == len(total):
                total.append(LoDTensor())
            if item.array is None or not item.array.size:
                continue
            if total[index].array is None:
                total[index] = LoDTensor(item.array, item.offsets)
            else:
                if total[index].offsets != item.offsets:
                    raise ctx.error(f"the LoD at position {index} differs between inputs")
                total[index] = LoDTensor(total[index].array + item.array, item.offsets)
    return total


@sum.infer
def _(ctx: InferContext, X: list[TensorMeta]) -> TensorMeta:
    kinds = {x.kind for x in X}
    first = next((x for x in X if x.kind == VarType.LOD_TENSOR), X[0])
    if kinds == {VarType.SELECTED_ROWS}:
        return first
    if VarType.LOD_TENSOR_ARRAY in kinds:
        return X[0]
    shape = list(first.shape)
    for x in X:
        if x.kind == VarType.LOD_TENSOR and x.rank and shape and 0 not in (*x.shape, *shape):
            if not may_be_same(x.shape, shape):
                raise ctx.error(
                    f"the inputs X must have one shape, found {shape_text(shape)} and {shape_text(x.shape)}"
                )
            shape = [b if a == -1 else a for a, b in zip(shape, x.shape, strict=True)]
    return first.with_shape(shape)


@sum.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    """One scale by 1 for each X."""
    grads = context.input_grad("X", drop_empty=False)
    given = context.output_grad("Out")
    return [OpDescription("scale", {"X": given}, {"Out": [grad]}, {"scale": 1.0}) for grad in grads]
