"""Tables of other forms: lookup_sparse_table grows as it is asked, lookup_table_dequant holds bytes."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.rows import find_rows
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long
from fluidtool.tensor import SelectedRows


@op(
    "lookup_sparse_table",
    inputs="W Ids",
    outputs="Out",
    attrs={"padding_idx": long(-1), "auto_grown_table": True, "is_test": False},
    lod="Ids",
)
def lookup_sparse_table(ctx: OpContext, W: Any, Ids: Any, *, is_test: bool) -> Any:
    """Out [ids, width] = the rows of W (SelectedRows) that the ids name.

    An unknown id takes the next free row of W's values, which keeps its initial value; with is_test it gives zeros.
    W may hold values for more rows than it has ids (Paddle 1.8.5 lookup_sparse_table_op.cc).
    """
    if not isinstance(W, SelectedRows):
        raise ctx.error("input W must hold SelectedRows, found a dense tensor; use lookup_table")
    ids = ctx.host(Ids).reshape(-1)
    known = find_rows(ctx, W, ids)
    if is_test:
        out = W.value[ctx.array(known.clip(min=0))]
        out[ctx.array(known < 0)] = 0
        return out
    if (known < 0).any():
        W = _grown(ctx, W, ids[known < 0])
    return W.value[ctx.array(find_rows(ctx, W, ids))]


def _grown(ctx: OpContext, table: SelectedRows, unknown: Any) -> SelectedRows:
    """The table with rows for the unknown ids; it replaces variable W, because it is meant to remember them."""
    new = list(dict.fromkeys(int(id) for id in unknown))
    rows = ctx.np.concatenate([table.row_ids, ctx.np.array(new, ctx.np.int64)])
    if len(rows) > len(table.value):
        raise ctx.error(
            f"table W is full: it has values for {len(table.value)} rows, {len(rows)} ids are requested; enlarge it"
        )
    grown = SelectedRows(rows, table.table_height, table.value)
    ctx.inputs["W"][0].value = grown
    return grown


@lookup_sparse_table.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta) -> TensorMeta:
    return TensorMeta((-1 if -1 in Ids.shape else prod(Ids.shape), *W.shape[1:]), W.dtype, Ids.lod_level)


@op("lookup_table_dequant", inputs="W Ids", outputs="Out", attrs={"padding_idx": long(-1)}, lod="Ids")
def lookup_table_dequant(ctx: OpContext, W: Any, Ids: Any, *, padding_idx: int) -> Any:
    """Out = byte * (max - min) / 256 + min for the bytes of each row that Ids [..., 1] name.

    W [rows, 2 + n] of float32: min, max, then n numbers whose memory is 4n bytes (lookup_table_dequant_op.h).
    """
    xp = ctx.xp
    if W.ndim != 2 or W.shape[1] <= 2:
        raise ctx.error(f"table W must have more than two columns, found shape {W.shape}")
    ids = Ids[..., 0]
    padding = (ids == padding_idx) & (padding_idx != -1)
    rows = xp.where(padding, 0, ids)
    outside = (rows < 0) | (rows >= len(W))
    if outside.any():
        raise ctx.error(
            f"input Ids holds {int(rows[outside][0])}, expected 0 to {len(W) - 1} (table W has {len(W)} rows)"
        )
    lowest, highest = W[rows, 0], W[rows, 1]
    codes = xp.ascontiguousarray(W[:, 2:]).view(xp.uint8)[rows].astype(W.dtype)
    out = codes * ((highest - lowest) / 256)[..., None] + lowest[..., None]
    return xp.where(padding[..., None], W.dtype.type(0), out)


@lookup_table_dequant.infer
def _(ctx: InferContext, W: TensorMeta, Ids: TensorMeta) -> TensorMeta:
    return TensorMeta((*Ids.shape[:-1], (W.shape[1] - 2) * 4), W.dtype, Ids.lod_level)
