"""The best path through tags (Viterbi), and viterbi_decode, Paddle 2.x's operator for it."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.rnn.packing import Packing, pack_runs
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


def best_path(xp: Any, packing: Packing, scores: Any, start: Any, between: Any, stop: Any) -> tuple[Any, Any]:
    """The best score of every sequence that is not empty (ordered), and its tags (packed, int64).

    scores [rows, tags] are packed; start and stop [tags] weigh the first and last tag, between [tags, tags] what follows
    what. Of equal scores the lowest tag wins.
    """
    best = scores[: packing.first] + start
    came_from = xp.zeros(scores.shape, dtype=xp.int64)
    for begin, end, before in packing.steps():
        if before < 0:
            continue
        alive = end - begin
        paths = best[:alive, :, None] + between
        came_from[begin:end] = paths.argmax(axis=1)
        best[:alive] = paths.max(axis=1) + scores[begin:end]
    best = best + stop
    current = best.argmax(axis=1)
    path = xp.empty(len(scores), dtype=xp.int64)
    for begin, end, _ in packing.backward_steps():
        alive = end - begin
        path[begin:end] = current[:alive]
        current[:alive] = came_from[xp.arange(begin, end), current[:alive]]
    return best.max(axis=1), path


def _check(ctx: OpContext | InferContext, Input: Any, Transition: Any) -> int:
    shape, transition = tuple(Input.shape), tuple(Transition.shape)
    tags = transition[-1] if transition else 0
    fits = len(shape) == 3 and transition == (tags, tags) and shape[2] in (tags, -1) and tags > 0
    if not fits:
        raise ctx.error(
            f"input Input (N, longest, tags) must fit Transition (tags, tags), found {shape_text(shape)} and {transition}"
        )
    return int(tags)


@op(
    "viterbi_decode",
    inputs="Input Transition Length",
    outputs="Scores Path",
    attrs={"include_bos_eos_tag": True},
)
def viterbi_decode(
    ctx: OpContext, Input: Any, Transition: Any, Length: Any, *, include_bos_eos_tag: bool
) -> dict[str, Any]:
    """Scores [N] and Path [N, greatest Length] (int64, 0 beyond a sequence) of Input [N, longest, tags], Length [N].

    With include_bos_eos_tag the last tag is the start and the last but one the stop: their rows of Transition weigh the
    first and the last tag of a sequence (Paddle 2.6.2 viterbi_decode_kernel.cc).
    """
    xp, np = ctx.xp, ctx.np
    tags = _check(ctx, Input, Transition)
    lengths = np.asarray(ctx.host(Length)).reshape(-1).astype(np.int64)
    sequences, longest = Input.shape[:2]
    fits = len(lengths) == sequences and bool(((lengths >= 0) & (lengths <= longest)).all())
    if not fits:
        raise ctx.error(f"input Length must be {sequences} numbers from 0 to {longest}, found {lengths.tolist()[:12]}")
    packing = pack_runs(ctx, np.arange(sequences) * longest, lengths)
    nothing = xp.zeros(tags, dtype=Transition.dtype)
    start, stop = (Transition[-1], Transition[-2]) if include_bos_eos_tag else (nothing, nothing)
    best, path = best_path(xp, packing, packing.pack(Input.reshape(-1, tags)), start, Transition, stop)
    scores = xp.zeros(sequences, dtype=Input.dtype)
    scores[: packing.first] = best
    found = packing.unpack(xp, path, sequences * longest).reshape(sequences, longest)
    return {"Scores": packing.unordered(xp, scores), "Path": found[:, : int(lengths.max(initial=0))]}


@viterbi_decode.infer
def _(ctx: InferContext, Input: TensorMeta, Transition: TensorMeta, Length: TensorMeta) -> dict[str, TensorMeta]:
    _check(ctx, Input, Transition)
    return {"Path": TensorMeta((Input.shape[0], -1), VarType.INT64)}  # Paddle declares Scores as int64
