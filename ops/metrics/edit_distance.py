"""edit_distance: insertions, deletions and substitutions between pairs of token sequences."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType


@op(
    "edit_distance",
    inputs="Hyps Refs HypsLength? RefsLength?",
    outputs="SequenceNum Out",
    attrs={"normalized": False},
)
def edit_distance(ctx: OpContext, Hyps: Any, Refs: Any, HypsLength: Any, RefsLength: Any, *, normalized: bool) -> Any:
    """Out [sequences, 1] float32: the Levenshtein distance of each pair, divided by the reference's length if normalized.

    Hyps, Refs: columns of integers with a LoD, or [sequences, length] with HypsLength and RefsLength. SequenceNum is
    int64 [1] (Paddle 1.8.5 edit_distance_op.h). Counts tokens on the host.
    """
    np = ctx.np
    hyps, hyp_lengths = _padded(ctx, "Hyps", Hyps, HypsLength)
    refs, ref_lengths = _padded(ctx, "Refs", Refs, RefsLength)
    if len(hyp_lengths) != len(ref_lengths):
        raise ctx.error(
            f"inputs Hyps and Refs must have equally many sequences, found {len(hyp_lengths)} and {len(ref_lengths)}"
        )
    distances = _distances(np, hyps, hyp_lengths, refs, ref_lengths).astype(np.float32)
    if normalized:
        if (ref_lengths == 0).any():
            raise ctx.error(
                f"reference {int(np.flatnonzero(ref_lengths == 0)[0])} is empty, so its distance cannot be "
                "normalized; leave it out or set normalized to False"
            )
        distances = distances / ref_lengths.astype(np.float32)
    return {
        "SequenceNum": ctx.array(np.array([len(ref_lengths)], np.int64)),
        "Out": ctx.array(distances.reshape(-1, 1)),
    }


def _padded(ctx: OpContext, slot: str, tokens: Any, lengths: Any) -> tuple[Any, Any]:
    """The sequences as rows of equal length, and their lengths, on the host."""
    np, host = ctx.np, ctx.host(tokens)
    if lengths is not None:
        counts = ctx.host(lengths).reshape(-1)
        if not (
            host.ndim == 2 and len(counts) == len(host) and bool(((counts >= 0) & (counts <= host.shape[1])).all())
        ):
            raise ctx.error(
                f"input {slot} (sequences, length) and its lengths do not fit: shapes {host.shape} and {counts.shape}, "
                f"lengths {counts[:12].tolist()}"
            )
        return host, counts
    offsets = np.asarray(ctx.sequences(slot))
    counts = np.diff(offsets)
    longest = int(counts.max(initial=0))
    places = np.minimum(offsets[:-1, None] + np.arange(longest), max(len(host) - 1, 0))
    flat = host.reshape(-1)
    return (flat[places] if len(flat) else np.zeros((len(counts), 0), host.dtype)), counts


def _distances(np: Any, hyps: Any, hyp_lengths: Any, refs: Any, ref_lengths: Any) -> Any:
    """All pairs at once: one row of each distance table per hypothesis token."""
    columns = np.arange(refs.shape[1] + 1)
    row = np.tile(columns, (len(refs), 1))
    final = np.where(hyp_lengths[:, None] == 0, row, 0)
    for i in range(hyps.shape[1]):
        substituted = row[:, :-1] + (refs != hyps[:, i : i + 1])
        best = np.concatenate([np.full((len(refs), 1), i + 1), np.minimum(row[:, 1:] + 1, substituted)], axis=1)
        row = np.minimum.accumulate(best - columns, axis=1) + columns  # insertions, from left to right
        final = np.where(hyp_lengths[:, None] == i + 1, row, final)
    return np.take_along_axis(final, ref_lengths.astype(np.int64)[:, None], 1)[:, 0]


@edit_distance.infer
def _(
    ctx: InferContext,
    Hyps: TensorMeta,
    Refs: TensorMeta,
    HypsLength: TensorMeta | None,
    RefsLength: TensorMeta | None,
) -> dict[str, TensorMeta]:
    return {
        "SequenceNum": TensorMeta((1,), VarType.INT64),
        "Out": TensorMeta(Refs.shape, ctx.declared_dtype("Out", VarType.FP32)),
    }
