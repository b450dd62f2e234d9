"""match_matrix_tensor: how well every word of one text fits every word of another."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.sequence.picking import offsets_of, single_level


def _check(ctx: OpContext | InferContext, X: Any, Y: Any, W: Any) -> None:
    x, y, weight, channels = tuple(X.shape), tuple(Y.shape), tuple(W.shape), ctx.attr("dim_t")
    fits = len(x) == 2 and len(y) == 2 and len(weight) == 3 and weight == (x[1], channels, y[1])
    if not fits:
        raise ctx.error(
            f"inputs X (rows, m) and Y (rows, n) must fit W (m, dim_t {channels}, n), found shapes {x}, {y} and {weight}"
        )


def _pairs(ctx: OpContext, X: Any, Y: Any) -> tuple[list[int], list[int]]:
    """The offsets of X and of Y, which must have the same number of sequences."""
    left, right = single_level(ctx, "X", len(X)), single_level(ctx, "Y", len(Y))
    if len(left) != len(right):
        raise ctx.error(f"inputs X and Y must have equally many sequences, found {len(left) - 1} and {len(right) - 1}")
    return left, right


@op("match_matrix_tensor", inputs="X Y W", outputs="Out Tmp", attrs={"dim_t": 1})
def match_matrix_tensor(ctx: OpContext, X: Any, Y: Any, W: Any) -> dict[str, Any]:
    """Out [sum of dim_t * words of X * words of Y, 1]: x W[:, t] y for every pair of words of a pair of sequences.

    X [rows, m], Y [rows, n], W [m, dim_t, n]; Tmp = X W, [rows * dim_t * n, 1] (Paddle 1.8.5
    match_matrix_tensor_op.cc).
    """
    _check(ctx, X, Y, W)
    left, right = _pairs(ctx, X, Y)
    _, channels, width = W.shape
    projected = (X @ W.reshape(len(W), -1)).reshape(-1, channels, width)
    parts = [
        (projected[left[i] : left[i + 1]].transpose(1, 0, 2) @ Y[right[i] : right[i + 1]].T).reshape(-1)
        for i in range(len(left) - 1)
    ]
    ctx.set_lod("Out", [offsets_of(part.size for part in parts)])
    none = projected[:0].reshape(-1)  # for a batch without sequences
    return {"Out": ctx.xp.concatenate([none, *parts])[:, None], "Tmp": projected.reshape(-1, 1)}


@match_matrix_tensor.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta, W: TensorMeta) -> dict[str, TensorMeta]:
    _check(ctx, X, Y, W)
    if not (X.lod_level >= 1 and Y.lod_level >= 1):
        raise ctx.error(f"inputs X and Y need a LoD of one level, found {X.lod_level} and {Y.lod_level}")
    out = X.with_shape((-1, 1))
    return {"Out": out, "Tmp": out.with_lod_level(0)}


@match_matrix_tensor.grad(inputs="X Y W Tmp Out@GRAD", outputs="X@GRAD Y@GRAD W@GRAD", lod="X->X@GRAD Y->Y@GRAD")
def match_matrix_tensor_grad(ctx: OpContext, X: Any, Y: Any, W: Any, Tmp: Any, Out_grad: Any) -> dict[str, Any]:
    """Gradients of the bilinear form, pair by pair."""
    xp = ctx.xp
    left, right = _pairs(ctx, X, Y)
    _, channels, width = W.shape
    projected = Tmp.reshape(-1, channels, width)
    projected_grad, y_grad, start = xp.zeros_like(projected), xp.zeros_like(Y), 0
    for i in range(len(left) - 1):
        x_rows, y_rows = slice(left[i], left[i + 1]), slice(right[i], right[i + 1])
        x_count, y_count = left[i + 1] - left[i], right[i + 1] - right[i]
        size = channels * x_count * y_count
        grad = Out_grad.reshape(-1)[start : start + size].reshape(channels, x_count, y_count)
        projected_grad[x_rows] = (grad @ Y[y_rows]).transpose(1, 0, 2)
        y_grad[y_rows] = (grad.transpose(0, 2, 1) @ projected[x_rows].transpose(1, 0, 2)).sum(axis=0)
        start += size
    flat = projected_grad.reshape(len(X), -1)
    return {"X@GRAD": flat @ W.reshape(len(W), -1).T, "Y@GRAD": y_grad, "W@GRAD": (X.T @ flat).reshape(W.shape)}
