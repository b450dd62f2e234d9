"""Operators of tree-based retrieval: tdm_child and tdm_sampler."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, ints, required
from fluidtool.proto.enums import VarType


@op("tdm_child", inputs="X TreeInfo", outputs="Child LeafMask", attrs={"child_nums": required(INT), "dtype": 2})
def tdm_child(ctx: OpContext, X: Any, TreeInfo: Any, *, child_nums: int, dtype: int) -> Any:
    """Child [..., child_nums] = the children of each node of X, LeafMask = which of them are items.

    TreeInfo [nodes, 3 + child_nums] = (item or 0, layer, parent, children …); node 0 and nodes without a first child
    give zeros (Paddle 1.8.5 tdm_child_op.h).
    """
    if TreeInfo.ndim != 2 or TreeInfo.shape[1] < 3 + child_nums:
        raise ctx.error(
            f"input TreeInfo must have at least 3 + child_nums = {3 + child_nums} columns, found shape {TreeInfo.shape}"
        )
    nodes = len(TreeInfo)
    outside = (X < 0) | (nodes <= X)
    if outside.any():
        raise ctx.error(f"input X holds node {int(X[outside][0])}, expected 0 to {nodes - 1}")
    children = TreeInfo[X][..., 3 : 3 + child_nums]
    has_child = (X != 0)[..., None] & (children[..., :1] != 0)
    children = ctx.xp.where(has_child, children, 0)
    wrong = (children < 0) | (children >= nodes)
    if wrong.any():
        raise ctx.error(f"input TreeInfo names child {int(children[wrong][0])}, but has only {nodes} nodes")
    is_item = has_child & (TreeInfo[children][..., 0] != 0)
    kind, shape = ctx.dtype(dtype), _child_shape(X.shape, child_nums)
    return {"Child": children.astype(kind).reshape(shape), "LeafMask": is_item.astype(kind).reshape(shape)}


def _child_shape(shape: tuple[int, ...], child_nums: int) -> tuple[int, ...]:
    return (*shape, child_nums)


@tdm_child.infer
def _(ctx: InferContext, X: TensorMeta, TreeInfo: TensorMeta, *, child_nums: int, dtype: int) -> dict[str, TensorMeta]:
    child = TensorMeta(_child_shape(X.shape, child_nums), VarType(dtype))
    return {"Child": child, "LeafMask": child}


@op(
    "tdm_sampler",
    inputs="X Travel Layer",
    outputs="Out Labels? Mask",
    attrs={"output_positive": True, "neg_samples_num_list": ints(), "layer_offset_lod": ints(), "seed": 0, "dtype": 2},
    random=True,
)
def tdm_sampler(
    ctx: OpContext,
    X: Any,
    Travel: Any,
    Layer: Any,
    *,
    output_positive: bool,
    neg_samples_num_list: list[int],
    layer_offset_lod: list[int],
    seed: int,
    dtype: int,
) -> Any:
    """Per leaf of X and layer of the tree: the node on its path (if output_positive), then other nodes of the layer.

    Travel [leaves, layers] holds the paths, Layer the nodes layer by layer, bounded by layer_offset_lod. Labels are 1 for
    nodes on the path; where a path has ended (node 0) Out, Labels and Mask are 0 (Paddle 1.8.5 tdm_sampler_op.h).
    """
    np, leaves = ctx.np, ctx.host(X).reshape(-1)
    travel, nodes = ctx.host(Travel), ctx.host(Layer).reshape(-1)
    travel = travel.reshape(len(travel), -1)
    layers = len(neg_samples_num_list)
    if len(layer_offset_lod) != layers + 1 or travel.shape[1] != layers or layer_offset_lod[-1] > len(nodes):
        raise ctx.error(
            f"neg_samples_num_list names {layers} layers: layer_offset_lod needs {layers + 1} offsets within Layer's "
            f"{len(nodes)} nodes (found {list(layer_offset_lod)}) and Travel {layers} columns (found shape {travel.shape})"
        )
    if ((leaves < 0) | (leaves >= len(travel))).any():
        raise ctx.error(f"input X must hold leaves 0 to {len(travel) - 1}, found {leaves[:12].tolist()}")
    generator, columns = ctx.generator(seed), []
    for layer, (start, end) in enumerate(pairwise(layer_offset_lod)):
        count, positive = neg_samples_num_list[layer], travel[leaves, layer]
        if not 0 <= count <= end - start - 1:
            raise ctx.error(
                f"layer {layer} has {end - start} nodes, so at most {end - start - 1} negative samples, found {count}"
            )
        negative = _others(np, generator, nodes[start:end], positive, count)
        columns.append((positive, negative))
    return _sampled(ctx, columns, output_positive, dtype)


def _others(np: Any, generator: Any, layer: Any, positive: Any, count: int) -> Any:
    """For each positive node `count` different other nodes of the layer, [leaves, count]."""
    order = generator.random((len(positive), len(layer)))
    order[layer == positive[:, None]] = 2.0  # behind all others
    return layer[np.argsort(order, axis=1)[:, :count]]


def _sampled(ctx: OpContext, columns: list[tuple[Any, Any]], output_positive: bool, dtype: int) -> dict[str, Any]:
    np, out, labels, mask = ctx.np, [], [], []
    for positive, negative in columns:
        there = (positive != 0)[:, None]
        parts = [positive[:, None], negative] if output_positive else [negative]
        values = np.concatenate(parts, axis=1)
        first = np.arange(values.shape[1]) == (0 if output_positive else -1)
        out.append(np.where(there, values, 0))
        labels.append(there & first)
        mask.append(np.broadcast_to(there, values.shape))
    kind = ctx.dtype(dtype)
    results = {"Out": out, "Labels": labels, "Mask": mask}
    return {slot: ctx.array(np.concatenate(parts, axis=1).astype(kind)) for slot, parts in results.items()}


@tdm_sampler.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    Travel: TensorMeta,
    Layer: TensorMeta,
    *,
    output_positive: bool,
    neg_samples_num_list: list[int],
    dtype: int,
) -> dict[str, TensorMeta]:
    width = sum(count + output_positive for count in neg_samples_num_list)
    out = TensorMeta((-1, width), VarType(dtype))
    return {"Out": out, "Labels": out, "Mask": out}
