"""gru_unit and lstm_unit: one time step of a GRU or LSTM over rows without LoD."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import FULL_SIGMOID, IDENTITY, RELU, TANH, Activation, full_sigmoid
from fluidtool.ops.rnn.gru_cell import GruCell, GruWeights, check_gru_shapes
from fluidtool.ops.schema import TensorMeta
from fluidtool.shapes import shape_text

BY_NUMBER = (IDENTITY, FULL_SIGMOID, TANH, RELU)


def _numbered(ctx: OpContext, attr: str, number: int) -> Activation:
    if not 0 <= number < len(BY_NUMBER):
        names = ", ".join(f"{i} ({activation.name})" for i, activation in enumerate(BY_NUMBER))
        raise ctx.error(f"attribute {attr} must be one of {names}; found {number}")
    return BY_NUMBER[number]


def _unit_cell(ctx: OpContext, activation: int, gate_activation: int, origin_mode: bool) -> GruCell:
    return GruCell(
        _numbered(ctx, "gate_activation", gate_activation), _numbered(ctx, "activation", activation), origin_mode
    )


def _check_previous(ctx: OpContext | InferContext, slot: str, previous: Any, rows: int, size: int) -> None:
    shape = tuple(previous.shape)
    fits = len(shape) == 2 and shape[1] in (size, -1) and (shape[0] == rows or -1 in (shape[0], rows))
    if not fits:
        raise ctx.error(f"input {slot} must have shape {shape_text((rows, size))}, found {shape_text(shape)}")


@op(
    "gru_unit",
    inputs="Input HiddenPrev Weight Bias?",
    outputs="Gate~ ResetHiddenPrev~ Hidden",
    attrs={"activation": 2, "gate_activation": 1, "origin_mode": False},
    multiply_adds=rows_multiply_adds("Input", "Weight"),
)
def gru_unit(
    ctx: OpContext,
    Input: Any,
    HiddenPrev: Any,
    Weight: Any,
    Bias: Any,
    *,
    activation: int,
    gate_activation: int,
    origin_mode: bool,
) -> dict[str, Any]:
    """Hidden [rows, D] of Input [rows, 3D] and HiddenPrev [rows, D]; Weight and Bias as for gru.

    Activations by number: 0 identity, 1 sigmoid, 2 tanh, 3 relu (Paddle 1.8.5 gru_unit_op.h).
    """
    size = check_gru_shapes(ctx, Input, Weight, Bias)
    _check_previous(ctx, "HiddenPrev", HiddenPrev, len(Input), size)
    gates = Input.copy() if Bias is None else Input + Bias
    cell = _unit_cell(ctx, activation, gate_activation, origin_mode)
    hidden, reset_hidden = cell.forward(ctx.xp, gates, HiddenPrev, GruWeights.split(Weight))
    return {"Gate": gates, "ResetHiddenPrev": reset_hidden, "Hidden": hidden}


@gru_unit.infer
def _(
    ctx: InferContext, Input: TensorMeta, HiddenPrev: TensorMeta, Weight: TensorMeta, Bias: TensorMeta | None
) -> dict[str, TensorMeta]:
    size = check_gru_shapes(ctx, Input, Weight, Bias)
    _check_previous(ctx, "HiddenPrev", HiddenPrev, Input.shape[0], size)
    hidden = TensorMeta((Input.shape[0], size), Input.dtype)
    return {"Gate": hidden.with_shape((Input.shape[0], 3 * size)), "ResetHiddenPrev": hidden, "Hidden": hidden}


@gru_unit.grad(
    inputs="Input HiddenPrev Weight Bias? Gate ResetHiddenPrev Hidden@GRAD",
    outputs="Input@GRAD HiddenPrev@GRAD Weight@GRAD Bias@GRAD?",
)
def gru_unit_grad(
    ctx: OpContext,
    Input: Any,
    HiddenPrev: Any,
    Weight: Any,
    Bias: Any,
    Gate: Any,
    ResetHiddenPrev: Any,
    Hidden_grad: Any,
    *,
    activation: int,
    gate_activation: int,
    origin_mode: bool,
) -> dict[str, Any]:
    """The gradient of one step, from dHidden (Paddle 1.8.5 gru_unit_op.h)."""
    cell, size = _unit_cell(ctx, activation, gate_activation, origin_mode), Weight.shape[0]
    grads, previous_grad = cell.backward(ctx.xp, Gate, HiddenPrev, Hidden_grad, GruWeights.split(Weight))
    return {
        "Input@GRAD": grads,
        "HiddenPrev@GRAD": previous_grad,
        "Weight@GRAD": GruWeights.join(
            ctx.xp, HiddenPrev.T @ grads[:, : 2 * size], ResetHiddenPrev.T @ grads[:, 2 * size :]
        )
        if ctx.wants("Weight@GRAD")
        else None,
        "Bias@GRAD": grads.sum(axis=0)[None] if ctx.wants("Bias@GRAD") else None,
    }


def _lstm_unit_gates(ctx: OpContext, X: Any, size: int, forget_bias: float) -> tuple[Any, Any, Any, Any]:
    xp = ctx.xp
    return (
        full_sigmoid(xp, X[:, :size]),
        full_sigmoid(xp, X[:, size : 2 * size] + forget_bias),
        full_sigmoid(xp, X[:, 2 * size : 3 * size]),
        xp.tanh(X[:, 3 * size :]),
    )


def _check_lstm_unit(ctx: OpContext | InferContext, X: Any, C_prev: Any) -> None:
    given, previous = tuple(X.shape), tuple(C_prev.shape)
    if len(given) != 2 or len(previous) != 2:
        raise ctx.error(f"inputs X and C_prev must be matrices, found shapes {given} and {previous}")
    _check_previous(ctx, "C_prev", C_prev, given[0], previous[1])
    if -1 not in (given[1], previous[1]) and given[1] != 4 * previous[1]:
        raise ctx.error(f"input X must be 4 times as wide as C_prev of shape {previous}, found shape {given}")


@op("lstm_unit", inputs="X C_prev", outputs="C H", attrs={"forget_bias": 0.0})
def lstm_unit(ctx: OpContext, X: Any, C_prev: Any, *, forget_bias: float) -> dict[str, Any]:
    """C and H [rows, D] of X [rows, 4D] (input, forget, output gate, candidate) and C_prev [rows, D].

    C = sigmoid(f + forget_bias) * C_prev + sigmoid(i) * tanh(g), H = sigmoid(o) * tanh(C) (Paddle 1.8.5 lstm_unit_op.h).
    """
    _check_lstm_unit(ctx, X, C_prev)
    i, f, o, g = _lstm_unit_gates(ctx, X, C_prev.shape[1], forget_bias)
    cell = f * C_prev + i * g
    return {"C": cell, "H": o * ctx.xp.tanh(cell)}


@lstm_unit.infer
def _(ctx: InferContext, X: TensorMeta, C_prev: TensorMeta) -> dict[str, TensorMeta]:
    _check_lstm_unit(ctx, X, C_prev)
    out = TensorMeta((X.shape[0], C_prev.shape[1]), X.dtype)
    return {"C": out, "H": out}


@lstm_unit.grad(inputs="X C_prev C C@GRAD H@GRAD", outputs="X@GRAD C_prev@GRAD")
def lstm_unit_grad(
    ctx: OpContext, X: Any, C_prev: Any, C: Any, C_grad: Any, H_grad: Any, *, forget_bias: float
) -> dict[str, Any]:
    """The gradient of one step, from dC and dH (Paddle 1.8.5 lstm_unit_op.h)."""
    i, f, o, g = _lstm_unit_gates(ctx, X, C_prev.shape[1], forget_bias)
    activated = ctx.xp.tanh(C)
    cell_grad = C_grad + H_grad * o * (1 - activated * activated)
    grads = [
        cell_grad * g * i * (1 - i),
        cell_grad * C_prev * f * (1 - f),
        H_grad * activated * o * (1 - o),
        cell_grad * i * (1 - g * g),
    ]
    return {"X@GRAD": ctx.xp.concatenate(grads, axis=1), "C_prev@GRAD": cell_grad * f}
