"""Operators that split ids over parameter servers and merge the answers in order."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.embedding.rows import find_rows
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, ints
from fluidtool.ops.traits import Traits
from fluidtool.proto.enums import VarType
from fluidtool.tensor import SelectedRows


@op("split_ids", inputs="Ids*", outputs="Out*")
def split_ids(ctx: OpContext, Ids: list[Any]) -> list[Any]:
    """Out[i] = the ids whose remainder by the number of outputs is i: ascending, each once, as a column.

    Of SelectedRows it takes the first input only, in its order; rows that occur twice get the value of the last
    (Paddle 1.8.5 split_ids_op.h).
    """
    np, shards = ctx.np, len(ctx.outputs["Out"])
    if isinstance(Ids[0], SelectedRows):
        return [_shard(ctx, Ids[0], shard, shards) for shard in range(shards)]
    ids = np.unique(np.concatenate([ctx.host(item).reshape(-1) for item in Ids]))
    return [ctx.array(ids[ids % shards == shard].reshape(-1, 1)) for shard in range(shards)]


def _shard(ctx: OpContext, selected: SelectedRows, shard: int, shards: int) -> SelectedRows:
    rows = selected.row_ids[selected.row_ids % shards == shard]
    backwards = SelectedRows(selected.row_ids[::-1])
    last = len(selected.row_ids) - 1 - find_rows(ctx, backwards, rows)
    return SelectedRows(rows, selected.table_height, selected.value[ctx.array(last)])


@split_ids.infer
def _(ctx: InferContext, Ids: list[TensorMeta]) -> dict[str, list[TensorMeta]]:
    first = Ids[0]
    whole = first if first.kind == VarType.SELECTED_ROWS else TensorMeta((-1, 1), first.dtype)
    return {"Out": [whole] * ctx.count("Out")}


@op("merge_ids", inputs="Ids* Rows* X*", outputs="Out*")
def merge_ids(ctx: OpContext, Ids: list[Any], Rows: list[Any], X: list[Any]) -> list[Any]:
    """Out[i] = the rows of X that belong to Ids[i], in their order; Rows[j] names the rows of X[j].

    Ids, Rows: columns of integers; X [rows, width] (Paddle 1.8.5 merge_ids_op.h).
    """
    np = ctx.np
    if len(Rows) != len(X):
        raise ctx.error(f"inputs Rows and X must have the same number of variables, found {len(Rows)} and {len(X)}")
    rows = np.concatenate([ctx.host(item).reshape(-1) for item in Rows])
    values = ctx.xp.concatenate(X)
    if len(rows) != len(values):
        raise ctx.error(f"inputs Rows name {len(rows)} rows, but X holds {len(values)}")
    if len(np.unique(rows)) != len(rows):
        raise ctx.error("inputs Rows must not name a row twice")
    table, out = SelectedRows(rows), []
    for index, item in enumerate(Ids):
        ids = ctx.host(item).reshape(-1)
        places = find_rows(ctx, table, ids)
        if (places < 0).any():
            raise ctx.error(f"input Ids[{index}] holds {int(ids[places < 0][0])}, which no input Rows names")
        out.append(values[ctx.array(places)])
        ctx.set_lod("Out", ctx.lod("Ids", index), index)
    return out


@op("split_byref", inputs="X", outputs="Out*", attrs={"sections": ints(), "num": 0}, traits=Traits(transpiled=True))
def split_byref(ctx: OpContext, X: Any, *, sections: list[int], num: int) -> list[Any]:
    """Out[i] = consecutive rows of X: `sections` of them, or `num` equal parts (Paddle 1.8.5 split_byref_op.h)."""
    lengths = _lengths(ctx, len(X), sections, num)
    ends = list(accumulate(lengths))
    if ends[-1] > len(X):
        raise ctx.error(f"the sections {lengths} take {ends[-1]} rows, but X has {len(X)} (shape {X.shape})")
    return [X[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _lengths(ctx: OpContext | InferContext, rows: int, sections: list[int], num: int) -> list[int]:
    if num > 0:
        if not (rows < 0 or rows % num == 0):
            raise ctx.error(f"X of {rows} rows cannot be split into {num} equal parts")
        return [rows // num if rows >= 0 else -1] * num
    if len(sections) <= 0:
        raise ctx.error("set attribute sections or num")
    return list(sections)


@split_byref.infer
def _(ctx: InferContext, X: TensorMeta, *, sections: list[int], num: int) -> dict[str, list[TensorMeta]]:
    lengths = _lengths(ctx, X.shape[0], sections, num)
    return {"Out": [TensorMeta((length, *X.shape[1:]), X.dtype) for length in lengths]}


@split_byref.grad_maker
def _(ctx: GradMakerContext) -> list[OpDescription]:
    return [OpDescription("concat", {"X": ctx.output_grad("Out")}, {"Out": ctx.input_grad("X")}, ctx.attrs())]


@op("ref_by_trainer_id", inputs="X* TrainerId", outputs="Out")
def ref_by_trainer_id(ctx: OpContext, X: list[Any], TrainerId: Any) -> Any:
    """Out = X[TrainerId]; TrainerId [1] (Paddle 1.8.5 ref_by_trainer_id_op.h)."""
    trainer = int(ctx.host(TrainerId).reshape(-1)[0])
    if not 0 <= trainer < len(X):
        raise ctx.error(f"TrainerId is {trainer}, but input X has {len(X)} variables")
    return X[trainer]


@ref_by_trainer_id.infer
def _(ctx: InferContext, X: list[TensorMeta], TrainerId: TensorMeta) -> TensorMeta:
    return X[0]
