"""lstmp: an LSTM layer over sequences whose hidden state is projected to fewer numbers before it is fed back."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.multiply_adds import rows_multiply_adds
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.activations import BY_NAME, IDENTITY, Activation, activation
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
from fluidtool.shapes import shape_text


def check_projection(ctx: OpContext | InferContext, ProjWeight: Any, size: int) -> None:
    """Raise what `ctx.error` makes unless the projection has the rows of the hidden state."""
    shape = tuple(ProjWeight.shape)
    if len(shape) != 2 or (size > 0 and shape[0] != size):
        raise ctx.error(
            f"input ProjWeight must be (hidden size {size}, projection size), found shape {shape_text(shape)}"
        )


def _projection_activation(ctx: OpContext, proj_activation: str, cell_activation: str) -> Activation:
    """None for `identity`; otherwise Paddle 1.8.5 applies the *cell* activation (lstmp_op.h)."""
    if activation(ctx, "proj_activation", proj_activation) is IDENTITY:
        return IDENTITY
    return activation(ctx, "cell_activation", cell_activation)


@op(
    "lstmp",
    inputs="Input H0? C0? Weight ProjWeight Bias",
    outputs="Projection Cell BatchGate~ BatchCellPreAct~ BatchHidden~",
    attrs={
        "use_peepholes": True,
        "is_reverse": False,
        "cell_clip": 0.0,
        "proj_clip": 0.0,
        "gate_activation": one_of("sigmoid", *BY_NAME),
        "cell_activation": one_of("tanh", *BY_NAME),
        "candidate_activation": one_of("tanh", *BY_NAME),
        "proj_activation": one_of("tanh", *BY_NAME),
    },
    lod="Input->Projection Input->Cell",
    multiply_adds=rows_multiply_adds("Input", "Weight", "ProjWeight"),
)
def lstmp(
    ctx: OpContext,
    Input: Any,
    H0: Any,
    C0: Any,
    Weight: Any,
    ProjWeight: Any,
    Bias: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    cell_clip: float,
    proj_clip: float,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
    proj_activation: str,
) -> dict[str, Any]:
    """Projection [rows, P] and Cell [rows, D] of Input [rows, 4D], Weight [P, 4D], ProjWeight [D, P].

    H0 is [sequences, P], C0 [sequences, D], Bias as for lstm. cell_clip and proj_clip bound the cell state and the
    projection when above 0 (Paddle 1.8.5 lstmp_op.h).
    """
    xp = ctx.xp
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes, ProjWeight.shape[-1])
    check_projection(ctx, ProjWeight, size)
    act = _projection_activation(ctx, proj_activation, cell_activation)
    packing = pack_sequences(ctx, "Input", len(Input), is_reverse)
    check_pair(ctx, H0, C0)
    check_initial(ctx, len(packing.order), "H0", H0, ProjWeight.shape[1])
    check_initial(ctx, len(packing.order), "C0", C0, size)
    cell = make_cell(ctx, Bias, use_peepholes, (gate_activation, cell_activation, candidate_activation), cell_clip)

    def project(hidden: Any) -> Any:
        out = act.forward(xp, hidden @ ProjWeight)
        return xp.minimum(xp.maximum(out, -proj_clip), proj_clip) if proj_clip > 0 else out

    gates = packing.pack(Input)
    gates += Bias[:, : 4 * size]
    run = run_forward(xp, packing, gates, Weight, cell, packing.ordered(H0), packing.ordered(C0), project)
    ctx.set_lod("BatchGate", packing.lod())
    return {
        "Projection": packing.unpack(xp, run.fed_back),
        "Cell": packing.unpack(xp, run.state),
        "BatchGate": run.gates,
        "BatchCellPreAct": run.activated,
        "BatchHidden": run.hidden,
    }


@lstmp.infer
def _(
    ctx: InferContext,
    Input: TensorMeta,
    H0: TensorMeta | None,
    C0: TensorMeta | None,
    Weight: TensorMeta,
    ProjWeight: TensorMeta,
    Bias: TensorMeta,
    *,
    use_peepholes: bool,
) -> dict[str, TensorMeta]:
    size = check_gate_shapes(ctx, Input, Weight, Bias, use_peepholes, ProjWeight.shape[-1])
    check_projection(ctx, ProjWeight, size)
    frame = Input.with_shape((Input.shape[0], size))
    return {
        "Projection": Input.with_shape((Input.shape[0], ProjWeight.shape[1])),
        "Cell": frame,
        "BatchGate": Input.with_lod_level(0),
        "BatchCellPreAct": frame.with_lod_level(0),
        "BatchHidden": frame.with_lod_level(0),
    }


@lstmp.grad(
    inputs="H0? C0? Weight ProjWeight Bias Projection Cell BatchGate BatchCellPreAct BatchHidden Projection@GRAD",
    outputs="Input@GRAD H0@GRAD? C0@GRAD? Weight@GRAD ProjWeight@GRAD Bias@GRAD",
)
def lstmp_grad(
    ctx: OpContext,
    H0: Any,
    C0: Any,
    Weight: Any,
    ProjWeight: Any,
    Bias: Any,
    Projection: Any,
    Cell: Any,
    BatchGate: Any,
    BatchCellPreAct: Any,
    BatchHidden: Any,
    Projection_grad: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    cell_clip: float,
    proj_clip: float,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
    proj_activation: str,
) -> dict[str, Any]:
    """Backpropagation through time from dProjection (Paddle 1.8.5 lstmp_op.h)."""
    xp = ctx.xp
    packing = pack_sequences(ctx, "Cell", len(Cell), is_reverse)
    cell = make_cell(ctx, Bias, use_peepholes, (gate_activation, cell_activation, candidate_activation), cell_clip)
    act = _projection_activation(ctx, proj_activation, cell_activation)
    projection, projection_grad = packing.pack(Projection), packing.pack(Projection_grad)
    h0, c0 = packing.ordered(H0), packing.ordered(C0)

    def through_projection(begin: int, end: int) -> Any:
        rows, grad = projection[begin:end], projection_grad[begin:end]
        if proj_clip > 0:
            grad *= xp.abs(rows) < proj_clip
        grad[...] = act.backward(rows, grad)
        return grad @ ProjWeight.T

    run = LstmRun(BatchGate, packing.pack(Cell), BatchCellPreAct, BatchHidden, projection)
    grads = run_backward(xp, packing, run, Weight, cell, c0, projection_grad, through_projection)
    return {
        "Input@GRAD": packing.unpack(xp, grads.gates),
        "H0@GRAD": packing.unordered(xp, grads.h0) if H0 is not None else None,
        "C0@GRAD": packing.unordered(xp, grads.c0) if C0 is not None else None,
        "Weight@GRAD": packing.one_step_before(xp, projection, h0).T @ grads.gates,
        "ProjWeight@GRAD": BatchHidden.T @ projection_grad,
        "Bias@GRAD": bias_gradient(xp, packing, grads.gates, run.state, c0, cell),
    }
