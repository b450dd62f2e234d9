"""Tables that live on parameter servers: looking rows up there instead of fetching the whole."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from fluidtool.ops.context import InferContext, OpContext, RemoteVariable
from fluidtool.ops.distributed.rpc import ENDPOINT, has_memory, one_each, stored
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta, long, longs, strings
from fluidtool.ops.traits import Traits
from fluidtool.tensor import LoDTensor, SelectedRows

NO_PADDING = -1


@op(
    "prefetch",
    inputs="X*",
    outputs="Out*",
    attrs={"trainer_id": 0, "epmap": strings(ENDPOINT)},
    side_effects=True,
    traits=Traits(transpiled=True, memory="named"),
)
def prefetch(ctx: OpContext, X: list[Any], *, epmap: list[str]) -> dict[str, list[Any]]:
    """Out[i] = what the server at epmap[i] computes of the ids X[i]; X that hold no value are left out.

    The server's block for the name of X[i] computes it (Paddle 1.8.5 prefetch_op.cc).
    """
    names, outputs = ctx.op.input("X"), ctx.op.output("Out")
    places = one_each(ctx, "variables", names, epmap)
    if len(outputs) != len(names):
        raise ctx.error(f"it has {len(names)} inputs X, but {len(outputs)} outputs; pass one for each")
    asked, requests = [], []
    for index, (name, endpoint) in enumerate(places):
        value = ctx.inputs["X"][index].value
        if has_memory(value):
            asked.append(index)
            requests.append((RemoteVariable(endpoint, name, outputs[index]), value))
    results: list[Any] = [None] * len(names)
    for index, value in zip(asked, ctx.runtime.remote.prefetch(ctx.op, requests), strict=True):
        results[index] = stored(ctx, value)
    return {"Out": results}


def lives_on_servers(ctx: OpContext) -> bool:
    """Whether a lookup has to ask servers: its table is not here, or only partly."""
    return bool(ctx.attr("remote_prefetch") and ctx.attr("epmap"))


def remote_shards(ctx: OpContext) -> tuple[list[str], list[str], list[int]]:
    """Endpoints, names and heights of the shards of a lookup's table."""
    return ctx.attr("epmap"), ctx.attr("table_names"), ctx.attr("height_sections")


def remote_rows(
    ctx: OpContext, ids: Any, endpoints: list[str], tables: list[str], heights: list[int]
) -> tuple[Any, Any]:
    """(unique ids in order, their rows [ids, width]), both on the host, from the servers that keep the table's shards.

    Shard i of `heights[i]` rows is called tables[i] and lives at endpoints[i]. Each server that has any of the ids is
    asked once, for ids numbered from the start of its shard (Paddle 1.8.5 parameter_prefetch.cc).
    """
    np = ctx.np
    if not len(endpoints) == len(tables) == len(heights) > 0:
        raise ctx.error(
            "table_names, height_sections and endpoints must be equally many, "
            f"found {len(tables)}, {len(heights)}, {len(endpoints)}"
        )
    unique = np.unique(np.asarray(ids, np.int64))
    starts = [0, *accumulate(int(height) for height in heights)]
    outside = unique[(unique < 0) | (unique >= starts[-1])]
    if outside.size:
        raise ctx.error(
            f"input Ids holds {int(outside[0])}, expected 0 to {starts[-1] - 1}; correct the ids or enlarge the table"
        )
    requests = []
    for endpoint, table, start, end in zip(endpoints, tables, starts[:-1], starts[1:], strict=True):
        here = unique[(unique >= start) & (unique < end)] - start
        if here.size:
            place = RemoteVariable(endpoint, f"prefetch_send@{endpoint}", f"prefetch_recv@{endpoint}", table)
            requests.append((place, LoDTensor(here.reshape(-1, 1))))
    values = ctx.runtime.remote.prefetch(ctx.op, requests)
    for (place, asked), value in zip(requests, values, strict=True):
        if not (isinstance(value, LoDTensor) and value.array.ndim == 2 and len(value.array) == len(asked.array)):
            raise ctx.error(
                f"{place.endpoint} must return {len(asked.array)} rows of {place.table_name}, found {value!r:.80}"
            )
    return unique, np.concatenate([value.array for value in values]) if values else None


