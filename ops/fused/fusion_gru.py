"""fusion_gru: a GRU layer together with the projection of its input."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.fused.fusion_lstm import check_projection
from fluidtool.ops.fused.scratch import with_empty_scratch
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.gru import make_gru_cell, run_gru
from fluidtool.ops.rnn.gru_cell import check_gru_shapes
from fluidtool.ops.rnn.lstm_layer import check_initial
from fluidtool.ops.rnn.packing import pack_sequences
from fluidtool.ops.schema import TensorMeta


@op(
    "fusion_gru",
    inputs="X H0? WeightX WeightH Bias?",
    outputs="ReorderedH0~ XX~ BatchedInput~ BatchedOut~ Hidden",
    attrs={
        "activation": "tanh",
        "gate_activation": "sigmoid",
        "is_reverse": False,
        "use_seq": True,
        "origin_mode": False,
    },
    lod="X->Hidden X->XX",
)
def fusion_gru(
    ctx: OpContext,
    X: Any,
    H0: Any,
    WeightX: Any,
    WeightH: Any,
    Bias: Any,
    *,
    activation: str,
    gate_activation: str,
    is_reverse: bool,
) -> dict[str, Any]:
    """gru over X WeightX: X [rows, M], WeightX [M, 3D], WeightH [D, 3D]; Bias and H0 as for gru.

    The scratch outputs stay empty, XX has dimensions only. origin_mode is declared, but Paddle 1.8.5 computes without
    it (fusion_gru_op.cc).
    """
    check_projection(ctx, X, WeightX)
    projected = X @ WeightX
    size = check_gru_shapes(ctx, projected, WeightH, Bias, weight_slot="WeightH", input_slot="WeightX")
    if Bias is not None:
        projected += Bias
    packing = pack_sequences(ctx, "X", len(X), is_reverse)
    check_initial(ctx, len(packing.order), "H0", H0, size)
    cell = make_gru_cell(ctx, activation, gate_activation, origin_mode=False)
    hidden, _ = run_gru(ctx.xp, packing, packing.pack(projected), WeightH, cell, packing.ordered(H0))
    outputs = {"Hidden": packing.unpack(ctx.xp, hidden), "XX": ctx.dims_only(projected.shape)}
    return with_empty_scratch(ctx, outputs)


@fusion_gru.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    H0: TensorMeta | None,
    WeightX: TensorMeta,
    WeightH: TensorMeta,
    Bias: TensorMeta | None,
    *,
    use_seq: bool,
) -> dict[str, TensorMeta]:
    check_projection(ctx, X, WeightX)
    rows, width = X.shape[0], WeightX.shape[1]
    hidden = X.with_shape((rows, WeightH.shape[0]))
    metas = {"Hidden": hidden, "XX": X.with_shape((rows, width if use_seq else min(X.shape[1], width)))}
    if not use_seq:
        plain = hidden.with_lod_level(0)
        metas |= {"BatchedInput": plain.with_shape((rows, width)), "BatchedOut": plain}
    return metas
