"""Operators on SelectedRows: merge equal rows, take the values, split by row ranges."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.rows import merge_rows
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, longs
from fluidtool.proto.enums import VarType
from fluidtool.tensor import SelectedRows


def _selected(ctx: OpContext, X: Any) -> SelectedRows:
    if not isinstance(X, SelectedRows):
        raise ctx.error(
            "input X must hold SelectedRows (a sparse gradient), found a dense tensor; leave this operator out"
        )
    selected: SelectedRows = X
    return selected


@op("merge_selected_rows", inputs="X", outputs="Out")
def merge_selected_rows(ctx: OpContext, X: Any) -> Any:
    """Out = X with equal rows added up and rows ascending; X itself when no row occurs twice.

    X, Out: SelectedRows (Paddle 1.8.5 merge_selected_rows_op.h).
    """
    selected = _selected(ctx, X)
    rows, values = merge_rows(ctx, selected.row_ids, selected.value)
    return X if len(rows) == len(selected.row_ids) else SelectedRows(rows, selected.table_height, values)


@merge_selected_rows.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.kind == VarType.LOD_TENSOR:
        raise ctx.error("X must be a SelectedRows, found a LoDTensor")
    return X


@op("get_tensor_from_selected_rows", inputs="X", outputs="Out")
def get_tensor_from_selected_rows(ctx: OpContext, X: Any) -> Any:
    """Out = the values of X, one row per stored row (Paddle 1.8.5 get_tensor_from_selected_rows_op.cc)."""
    return _selected(ctx, X).value


@get_tensor_from_selected_rows.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    return TensorMeta(X.shape, X.dtype)


@op("split_selected_rows", inputs="X", outputs="Out*", attrs={"height_sections": longs()})
def split_selected_rows(ctx: OpContext, X: Any, *, height_sections: list[int]) -> list[SelectedRows]:
    """Out[i] = the rows of X in the i-th range of rows, numbered from the range's start.

    height_sections are the ranges' lengths (Paddle 1.8.5 split_selected_rows_op.h).
    """
    selected, np = _selected(ctx, X), ctx.np
    starts = [0, *accumulate(height_sections)]
    rows = selected.row_ids
    if len(rows) and not (rows.min() >= 0 and rows.max() < starts[-1]):
        raise ctx.error(
            f"height_sections {list(height_sections)} cover {starts[-1]} rows, but X holds row "
            f"{int(rows.max()) if len(rows) else 0}"
        )
    parts = []
    for start, length in zip(starts[:-1], height_sections, strict=True):
        here = np.flatnonzero((rows >= start) & (rows < start + length))
        parts.append(SelectedRows(rows[here] - start, length, selected.value[ctx.array(here)]))
    return parts


@split_selected_rows.infer
def _(ctx: InferContext, X: TensorMeta, *, height_sections: list[int]) -> dict[str, list[TensorMeta]]:
    kind = VarType.SELECTED_ROWS
    return {"Out": [TensorMeta((length, *X.shape[1:]), X.dtype, 0, kind) for length in height_sections]}


@split_selected_rows.grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    return [OpDescription("sum", {"X": ctx.output_grad("Out")}, {"Out": ctx.input_grad("X")}, ctx.attrs())]