def look_up_remotely(
    ctx: OpContext, W: Any, ids: Any, padding_idx: int, endpoints: list[str], tables: list[str], heights: list[int]
) -> Any:
    """The row of each id (any shape) as a last dimension; zeros where the id is padding_idx. W tells the width."""
    np, host = ctx.np, ctx.host(ids)
    padding = (host == padding_idx) & (padding_idx != NO_PADDING)
    unique, rows = remote_rows(ctx, host[~padding], endpoints, tables, heights)
    if rows is None:
        return ctx.xp.zeros((*host.shape, table_shape(W)[1]), "float32")
    out = rows[np.searchsorted(unique, host).clip(max=len(unique) - 1)]
    out[padding] = 0
    return ctx.array(out)


def rows_of(ctx: OpContext, W: Any, places: Any) -> Any:
    """W[places], from the servers that keep W where the operator says so; gradients ask again."""
    if lives_on_servers(ctx):
        return look_up_remotely(ctx, W, places, NO_PADDING, *remote_shards(ctx))
    return W[places]


def table_shape(W: Any) -> list[int]:
    """The dimensions of a table: an array, or one that has dimensions and no memory because it lives on servers."""
    tensor = W.tensor if isinstance(W, SelectedRows) else W
    return tensor.shape() if isinstance(tensor, LoDTensor) else list(tensor.shape)


@op(
    "distributed_lookup_table",
    inputs="Ids* W",
    outputs="Outputs*",
    attrs={
        "table_names": strings(""),
        "height_sections": longs(),
        "endpoints": strings(ENDPOINT),
        "trainer_id": 0,
        "lookup_table_version": "lookup_table",
        "padding_idx": long(NO_PADDING),
        "dtype": 5,
    },
    lod="Ids",
    traits=Traits(table="W", transpiled=True),
)
def distributed_lookup_table(
    ctx: OpContext,
    Ids: list[Any],
    W: Any,
    *,
    table_names: list[str],
    height_sections: list[int],
    endpoints: list[str],
    lookup_table_version: str,
    padding_idx: int,
) -> list[Any]:
    """Outputs[i] = the rows of Ids[i], looked up together in a table whose shards are spread over servers.

    Ids [..., 1] as lookup_table takes them, [...] where lookup_table_version is lookup_table_v2; W only says the width.
    Zeros where an id is padding_idx (Paddle 1.8.5 distributed_lookup_table_op.cc).
    """
    np = ctx.np
    ids = [_ids(ctx, item, lookup_table_version) for item in Ids]
    flat = np.concatenate([ctx.host(item).reshape(-1) for item in ids])
    rows = look_up_remotely(ctx, W, flat, padding_idx, endpoints, table_names, height_sections)
    ends = list(accumulate(item.size for item in ids))
    return [
        rows[end - item.size : end].reshape(*item.shape, rows.shape[1]) for item, end in zip(ids, ends, strict=True)
    ]


def _ids(ctx: OpContext, ids: Any, version: str) -> Any:
    if ids.dtype.kind not in "iu":
        raise ctx.error(f"input Ids must hold integers (int64), found {ids.dtype}; cast them")
    if version != "lookup_table":
        return ids
    if ids.ndim < 1 or ids.shape[-1] != 1:
        raise ctx.error(f"input Ids must have size 1 in its last dimension, found shape {ids.shape}")
    return ids[..., 0]


@distributed_lookup_table.infer
def _(
    ctx: InferContext, Ids: list[TensorMeta], W: TensorMeta, *, lookup_table_version: str
) -> dict[str, list[TensorMeta]]:
    cut = -1 if lookup_table_version == "lookup_table" else None
    return {"Outputs": [TensorMeta((*ids.shape[:cut], W.shape[1]), W.dtype, ids.lod_level) for ids in Ids]}
