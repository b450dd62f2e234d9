"""gru: a GRU layer over sequences, whose input projections are already made."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import activation
from fluidtool.ops.rnn.gru_cell import GruCell, GruWeights, check_gru_shapes
from fluidtool.ops.rnn.lstm_layer import check_initial
from fluidtool.ops.rnn.packing import Packing, pack_sequences
from fluidtool.ops.schema import TensorMeta


def make_gru_cell(ctx: OpContext, candidate: str, gate: str, origin_mode: bool) -> GruCell:
    """The cell of these activations; raises OperatorError for an unknown one."""
    return GruCell(
        activation(ctx, "gate_activation", gate), activation(ctx, "activation", candidate), origin_mode=origin_mode
    )


def run_gru(xp: Any, packing: Packing, gates: Any, weight: Any, cell: GruCell, h0: Any) -> tuple[Any, Any]:
    """Hidden and reset hidden states, packed. gates [rows, 3 * size]: packed sums, activated in place; h0: ordered."""
    weights = GruWeights.split(weight)
    hidden, reset_hidden = (xp.empty((len(gates), weight.shape[0]), dtype=gates.dtype) for _ in range(2))
    for begin, end, before in packing.steps():
        alive = end - begin
        if before >= 0:
            old = hidden[before : before + alive]
        else:
            old = None if h0 is None else h0[:alive]
        hidden[begin:end], reset_hidden[begin:end] = cell.forward(xp, gates[begin:end], old, weights)
    return hidden, reset_hidden


@op(
    "gru",
    inputs="Input H0? Weight Bias?",
    outputs="BatchGate~ BatchResetHiddenPrev~ BatchHidden~ Hidden",
    attrs={"activation": "tanh", "gate_activation": "sigmoid", "is_reverse": False, "origin_mode": False},
    lod="Input->Hidden",
    multiply_adds=rows_multiply_adds("Input", "Weight"),
)
def gru(
    ctx: OpContext,
    Input: Any,
    H0: Any,
    Weight: Any,
    Bias: Any,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
    origin_mode: bool,
) -> dict[str, Any]:
    """Hidden [rows, D] of Input [rows, 3D] (update gate, reset gate, candidate), H0 [sequences, D], Bias [1, 3D].

    Weight [D, 3D] holds a [D, 2D] matrix for the gates and then a [D, D] one for the candidate. The Batch* outputs are
    in packed order, for the gradient (Paddle 1.8.5 gru_op.cc).
    """
    size = check_gru_shapes(ctx, Input, Weight, Bias)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    check_initial(ctx, len(packing.order), "H0", H0, size)
    cell = make_gru_cell(ctx, activation, gate_activation, origin_mode)
    gates = packing.pack(Input)
    if Bias is not None:
        gates += Bias
    hidden, reset_hidden = run_gru(ctx.xp, packing, gates, Weight, cell, packing.ordered(H0))
    ctx.set_lod("BatchGate", packing.lod())
    ctx.set_lod("BatchHidden", packing.lod())
    return {
        "BatchGate": gates,
        "BatchResetHiddenPrev": reset_hidden,
        "BatchHidden": hidden,
        "Hidden": packing.unpack(ctx.xp, hidden),
    }


@gru.infer
def _(
    ctx: InferContext, Input: TensorMeta, H0: TensorMeta | None, Weight: TensorMeta, Bias: TensorMeta | None
) -> dict[str, TensorMeta]:
    size = check_gru_shapes(ctx, Input, Weight, Bias)
    hidden = Input.with_shape((Input.shape[0], size))
    plain = hidden.with_lod_level(0)
    return {
        "BatchGate": Input.with_lod_level(0),
        "BatchResetHiddenPrev": plain,
        "BatchHidden": plain,
        "Hidden": hidden,
    }


@gru.grad(
    inputs="Input H0? Weight Bias? BatchGate BatchResetHiddenPrev BatchHidden Hidden Hidden@GRAD",
    outputs="Input@GRAD H0@GRAD? Weight@GRAD Bias@GRAD?",
)
def gru_grad(
    ctx: OpContext,
    Input: Any,
    H0: Any,
    Weight: Any,
    Bias: Any,
    BatchGate: Any,
    BatchResetHiddenPrev: Any,
    BatchHidden: Any,
    Hidden: Any,
    Hidden_grad: Any,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
    origin_mode: bool,
) -> dict[str, Any]:
    """Backpropagation through time from dHidden (Paddle 1.8.5 gru_op.h)."""
    xp = ctx.xp
    packing = pack_sequences(ctx, "Hidden", len(Hidden), is_reverse)
    cell, weights = make_gru_cell(ctx, activation, gate_activation, origin_mode), GruWeights.split(Weight)
    h0, size = packing.ordered(H0), Weight.shape[0]
    hidden_grad, gate_grads = packing.pack(Hidden_grad), xp.empty_like(BatchGate)
    h0_grad = xp.zeros((len(packing.order), size), dtype=Weight.dtype)
    for begin, end, before in packing.backward_steps():
        alive = end - begin
        if before >= 0:
            old = BatchHidden[before : before + alive]
        else:
            old = None if h0 is None else h0[:alive]
        grads, old_grad = cell.backward(xp, BatchGate[begin:end], old, hidden_grad[begin:end], weights)
        gate_grads[begin:end] = grads
        if before >= 0:
            hidden_grad[before : before + alive] += old_grad
        else:
            h0_grad[:alive] = old_grad
    gates_weight_grad = packing.one_step_before(xp, BatchHidden, h0).T @ gate_grads[:, : 2 * size]
    candidate_weight_grad = BatchResetHiddenPrev.T @ gate_grads[:, 2 * size :]
    return {
        "Input@GRAD": packing.unpack(xp, gate_grads),
        "H0@GRAD": packing.unordered(xp, h0_grad) if H0 is not None else None,
        "Weight@GRAD": GruWeights.join(xp, gates_weight_grad, candidate_weight_grad),
        "Bias@GRAD": gate_grads.sum(axis=0)[None],
    }
