"""tree_conv: convolution over the nodes of trees, each with those below it."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.nn.precision import require_floating, require_rank, require_shape, widened
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta

Node = tuple[int, int, int, int]
"""(node, place among its siblings, how many siblings, depth)."""


def _children(ctx: OpContext, edges: Any, nodes: int) -> list[list[int]]:
    """The children of every node, 1-based, from (parent, child) pairs; pairs with a zero are filling."""
    filled = [(int(parent), int(child)) for parent, child in edges if parent != 0 and child != 0]
    count = len(filled) + 1
    if count > nodes:
        raise ctx.error(f"EdgeSet has {count - 1} edges, so {count} nodes; NodesVector holds {nodes}")
    children: list[list[int]] = [[] for _ in range(count + 1)]
    for parent, child in edges:
        if parent == 0 or child == 0:
            break
        if not (1 <= parent <= count and 1 <= child <= count):
            raise ctx.error(
                f"EdgeSet names the edge {int(parent)} -> {int(child)}; nodes are numbered from 1 to {count}"
            )
        children[int(parent)].append(int(child))
    return children


def _patch(root: int, children: list[list[int]], max_depth: int) -> list[Node]:
    """The nodes that a window at `root` covers: those fewer than max_depth levels down, each once."""
    patch: list[Node] = [(root, 1, 1, 0)]
    stack, seen = [(root, 0)], {root}
    while stack:
        node, depth = stack[-1]
        found = [v for v in children[node] if v not in seen] if depth + 1 < max_depth else []
        for place, child in enumerate(children[node]):
            if found and child not in seen:
                seen.add(child)
                stack.append((child, depth + 1))
                patch.append((child, place + 1, len(children[node]), depth + 1))
        if not found:
            stack.pop()
    return patch


def _weights(node: Node, max_depth: int) -> tuple[float, float, float]:
    """(left, right, top) weights of a node in its window, as Paddle's TreeNode computes them."""
    _, place, siblings, depth = node
    top = (max_depth - depth) / max_depth
    left = (1 - top) * (0.5 if siblings == 1 else (place - 1) / (siblings - 1))
    return left, (1 - top) * (1 - left), top


def _window_weights(ctx: OpContext, EdgeSet: Any, nodes: int, max_depth: int, dtype: Any) -> Any:
    """[batch, root, 3, node]: how much each node counts in the window of each root. Built on the host."""
    np, edge_sets = ctx.np, ctx.host(EdgeSet)
    weights = np.zeros((len(edge_sets), nodes, 3, nodes), dtype=dtype)
    for tree, edges in zip(weights, edge_sets, strict=True):
        children = _children(ctx, edges, nodes)
        for root in range(1, len(children)):
            for node in _patch(root, children, max_depth):
                tree[root - 1, :, node[0] - 1] += _weights(node, max_depth)
    return ctx.array(weights)


def _check(ctx: OpContext, NodesVector: Any, EdgeSet: Any, Filter: Any, max_depth: int) -> None:
    require_floating(ctx, "NodesVector", NodesVector)
    require_rank(ctx, "NodesVector", NodesVector, 3)
    require_rank(ctx, "Filter", Filter, 4)
    require_shape(
        ctx, "Filter", Filter, (NodesVector.shape[2], 3, *Filter.shape[2:]), "the width of NodesVector, and 3"
    )
    require_rank(ctx, "EdgeSet", EdgeSet, 3)
    require_shape(
        ctx, "EdgeSet", EdgeSet, (len(NodesVector), EdgeSet.shape[1], 2), "pairs for each of NodesVector's trees"
    )
    if max_depth <= 0:
        raise ctx.error(f"attribute max_depth must be positive, found {max_depth}")


@op("tree_conv", inputs="NodesVector EdgeSet Filter", outputs="Out", attrs={"max_depth": 2})
def tree_conv(ctx: OpContext, NodesVector: Any, EdgeSet: Any, Filter: Any, *, max_depth: int) -> Any:
    """NodesVector [N, nodes, F], EdgeSet [N, edges, 2] (1-based, zeros fill up), Filter [F, 3, size, filters] ->
    [N, nodes, size, filters] (Paddle 1.8.5 tree_conv_op.h, math/tree2col.cc).
    """
    _check(ctx, NodesVector, EdgeSet, Filter, max_depth)
    nodes = NodesVector.shape[1]
    vectors = widened(NodesVector)
    weights = _window_weights(ctx, EdgeSet, nodes, max_depth, vectors.dtype)
    windows = ctx.xp.matmul(weights.reshape(len(weights), nodes * 3, nodes), vectors)
    kernel = widened(Filter).swapaxes(0, 1).reshape(-1, Filter.shape[2] * Filter.shape[3])
    out = windows.reshape(len(weights), nodes, -1) @ kernel
    return out.reshape(*NodesVector.shape[:2], *Filter.shape[2:]).astype(NodesVector.dtype, copy=False)


@tree_conv.infer
def _(ctx: InferContext, NodesVector: TensorMeta, EdgeSet: TensorMeta, Filter: TensorMeta) -> TensorMeta:
    if NodesVector.rank != 3 or EdgeSet.rank != 3 or Filter.rank != 4:
        raise ctx.error(
            f"NodesVector and EdgeSet must have 3 dimensions and Filter 4, found {NodesVector.shape}, {EdgeSet.shape} and "
            f"{Filter.shape}"
        )
    return NodesVector.with_shape([EdgeSet.shape[0], NodesVector.shape[1], *Filter.shape[2:]]).with_lod_level(0)


@tree_conv.grad(inputs="NodesVector EdgeSet Filter Out@GRAD", outputs="NodesVector@GRAD Filter@GRAD")
def tree_conv_grad(
    ctx: OpContext, NodesVector: Any, EdgeSet: Any, Filter: Any, Out_grad: Any, *, max_depth: int
) -> dict[str, Any]:
    """Gradients by NodesVector and Filter."""
    _check(ctx, NodesVector, EdgeSet, Filter, max_depth)
    batch, nodes, width = NodesVector.shape
    vectors, grad = widened(NodesVector), widened(Out_grad).reshape(batch * nodes, -1)
    weights = _window_weights(ctx, EdgeSet, nodes, max_depth, vectors.dtype).reshape(batch, nodes * 3, nodes)
    windows = ctx.xp.matmul(weights, vectors).reshape(batch * nodes, 3 * width)
    kernel = widened(Filter).swapaxes(0, 1).reshape(3 * width, -1)
    window_grad = (grad @ kernel.T).reshape(batch, nodes * 3, width)
    grads = {
        "NodesVector@GRAD": ctx.xp.matmul(weights.swapaxes(1, 2), window_grad),
        "Filter@GRAD": (windows.T @ grad).reshape(3, width, *Filter.shape[2:]).swapaxes(0, 1),
    }
    return {slot: value.astype(NodesVector.dtype, copy=False) for slot, value in grads.items()}
