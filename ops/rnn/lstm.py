"""lstm: an LSTM layer over sequences, whose input projections are already made."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import BY_NAME
from fluidtool.ops.rnn.lstm_layer import (
    LstmRun,
    bias_gradient,
    check_gate_shapes,
    check_initial,
    check_pair,
    make_cell,
    run_backward,
    run_forward,
)
from fluidtool.ops.rnn.packing import pack_sequences
from fluidtool.ops.schema import TensorMeta, one_of


@op(
    "lstm",
    inputs="Input H0? C0? Weight Bias",
    outputs="Hidden Cell BatchGate~ BatchCellPreAct~",
    attrs={
        "use_peepholes": True,
        "is_reverse": False,
        "gate_activation": one_of("sigmoid", *BY_NAME),
        "cell_activation": one_of("tanh", *BY_NAME),
        "candidate_activation": one_of("tanh", *BY_NAME),
    },
    lod="Input->Hidden Input->Cell",
    multiply_adds=rows_multiply_adds("Input", "Weight"),
)
def lstm(
    ctx: OpContext,
    Input: Any,
    H0: Any,
    C0: Any,
    Weight: Any,
    Bias: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> dict[str, Any]:
    """Hidden and Cell [rows, D] of Input [rows, 4D] (candidate, input, forget, output gate), Weight [D, 4D].

    Bias [1, 4D], with use_peepholes [1, 7D]; H0 and C0 [sequences, D]. BatchGate and BatchCellPreAct hold the activated
    gates and cell states in packed order for the gradient (Paddle 1.8.5 lstm_op.h).
    """
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    check_pair(ctx, H0, C0)
    check_initial(ctx, len(packing.order), "H0", H0, size)
    check_initial(ctx, len(packing.order), "C0", C0, size)
    cell = make_cell(ctx, Bias, use_peepholes, (gate_activation, cell_activation, candidate_activation))
    gates = packing.pack(Input)
    gates += Bias[:, : 4 * size]
    run = run_forward(ctx.xp, packing, gates, Weight, cell, packing.ordered(H0), packing.ordered(C0))
    ctx.set_lod("BatchGate", packing.lod())
    return {
        "Hidden": packing.unpack(ctx.xp, run.hidden),
        "Cell": packing.unpack(ctx.xp, run.state),
        "BatchGate": run.gates,
        "BatchCellPreAct": run.activated,
    }


@lstm.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    H0: TensorMeta | None,
    C0: TensorMeta | None,
    Weight: TensorMeta,
    Bias: TensorMeta,
    *,
    use_peepholes: bool,
) -> dict[str, TensorMeta]:
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes)
    frame = Input.with_shape((Input.shape[0], size))
    return {
        "Hidden": frame,
        "Cell": frame,
        "BatchGate": Input.with_lod_level(0),
        "BatchCellPreAct": frame.with_lod_level(0),
    }


@lstm.grad(
    inputs="Input H0? C0? Weight Bias Hidden Cell BatchGate BatchCellPreAct Hidden@GRAD",
    outputs="Input@GRAD H0@GRAD? C0@GRAD? Weight@GRAD Bias@GRAD",
)
def lstm_grad(
    ctx: OpContext,
    Input: Any,
    H0: Any,
    C0: Any,
    Weight: Any,
    Bias: Any,
    Hidden: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    Hidden_grad: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> dict[str, Any]:
    """Backpropagation through time from dHidden; Cell takes no gradient, as in Paddle 1.8.5 lstm_op.h."""
    xp = ctx.xp
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    cell = make_cell(ctx, Bias, use_peepholes, (gate_activation, cell_activation, candidate_activation))
    hidden, h0, c0 = packing.pack(Hidden), packing.ordered(H0), packing.ordered(C0)
    run = LstmRun(BatchGate, packing.pack(Cell), BatchCellPreAct, hidden, hidden)
    grads = run_backward(xp, packing, run, Weight, cell, c0, packing.pack(Hidden_grad))
    return {
        "Input@GRAD": packing.unpack(xp, grads.gates),
        "H0@GRAD": packing.unordered(xp, grads.h0) if H0 is not None else None,
        "C0@GRAD": packing.unordered(xp, grads.c0) if C0 is not None else None,
        "Weight@GRAD": packing.one_step_before(xp, hidden, h0).T @ grads.gates,
        "Bias@GRAD": bias_gradient(xp, packing, grads.gates, run.state, c0, cell),
    }
