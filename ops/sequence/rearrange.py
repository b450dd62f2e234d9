"""Sequences concatenated, reshaped and reversed: sequence_concat, sequence_reshape, sequence_reverse."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.ops.sequence.picking import offsets_of, ranges, sequence_offsets, single_level
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text, shapes_text
from fluidtool.tensor.lod import LoD


@op("sequence_concat", inputs="X*", outputs="Out")
def sequence_concat(ctx: OpContext, X: list[Any]) -> Any:
    """The i-th sequences of all inputs end to end, for every i; inputs [T_k, …] (Paddle 1.8.5 sequence_concat_op.cc)."""
    lod, rows = _concatenated(ctx, X)
    ctx.set_lod("Out", lod)
    order = ctx.np.concatenate(rows).argsort()
    return ctx.xp.concatenate(X)[ctx.array(order)]


@sequence_concat.infer
def _(ctx: InferContext, X: list[TensorMeta]) -> TensorMeta:
    if len(X) < 2 or any(not may_be_same(meta.shape[1:], X[0].shape[1:]) for meta in X):
        raise ctx.error(
            f"X must be two or more tensors with rows of one shape, found {shapes_text(x.shape for x in X)}"
        )
    sizes = [meta.shape[0] for meta in X]
    return X[0].with_shape((-1 if -1 in sizes else sum(sizes), *X[0].shape[1:]))


@sequence_concat.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs = {"X": context.input("X"), "Out@GRAD": context.output_grad("Out")}
    return [context.describe("sequence_concat_grad", inputs, {"X@GRAD": context.input_grad("X", drop_empty=False)})]


@op("sequence_concat_grad", inputs="X* Out@GRAD", outputs="X@GRAD*")
def sequence_concat_grad(ctx: OpContext, X: list[Any], Out_grad: Any) -> dict[str, list[Any]]:
    """The gradient cut back into the inputs."""
    for index in range(len(X)):
        ctx.set_lod("X@GRAD", ctx.lod("X", index), index)
    _, rows = _concatenated(ctx, X)
    return {"X@GRAD": [Out_grad[ctx.array(picked)] for picked in rows]}


def _concatenated(ctx: OpContext, X: list[Any]) -> tuple[LoD, list[Any]]:
    """LoD of the output, and for every input the rows of the output that its rows become."""
    np = ctx.np
    if not X:
        raise ctx.error("input X has no variables")
    if len({x.shape[1:] for x in X}) != 1:
        raise ctx.error(
            f"the inputs must agree in all but the first dimension, found {shapes_text(x.shape for x in X)}"
        )
    lengths = [np.diff(single_level(ctx, "X", x.shape[0], k)) for k, x in enumerate(X)]
    counts = [len(sizes) for sizes in lengths]
    if len(set(counts)) != 1:
        raise ctx.error(f"the inputs must have the same number of sequences, found {counts}")
    offsets = offsets_of(sum(lengths))
    starts, rows = np.asarray(offsets[:-1]), []
    for sizes in lengths:
        rows.append(ranges(ctx, starts, sizes))
        starts = starts + sizes
    return [offsets], rows


@op("sequence_reshape", inputs="X", outputs="Out", attrs={"new_dim": required(INT)})
def sequence_reshape(ctx: OpContext, X: Any, *, new_dim: int) -> Any:
    """[T, D] -> [T * D / new_dim, new_dim], sequence by sequence (Paddle 1.8.5 sequence_reshape_op.cc)."""
    if X.ndim != 2:
        raise ctx.error(f"X must be a matrix, found shape {X.shape}")
    if new_dim <= 0:
        raise ctx.error(f"new_dim must be positive, found {new_dim}")
    offsets = single_level(ctx, "X", X.shape[0])
    for number, (start, end) in enumerate(pairwise(offsets)):
        if (end - start) * X.shape[1] % new_dim != 0:
            raise ctx.error(
                f"sequence {number} of X has {end - start} * {X.shape[1]} values, which new_dim {new_dim} does not divide"
            )
    ctx.set_lod("Out", [[offset * X.shape[1] // new_dim for offset in offsets]])
    return X.reshape(-1, new_dim)


@sequence_reshape.infer
def _(ctx: InferContext, X: TensorMeta, *, new_dim: int) -> TensorMeta:
    if X.rank != 2:
        raise ctx.error(f"X must be a matrix, found shape {X.shape}")
    return X.with_shape((-1, new_dim))


@sequence_reshape.grad(inputs="X Out@GRAD", outputs="X@GRAD", lod="X")
def sequence_reshape_grad(ctx: OpContext, X: Any, Out_grad: Any) -> Any:
    """The gradient in the shape of X."""
    return Out_grad.reshape(X.shape)


@op("sequence_reverse", inputs="X", outputs="Y", lod="X")
def sequence_reverse(ctx: OpContext, X: Any) -> Any:
    """The rows of every sequence of the last LoD level in reverse order, X [T, …] (Paddle 1.8.5 sequence_reverse_op.h)."""
    offsets = ctx.np.asarray(sequence_offsets(ctx, "X", X.shape[0]))
    mirror = ctx.np.repeat(offsets[:-1] + offsets[1:] - 1, ctx.np.diff(offsets))
    return X[ctx.array(mirror - ctx.np.arange(len(mirror)))]


@sequence_reverse.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    if X.rank < 2:
        raise ctx.error(f"X must have at least two dimensions, found shape {shape_text(X.shape)}")
    return X


@sequence_reverse.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    return [context.describe("sequence_reverse", {"X": context.output_grad("Y")}, {"Y": context.input_grad("X")})]
