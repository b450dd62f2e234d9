"""Fused products: fusion_repeated_fc_relu, fusion_squared_mat_sub and fusion_seqexpand_concat_fc."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.fused.scratch import with_empty_scratch
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import activation
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.sequence.picking import row_sequences, single_level


def _check_product(ctx: OpContext | InferContext, left: str, a: Any, right: str, b: Any) -> None:
    x, y = tuple(a), tuple(b)
    fits = len(x) == 2 and len(y) == 2 and (x[1] == y[0] or -1 in (x[1], y[0]))
    if not fits:
        raise ctx.error(f"{left} (rows, n) must fit {right} (n, columns), found shapes {x} and {y}")


@op("fusion_repeated_fc_relu", inputs="X W* Bias*", outputs="ReluOut*~ Out", lod="X->Out")
def fusion_repeated_fc_relu(ctx: OpContext, X: Any, W: list[Any], Bias: list[Any]) -> dict[str, Any]:
    """Out = relu(... relu(X W[0] + Bias[0]) W[1] + Bias[1] ...); ReluOut are the steps before the last.

    X [rows, n] (Paddle 1.8.5 fusion_repeated_fc_relu_op.cc).
    """
    _check_layers(ctx, len(W), len(Bias))
    outs, rows = [], X
    for index, (weight, bias) in enumerate(zip(W, Bias, strict=True)):
        _check_product(ctx, "the rows before" if index else "input X", rows.shape, f"input W[{index}]", weight.shape)
        rows = ctx.xp.maximum(rows @ weight + bias.reshape(-1), 0)
        outs.append(rows)
    return {"ReluOut": outs[:-1], "Out": outs[-1]}


def _check_layers(ctx: OpContext | InferContext, weights: int, biases: int) -> None:
    if not (weights == biases and weights > 1):
        raise ctx.error(
            f"inputs W and Bias must have equally many variables, at least two; found {weights} and {biases}"
        )


@fusion_repeated_fc_relu.infer
def _(ctx: InferContext, X: TensorMeta, W: list[TensorMeta], Bias: list[TensorMeta]) -> dict[str, Any]:
    _check_layers(ctx, len(W), len(Bias))
    outs = [X.with_shape((X.shape[0], weight.shape[1])) for weight in W]
    return {"ReluOut": [out.with_lod_level(0) for out in outs[:-1]], "Out": outs[-1]}


@op(
    "fusion_squared_mat_sub",
    inputs="X Y",
    outputs="SquaredX~ SquaredY~ SquaredXY~ Out",
    attrs={"scalar": 1.0},
)
def fusion_squared_mat_sub(ctx: OpContext, X: Any, Y: Any, *, scalar: float) -> dict[str, Any]:
    """Out = ((X Y)^2 - X^2 Y^2) * scalar for X [m, k], Y [k, n] (Paddle 1.8.5 fusion_squared_mat_sub_op.cc)."""
    _check_product(ctx, "input X", X.shape, "input Y", Y.shape)
    squared_x, squared_y, product = X * X, Y * Y, X @ Y
    squared_product = product * product
    return {
        "SquaredX": squared_x,
        "SquaredY": squared_y,
        "SquaredXY": squared_product,
        "Out": (squared_product - squared_x @ squared_y) * scalar,
    }


@fusion_squared_mat_sub.infer
def _(ctx: InferContext, X: TensorMeta, Y: TensorMeta) -> dict[str, TensorMeta]:
    _check_product(ctx, "input X", X.shape, "input Y", Y.shape)
    out = TensorMeta((X.shape[0], Y.shape[1]), X.dtype)
    return {"SquaredX": out.with_shape(X.shape), "SquaredY": out.with_shape(Y.shape), "SquaredXY": out, "Out": out}


@op(
    "fusion_seqexpand_concat_fc",
    inputs="X* FCWeight FCBias?",
    outputs="Out FCOut~",
    attrs={"fc_activation": "identity"},
)
def fusion_seqexpand_concat_fc(
    ctx: OpContext, X: list[Any], FCWeight: Any, FCBias: Any, *, fc_activation: str
) -> dict[str, Any]:
    """Out = act([X[0], X[1] expanded, ...] FCWeight + FCBias) for X[0] [rows, n0] with LoD, X[i] [sequences, ni].

    Each row of X[i] stands beside every row of its sequence (Paddle 1.8.5 fusion_seqexpand_concat_fc_op.cc).
    """
    act = activation(ctx, "fc_activation", fc_activation)
    _check_inputs(ctx, len(X))
    offsets = single_level(ctx, "X", len(X[0]))
    for index, value in enumerate(X[1:], 1):
        if value.ndim != 2 or len(value) != len(offsets) - 1:
            raise ctx.error(
                f"input X[{index}] must have one row per sequence of X[0] ({len(offsets) - 1}), found shape {value.shape}"
            )
    sizes = [value.shape[1] for value in X]
    if FCWeight.ndim != 2 or FCWeight.shape[0] != sum(sizes):
        raise ctx.error(f"input FCWeight must have {sum(sizes)} rows, found shape {FCWeight.shape}")
    by_sequence = ctx.xp.concatenate([*X[1:]], axis=1) @ FCWeight[sizes[0] :]
    if FCBias is not None:
        by_sequence = by_sequence + FCBias.reshape(-1)
    out = X[0] @ FCWeight[: sizes[0]] + by_sequence[ctx.array(row_sequences(ctx, offsets))]
    ctx.set_lod("Out", [offsets])
    return with_empty_scratch(ctx, {"Out": act.forward(ctx.xp, out)})


def _check_inputs(ctx: OpContext | InferContext, count: int) -> None:
    if count <= 1:
        raise ctx.error(f"input X must have at least two variables, found {count}")


@fusion_seqexpand_concat_fc.infer
def _(ctx: InferContext, X: list[TensorMeta], FCWeight: TensorMeta, FCBias: TensorMeta | None) -> dict[str, TensorMeta]:
    _check_inputs(ctx, len(X))
    return {"Out": X[0].with_shape((X[0].shape[0], FCWeight.shape[1]))}
