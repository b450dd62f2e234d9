"""chunk_eval: precision and recall of chunks, which are runs of tags such as B-PER I-PER."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, ints, required
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text


@dataclass(frozen=True, slots=True)
class Scheme:
    """How many tags a chunk type has, and which of them begins, continues, ends a chunk or is one alone (-1: none)."""

    tags: int
    begin: int
    inside: int
    end: int
    single: int


SCHEMES = {
    "IOB": Scheme(2, 0, 1, -1, -1),
    "IOE": Scheme(2, -1, 0, 1, -1),
    "IOBES": Scheme(4, 0, 1, 2, 3),
    "plain": Scheme(1, -1, -1, -1, -1),
}


@op(
    "chunk_eval",
    inputs="Inference Label SeqLength?",
    outputs="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
    attrs={"num_chunk_types": required(INT), "chunk_scheme": "IOB", "excluded_chunk_types": ints()},
)
def chunk_eval(
    ctx: OpContext,
    Inference: Any,
    Label: Any,
    SeqLength: Any,
    *,
    num_chunk_types: int,
    chunk_scheme: str,
    excluded_chunk_types: list[int],
) -> Any:
    """Counts of predicted, labeled and correct chunks (int64 [1]) and what follows of them (float32 [1]).

    Inference and Label hold chunk type * tags + tag, or num_chunk_types * tags outside of chunks: with one LoD level, or
    [sequences, length] with SeqLength (Paddle 1.8.5 chunk_eval_op.h). Counts on the host.
    """
    np = ctx.np
    if chunk_scheme not in SCHEMES:
        raise ctx.error(f"chunk_scheme must be one of {', '.join(SCHEMES)}, found {chunk_scheme!r}")
    scheme = SCHEMES[chunk_scheme]
    (inferred, labels), last = _tokens(ctx, Inference, Label, SeqLength)
    found = [
        _chunks(ctx, tokens, last, scheme, num_chunk_types, slot)
        for tokens, slot in ((inferred, "Inference"), (labels, "Label"))
    ]
    counted = [(types < num_chunk_types) & ~np.isin(types, excluded_chunk_types) & (ends >= 0) for ends, types in found]
    same = (found[0][0] == found[1][0]) & (found[0][1] == found[1][1])
    return _scores(ctx, int(counted[0].sum()), int(counted[1].sum()), int((counted[0] & counted[1] & same).sum()))


def _tokens(ctx: OpContext, Inference: Any, Label: Any, SeqLength: Any) -> tuple[tuple[Any, Any], Any]:
    """The tokens of all sequences in one row each, and which of them is the last of its sequence."""
    np = ctx.np
    inferred, labels, lod = ctx.host(Inference), ctx.host(Label), ctx.lod("Label")
    if inferred.size != labels.size:
        raise ctx.error(
            f"inputs Inference and Label must have equally many tokens, found shapes {inferred.shape} and {labels.shape}"
        )
    if lod:
        if len(lod) != 1 or lod != ctx.lod("Inference"):
            raise ctx.error(
                f"inputs Inference and Label must have the same LoD of one level, found {ctx.lod('Inference')} and {lod}"
            )
        lengths, rows = np.diff(lod[0]), (inferred.reshape(-1), labels.reshape(-1))
    else:
        if SeqLength is None:
            raise ctx.error("inputs have no LoD, so SeqLength must contain the length of each sequence")
        lengths = ctx.host(SeqLength).reshape(-1)
        inferred, labels = (tokens.reshape(len(lengths), -1) for tokens in (inferred, labels))
        if not bool(((lengths >= 0) & (lengths <= inferred.shape[1])).all()):
            raise ctx.error(
                f"input SeqLength must lie between 0 and {inferred.shape[1]}, found {lengths[:12].tolist()}"
            )
        within = np.arange(inferred.shape[1]) < lengths[:, None]
        rows = inferred[within], labels[within]
    last = np.zeros(len(rows[0]), bool)
    last[np.cumsum(lengths)[lengths > 0] - 1] = True
    return rows, last


def _chunks(ctx: OpContext, tokens: Any, last: Any, scheme: Scheme, other: int, slot: str) -> tuple[Any, Any]:
    """For each token its chunk's last position if it begins one, else -1; and its chunk type (`other`: none)."""
    np = ctx.np
    wrong = (tokens < 0) | (tokens > other * scheme.tags)
    if wrong.any():
        raise ctx.error(
            f"input {slot} holds {int(tokens[wrong][0])}, expected 0 to {other * scheme.tags} "
            f"({other} chunk types of {scheme.tags} tags, and one for outside)"
        )
    tags, types = tokens % scheme.tags, tokens // scheme.tags
    first = np.concatenate([[True], last[:-1]])[: len(tokens)]
    previous_tags, previous_types = np.roll(tags, 1), np.where(first, other, np.roll(types, 1))
    starts = (tags == scheme.begin) | (tags == scheme.single)
    starts |= (previous_tags == scheme.end) | (previous_tags == scheme.single)
    begins = (types != other) & ((previous_types != types) | starts)
    ends = (types != other) & (last | np.roll(begins | (types == other), -1))
    chunk_end = np.full(len(tokens), -1)
    chunk_end[begins] = np.flatnonzero(ends)
    return chunk_end, types


def _scores(ctx: OpContext, inferred: int, labeled: int, correct: int) -> dict[str, Any]:
    np = ctx.np
    precision = np.float32(correct) / np.float32(inferred) if inferred else np.float32(0)
    recall = np.float32(correct) / np.float32(labeled) if labeled else np.float32(0)
    f1 = 2 * precision * recall / (precision + recall) if correct else np.float32(0)
    counts = {"NumInferChunks": inferred, "NumLabelChunks": labeled, "NumCorrectChunks": correct}
    scores = {"Precision": precision, "Recall": recall, "F1-Score": f1}
    return {slot: ctx.array(np.array([score], np.float32)) for slot, score in scores.items()} | {
        slot: ctx.array(np.array([count], np.int64)) for slot, count in counts.items()
    }


@chunk_eval.infer
def _(
    ctx: InferContext, Inference: TensorMeta, Label: TensorMeta, SeqLength: TensorMeta | None
) -> dict[str, TensorMeta]:
    if not may_be_same(Inference.shape, Label.shape):
        raise ctx.error(
            f"Inference and Label must have one shape, found {shape_text(Inference.shape)} and {shape_text(Label.shape)}"
        )
    score, count = TensorMeta((1,), VarType.FP32), TensorMeta((1,), VarType.INT64)
    counts = dict.fromkeys(("NumInferChunks", "NumLabelChunks", "NumCorrectChunks"), count)
    return dict.fromkeys(("Precision", "Recall", "F1-Score"), score) | counts
