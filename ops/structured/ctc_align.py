"""ctc_align: merge repeated tokens and drop the blank."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.traits import Traits


@op(
    "ctc_align",
    inputs="Input InputLength?",
    outputs="Output OutputLength?",
    attrs={"blank": 0, "merge_repeated": True, "padding_value": 0},
    traits=Traits(lod_branch="Input"),
)
def ctc_align(
    ctx: OpContext, Input: Any, InputLength: Any, *, blank: int, merge_repeated: bool, padding_value: int
) -> Any:
    """Input [rows, 1] with LoD -> Output [kept rows, 1] with its LoD; [[-1]] when nothing is kept.

    Without LoD: Input [N, longest] and InputLength [N, 1] -> Output [N, longest], filled up with padding_value, and
    OutputLength [N, 1]. Integers (Paddle 1.8.5 ctc_align_op.h).
    """
    if ctx.lod("Input"):
        return _align_rows(ctx, Input, blank, merge_repeated)
    return _align_padded(ctx, Input, InputLength, blank, merge_repeated, padding_value)


def _kept(xp: Any, tokens: Any, before: Any, blank: int, merge_repeated: bool) -> Any:
    kept = tokens != blank
    return kept & (tokens != before) if merge_repeated else kept


def _align_rows(ctx: OpContext, Input: Any, blank: int, merge_repeated: bool) -> Any:
    np = ctx.np
    lod = ctx.lod("Input")
    bounds = np.asarray(lod[0], dtype=np.int64)
    for level in lod[1:]:
        bounds = np.asarray(level, dtype=np.int64)[bounds]
    tokens = ctx.host(Input).reshape(-1)
    if bounds[-1] != len(tokens):
        raise ctx.error(
            f"the LoD of input Input ends at {bounds[-1]}, but it holds {len(tokens)} tokens; the two must agree"
        )
    before = np.concatenate([tokens[:0], tokens[:1], tokens[:-1]])[: len(tokens)]
    before[bounds[:-1][bounds[:-1] < len(tokens)]] = -1
    kept = _kept(np, tokens, before, blank, merge_repeated)
    counted = np.concatenate([[0], np.cumsum(kept)])
    ctx.set_lod("Output", [counted[bounds].tolist()])
    out = tokens[kept][:, None]
    return ctx.array(out if len(out) else np.full((1, 1), -1, dtype=tokens.dtype))


def _align_padded(
    ctx: OpContext, Input: Any, InputLength: Any, blank: int, merge_repeated: bool, padding_value: int
) -> dict[str, Any]:
    xp = ctx.xp
    if Input.ndim != 2 or InputLength is None or InputLength.size != len(Input):
        found = "none" if InputLength is None else InputLength.shape
        raise ctx.error(
            "input Input needs a LoD, or must be (N, longest) with an input InputLength of N numbers; "
            f"found Input of shape {Input.shape} without LoD and InputLength {found}"
        )
    lengths = InputLength.reshape(-1, 1)
    width = Input.shape[1]
    if lengths.size and not bool(((lengths >= 0) & (lengths <= width)).all()):
        raise ctx.error(
            f"input InputLength must lie between 0 and {width}, found {ctx.host(lengths).reshape(-1).tolist()[:12]}"
        )
    before = xp.concatenate([xp.full((len(Input), 1), -1, dtype=Input.dtype), Input[:, :-1]], axis=1)
    kept = _kept(xp, Input, before, blank, merge_repeated) & (xp.arange(width) < lengths)
    out = xp.full(Input.shape, padding_value, dtype=Input.dtype)
    row, column = xp.nonzero(kept)
    out[row, (kept.cumsum(axis=1) - 1)[row, column]] = Input[row, column]
    return {"Output": out, "OutputLength": kept.sum(axis=1, keepdims=True).astype(Input.dtype)}


@ctc_align.infer
def _(ctx: InferContext, Input: TensorMeta, InputLength: TensorMeta | None) -> dict[str, TensorMeta]:
    return {"Output": Input.with_lod_level(0), "OutputLength": Input.with_shape((Input.shape[0], 1)).with_lod_level(0)}
