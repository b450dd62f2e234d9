"""fusion_lstm and fused_embedding_fc_lstm: an LSTM layer together with the projection, or look-up, of its input."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.fused.scratch import with_empty_scratch
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.lstm_layer import check_gate_shapes, check_initial, check_pair, make_cell, run_forward
from fluidtool.ops.rnn.packing import pack_sequences
from fluidtool.ops.schema import TensorMeta

ATTRS = {
    "use_peepholes": True,
    "is_reverse": False,
    "use_seq": True,
    "gate_activation": "sigmoid",
    "cell_activation": "tanh",
    "candidate_activation": "tanh",
}


def _run(
    ctx: OpContext,
    slot: str,
    projected: Any,
    weight: Any,
    bias: Any,
    h0: Any,
    c0: Any,
    use_peepholes: bool,
    is_reverse: bool,
    activations: tuple[str, str, str],
) -> dict[str, Any]:
    """Hidden and Cell from the gates' sums without the recurrent part; the sequences are those of input `slot`."""
    size = check_gate_shapes(ctx, projected, weight, bias, use_peepholes, weight_slot="WeightH")
    packing = pack_sequences(ctx, slot, len(projected), is_reverse)
    check_pair(ctx, h0, c0)
    check_initial(ctx, len(packing.order), "H0", h0, size)
    check_initial(ctx, len(packing.order), "C0", c0, size)
    cell = make_cell(ctx, bias, use_peepholes, activations)
    gates = packing.pack(projected)
    run = run_forward(ctx.xp, packing, gates, weight, cell, packing.ordered(h0), packing.ordered(c0))
    outputs = {"Hidden": packing.unpack(ctx.xp, run.hidden), "Cell": packing.unpack(ctx.xp, run.state)}
    return with_empty_scratch(ctx, outputs | {"XX": ctx.dims_only(projected.shape)})


def _metas(source: TensorMeta, weight: TensorMeta, dtype: Any, xx_width: int) -> dict[str, TensorMeta]:
    rows, width = source.shape[0], weight.shape[1]
    frame = TensorMeta((rows, width // 4), dtype, source.lod_level)
    return {"Hidden": frame, "Cell": frame, "XX": frame.with_shape((rows, xx_width))}


def _batched(metas: dict[str, TensorMeta], width: int) -> dict[str, TensorMeta]:
    plain = metas["Hidden"].with_lod_level(0)
    gates = plain.with_shape((plain.shape[0], width))
    return metas | {"BatchedInput": gates, "BatchedHidden": plain, "BatchedCell": plain}


def check_projection(ctx: OpContext | InferContext, X: Any, WeightX: Any) -> None:
    """Raise OperatorError unless X [rows, M] fits WeightX [M, columns]."""
    x, weight = tuple(X.shape), tuple(WeightX.shape)
    fits = len(x) == 2 and len(weight) == 2 and (x[1] == weight[0] or -1 in (x[1], weight[0]))
    if not fits:
        raise ctx.error(f"input X (rows, M) must fit input WeightX (M, columns), found shapes {x} and {weight}")


@op(
    "fusion_lstm",
    inputs="X WeightX WeightH Bias H0? C0?",
    outputs="Hidden Cell XX~ BatchedInput~ BatchedHidden~ BatchedCell~ ReorderedH0~ ReorderedC0~ CheckedCell~",
    attrs=ATTRS,
    lod="X->Hidden X->Cell X->XX",
)
def fusion_lstm(
    ctx: OpContext,
    X: Any,
    WeightX: Any,
    WeightH: Any,
    Bias: Any,
    H0: Any,
    C0: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> dict[str, Any]:
    """lstm over X WeightX: X [rows, M], WeightX [M, 4D], WeightH [D, 4D]; Bias, H0, C0 as for lstm.

    The scratch outputs stay empty, XX has dimensions only (Paddle 1.8.5 fusion_lstm_op.cc).
    """
    check_projection(ctx, X, WeightX)
    projected = X @ WeightX + Bias[:, : WeightX.shape[1]]
    activations = (gate_activation, cell_activation, candidate_activation)
    return _run(ctx, "X", projected, WeightH, Bias, H0, C0, use_peepholes, is_reverse, activations)


@fusion_lstm.infer
def _(
    ctx: InferContext,
    X: TensorMeta,
    WeightX: TensorMeta,
    WeightH: TensorMeta,
    Bias: TensorMeta,
    H0: TensorMeta | None,
    C0: TensorMeta | None,
    *,
    use_seq: bool,
    use_peepholes: bool,
) -> dict[str, TensorMeta]:
    check_projection(ctx, X, WeightX)
    width = WeightX.shape[1]
    xx_width = width if use_seq else min(X.shape[1], width)
    metas = _metas(X, WeightH, X.dtype, xx_width)
    if use_peepholes:
        metas["CheckedCell"] = TensorMeta((2, width // 4), X.dtype)
    return metas if use_seq else _batched(metas, width)


@op(
    "fused_embedding_fc_lstm",
    inputs="Ids Embeddings WeightH Bias H0? C0?",
    outputs="Hidden Cell XX~ BatchedInput~ BatchedHidden~ BatchedCell~ ReorderedH0~ ReorderedC0~",
    attrs=ATTRS,
    lod="Ids->Hidden Ids->Cell Ids->XX",
)
def fused_embedding_fc_lstm(
    ctx: OpContext,
    Ids: Any,
    Embeddings: Any,
    WeightH: Any,
    Bias: Any,
    H0: Any,
    C0: Any,
    *,
    use_peepholes: bool,
    is_reverse: bool,
    gate_activation: str,
    cell_activation: str,
    candidate_activation: str,
) -> dict[str, Any]:
    """lstm over the rows Ids [rows, 1] of Embeddings [words, 4D], which carry projection and bias already.

    Bias serves the peepholes only (Paddle 1.8.5 fused_embedding_fc_lstm_op.cc).
    """
    ids = Ids.reshape(-1)
    words = len(Embeddings)
    if ids.size and not bool(((ids >= 0) & (ids < words)).all()):
        raise ctx.error(f"input Ids must lie between 0 and {words - 1}, found {int(ids.min())} to {int(ids.max())}")
    activations = (gate_activation, cell_activation, candidate_activation)
    return _run(ctx, "Ids", Embeddings[ids], WeightH, Bias, H0, C0, use_peepholes, is_reverse, activations)


@fused_embedding_fc_lstm.infer
def _(
    ctx: InferContext,
    Ids: TensorMeta,
    Embeddings: TensorMeta,
    WeightH: TensorMeta,
    Bias: TensorMeta,
    H0: TensorMeta | None,
    C0: TensorMeta | None,
    *,
    use_seq: bool,
) -> dict[str, TensorMeta]:
    width = WeightH.shape[1]
    metas = _metas(Ids, WeightH, Embeddings.dtype, width)
    return metas if use_seq else _batched(metas, width)
