"""crf_decoding: the best tag sequence under a conditional random field (Viterbi)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.structured.linear_chain_crf import BETWEEN, END, START
from fluidtool.ops.structured.sequences import check_crf_shapes, pack_tagged
from fluidtool.ops.structured.viterbi import best_path
from fluidtool.proto.enums import VarType


@op("crf_decoding", inputs="Emission Transition Label? Length?", outputs="ViterbiPath", lod="Emission")
def crf_decoding(ctx: OpContext, Emission: Any, Transition: Any, Label: Any, Length: Any) -> Any:
    """The best tags, int64: [rows, 1] for Emission [rows, tags] with LoD, [N, longest] for [N, longest, tags] and Length.

    With Label the result is 1 where the best tag is the label, else 0. Of equal scores the lowest tag wins; what lies
    beyond a sequence's Length is 0 (Paddle 1.8.5 crf_decoding_op.h).
    """
    xp = ctx.xp
    tags = check_crf_shapes(ctx, Emission, Transition, Length)
    packing = pack_tagged(ctx, Emission, Length, "Emission")
    start, stop, between = Transition[START], Transition[END], Transition[BETWEEN:]
    _, path = best_path(xp, packing, packing.pack(Emission.reshape(-1, tags)), start, between, stop)
    rows = Emission.size // tags if tags else 0
    if Label is not None:
        fits = Label.size == rows
        if not fits:
            raise ctx.error(f"input Label must have one tag per row of Emission ({rows}), found shape {Label.shape}")
        path = (path == packing.pack(Label.reshape(-1))).astype(xp.int64)
    shape = (Emission.shape[0], 1) if Length is None else Emission.shape[:2]
    return packing.unpack(xp, path, rows).reshape(shape)


@crf_decoding.infer
def _(
    ctx: InferContext, Emission: TensorMeta, Transition: TensorMeta, Label: TensorMeta | None, Length: TensorMeta | None
) -> TensorMeta:
    check_crf_shapes(ctx, Emission, Transition, Length)
    shape = (Emission.shape[0], 1) if Length is None else Emission.shape[:2]
    return TensorMeta(shape, VarType.INT64, Emission.lod_level)
