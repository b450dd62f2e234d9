"""warpctc: connectionist temporal classification, the loss of label sequences that are shorter than their inputs."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.ops.structured.ctc_paths import ctc_loss


def _absolute(lod: list[list[int]], np: Any) -> Any:
    """Rows at which the outermost sequences start and end."""
    bounds = np.asarray(lod[0], dtype=np.int64)
    for level in lod[1:]:
        bounds = np.asarray(level, dtype=np.int64)[bounds]
    return bounds


def _row_bounds(ctx: OpContext, slot: str, rows: int) -> Any:
    lod = ctx.lod(slot)
    if not lod:
        raise ctx.error(f"input {slot} needs a LoD, or pass the inputs LogitsLength and LabelLength; found neither")
    bounds = _absolute(lod, ctx.np)
    if bounds[-1] != rows:
        raise ctx.error(f"the LoD of input {slot} ends at {bounds[-1]}, but it has {rows} rows")
    return bounds


def _padded(ctx: OpContext, rows: Any, bounds: Any) -> tuple[Any, Any]:
    """Rows [rows, width] as [longest, sequences, width] with zeros, and the lengths."""
    xp, np = ctx.xp, ctx.np
    lengths = np.diff(bounds)
    out = xp.zeros((int(lengths.max(initial=0)), len(lengths), rows.shape[1]), dtype=rows.dtype)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    out[ctx.array(np.arange(len(sequence)) - bounds[sequence]), ctx.array(sequence)] = rows
    return out, lengths


def _checked_lengths(ctx: OpContext, slot: str, value: Any, sequences: int, longest: int) -> Any:
    lengths = ctx.np.asarray(ctx.host(value)).reshape(-1).astype(ctx.np.int64)
    fits = len(lengths) == sequences and bool(((lengths >= 0) & (lengths <= longest)).all())
    if not fits:
        raise ctx.error(f"input {slot} must be {sequences} numbers from 0 to {longest}, found {lengths.tolist()[:12]}")
    return lengths


@op(
    "warpctc",
    inputs="Logits Label LogitsLength? LabelLength?",
    outputs="WarpCTCGrad~ Loss",
    attrs={"blank": 0, "norm_by_times": False},
)
def warpctc(
    ctx: OpContext, Logits: Any, Label: Any, LogitsLength: Any, LabelLength: Any, *, blank: int
) -> dict[str, Any]:
    """Loss [sequences, 1] = -log p(Label | softmax(Logits)); 0 where the label does not fit into the input.

    Logits [rows, classes] and Label [rows, 1], both with LoD; or Logits [longest, N, classes], Label [N, longest label]
    with LogitsLength [N] and LabelLength [N]. WarpCTCGrad [longest, N, classes] is the gradient by Logits, zero beyond
    a sequence's end (Paddle 1.8.5 warpctc_op.h).
    """
    np = ctx.np
    classes = int(Logits.shape[-1]) if Logits.ndim else 0
    if not 0 <= blank < classes:
        raise ctx.error(f"attribute blank must lie below the {classes} classes of Logits, found {blank}")
    if LogitsLength is not None and LabelLength is not None:
        if Logits.ndim != 3 or Label.ndim < 2 or Label.shape[0] != Logits.shape[1]:
            raise ctx.error(
                "with LogitsLength, input Logits must be (longest, N, classes) and Label (N, longest label); "
                f"found shapes {Logits.shape} and {Label.shape}"
            )
        longest, sequences = Logits.shape[:2]
        logits, lengths = Logits, _checked_lengths(ctx, "LogitsLength", LogitsLength, sequences, longest)
        labels = np.asarray(ctx.host(Label)).reshape(sequences, -1)
        label_lengths = _checked_lengths(ctx, "LabelLength", LabelLength, sequences, labels.shape[1])
    else:
        if Logits.ndim != 2:
            raise ctx.error(f"input Logits with a LoD must be (rows, classes), found shape {Logits.shape}")
        logits, lengths = _padded(ctx, Logits, _row_bounds(ctx, "Logits", len(Logits)))
        bounds = _row_bounds(ctx, "Label", len(Label))
        if Label.size != len(Label):
            raise ctx.error(f"input Label must be (rows, 1), found shape {Label.shape}")
        label_lengths = np.diff(bounds)
        if len(lengths) != len(label_lengths):
            raise ctx.error(
                f"inputs Logits and Label must have equally many sequences, found {len(lengths)} and {len(label_lengths)}"
            )
        column = np.arange(label_lengths.max(initial=0))
        given = column < label_lengths[:, None]
        labels = np.zeros(given.shape, dtype=np.int64)
        labels[given] = np.asarray(ctx.host(Label)).reshape(-1)
    used = labels[np.arange(labels.shape[1]) < label_lengths[:, None]]
    if used.size and not ((used >= 0) & (used < classes)).all():
        raise ctx.error(f"input Label must hold classes from 0 to {classes - 1}, found {used.min()} to {used.max()}")
    loss, gradient = ctc_loss(ctx, logits, labels, lengths, label_lengths, blank)
    return {"WarpCTCGrad": gradient, "Loss": loss[:, None]}


@warpctc.infer
def _(
    ctx: InferContext,
    Logits: TensorMeta,
    Label: TensorMeta,
    LogitsLength: TensorMeta | None,
    LabelLength: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return {"Loss": TensorMeta((-1, 1), Logits.dtype)}


@warpctc.grad(inputs="Logits LogitsLength? WarpCTCGrad Loss@GRAD", outputs="Logits@GRAD", lod="Logits")
def warpctc_grad(
    ctx: OpContext, Logits: Any, LogitsLength: Any, WarpCTCGrad: Any, Loss_grad: Any, *, norm_by_times: bool
) -> Any:
    """dLogits = WarpCTCGrad * dLoss; with norm_by_times divided by the sequence's length."""
    np = ctx.np
    scaled = WarpCTCGrad * Loss_grad.reshape(1, -1, 1)
    if LogitsLength is not None:
        lengths = ctx.xp.maximum(LogitsLength, 1).reshape(1, -1, 1).astype(scaled.dtype)
        return scaled / lengths if norm_by_times else scaled
    bounds = _row_bounds(ctx, "Logits", len(Logits))
    lengths = np.diff(bounds)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    rows = scaled[ctx.array(np.arange(len(sequence)) - bounds[sequence]), ctx.array(sequence)]
    if norm_by_times:
        rows /= ctx.array(lengths[sequence].astype(rows.dtype))[:, None]
    return rows
