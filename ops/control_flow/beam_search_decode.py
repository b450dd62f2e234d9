"""beam_search_decode and gather_tree: whole sentences from the steps of beam search."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.control_flow.arrays import array_of
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.ops.sequence.picking import offsets_of
from fluidtool.ops.tensor.arguments import may_be_same
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensorArray


@op(
    "beam_search_decode",
    inputs="Ids Scores",
    outputs="SentenceIds SentenceScores",
    attrs={"beam_size": required(INT), "end_id": required(INT)},
)
def beam_search_decode(
    ctx: OpContext, Ids: LoDTensorArray, Scores: LoDTensorArray, *, beam_size: int, end_id: int
) -> dict[str, Any]:
    """Follow every hypothesis back through the steps; sentences of a source come best first.

    Ids and Scores: arrays of beam_search's selections. SentenceIds int64 and SentenceScores, flat, with the LoD
    sentences of every source, tokens of every sentence (Paddle 1.8.5 beam_search_decode_op.h).
    """
    np = ctx.np
    ids, scores = array_of(ctx, "Ids"), array_of(ctx, "Scores")
    if len(ids) <= 0:
        raise ctx.error("the array Ids has no steps")
    if len(ids) != len(scores):
        raise ctx.error(f"Ids and Scores must have the same number of steps, found {len(ids)} and {len(scores)}")
    for number, step in enumerate(ids):
        if len(step.offsets) != 2 or step.array is None or scores[number].array is None:
            raise ctx.error(
                f"step {number} must be a selection of beam_search with two LoD levels, found {len(step.offsets)} levels"
            )
    tokens = [ctx.host(step.array).reshape(-1) for step in ids]
    values = [ctx.host(step.array).reshape(-1) for step in scores]
    lods = [step.offsets for step in ids]
    sources = len(lods[0][0]) - 1
    if sources <= 0:
        raise ctx.error("step 0 of Ids has no source sentences")
    counts, lengths, out_tokens, out_values = [], [], [], []
    for source in range(sources):
        found = _hypotheses(lods, tokens, values, source, end_id)
        if len(found) > beam_size:
            raise ctx.error(f"source {source} has {len(found)} hypotheses, more than beam_size {beam_size}")
        # A beam that was never full leaves sentences without tokens.
        found = sorted(found, key=lambda sentence: -sentence[1][0]) + [([], [])] * (beam_size - len(found))
        counts.append(len(found))
        for sentence_tokens, sentence_values in found:
            lengths.append(len(sentence_tokens))
            out_tokens += sentence_tokens[::-1]
            out_values += sentence_values[::-1]
    for slot in ("SentenceIds", "SentenceScores"):
        ctx.set_lod(slot, [offsets_of(counts), offsets_of(lengths)])
    return {
        "SentenceIds": ctx.array(np.array(out_tokens, dtype=np.int64)),
        "SentenceScores": ctx.array(np.array(out_values, dtype=values[0].dtype)),
    }


def _hypotheses(
    lods: list[Any], tokens: list[Any], values: list[Any], source: int, end_id: int
) -> list[tuple[list[int], list[Any]]]:
    """Tokens and scores of every hypothesis of a source, last one first."""
    found: list[tuple[list[int], list[Any]]] = []
    prefixes: list[int] = []
    for (source_level, sentence_level), step_tokens, step_values in zip(
        reversed(lods), reversed(tokens), reversed(values), strict=True
    ):
        first, last = source_level[source], source_level[source + 1]
        if not prefixes:
            for prefix in range(first, last):
                for candidate in range(sentence_level[prefix], sentence_level[prefix + 1]):
                    found.append(([int(step_tokens[candidate])], [step_values[candidate]]))
                    prefixes.append(prefix)
            continue
        owners = [p for p in range(first, last) for _ in range(sentence_level[p], sentence_level[p + 1])]
        for (sentence_tokens, sentence_values), place, candidate in zip(
            found, range(len(found)), prefixes, strict=True
        ):
            token = int(step_tokens[candidate])
            if token != end_id or not sentence_tokens:
                sentence_tokens.append(token)
                sentence_values.append(step_values[candidate])
            prefixes[place] = owners[candidate - sentence_level[first]]
    return found


@op("gather_tree", inputs="Ids Parents", outputs="Out")
def gather_tree(ctx: OpContext, Ids: Any, Parents: Any) -> Any:
    """Whole sequences from beam search steps: Ids and Parents [steps, batch, beam] -> [steps, batch, beam].

    The last step of Out is Ids; before it every beam takes the token of its parent chain (Paddle 1.8.5
    gather_tree_op.h).
    """
    xp = ctx.xp
    if Ids.ndim != 3 or Ids.shape != Parents.shape:
        raise ctx.error(
            f"Ids and Parents must have the same shape (steps, batch, beam), found {Ids.shape} and {Parents.shape}"
        )
    if Ids.size == 0:
        return Ids
    low, high = int(Parents.min()), int(Parents.max())
    if not (low >= 0 and high < Ids.shape[2]):
        raise ctx.error(f"Parents must lie in [0, {Ids.shape[2]}), found values from {low} to {high}")
    steps, parents = [Ids[-1]], Parents[-1]
    for step in range(Ids.shape[0] - 2, -1, -1):
        steps.append(xp.take_along_axis(Ids[step], parents, axis=1))
        parents = xp.take_along_axis(Parents[step], parents, axis=1)
    return xp.stack(steps[::-1])


@gather_tree.infer
def _(ctx: InferContext, Ids: TensorMeta, Parents: TensorMeta) -> TensorMeta:
    if not may_be_same(Ids.shape, Parents.shape):
        raise ctx.error(
            f"Ids and Parents must have the same shape (steps, batch, beam), found {shape_text(Ids.shape)} "
            f"and {shape_text(Parents.shape)}"
        )
    return Ids
