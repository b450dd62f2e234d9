"""beam_search: one step of beam search, the best continuations of every source sentence."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.registry import op
from fluidtool.ops.schema import INT, TensorMeta, required
from fluidtool.proto.enums import VarType


class Candidate(NamedTuple):
    """A continuation: the prefix (row) it extends, its token, its score."""

    prefix: int
    token: int
    score: float


@op(
    "beam_search",
    inputs="pre_ids pre_scores ids? scores",
    outputs="selected_ids selected_scores parent_idx?",
    attrs={"level": required(INT), "beam_size": required(INT), "end_id": required(INT), "is_accumulated": True},
)
def beam_search(
    ctx: OpContext,
    pre_ids: Any,
    pre_scores: Any,
    ids: Any,
    scores: Any,
    *,
    level: int,
    beam_size: int,
    end_id: int,
    is_accumulated: bool,
) -> dict[str, Any]:
    """The `beam_size` best candidates of every source (a sequence of `scores` at LoD level `level`).

    scores [prefixes, K], ids [prefixes, K] (0 … K-1 if absent); pre_ids, pre_scores [prefixes, 1], of larger ones the
    first elements. An ended prefix keeps its score and offers only `end_id`; a source whose candidates have all ended
    is dropped. selected_* [n, 1], with LoD: prefixes of every source, selections of every prefix (Paddle 1.8.5
    math/beam_search.cc).
    """
    np = ctx.np
    sources = _source_offsets(ctx, level, scores.shape[0])
    if beam_size <= 0:
        raise ctx.error(f"beam_size must be positive, found {beam_size}")
    table = ctx.host(scores).reshape(scores.shape[0], prod(scores.shape[1:])).astype(np.float32)
    previous, before = (ctx.host(values).reshape(-1)[: len(table)] for values in (pre_ids, pre_scores))
    for name, size, expected in (
        ("pre_ids", previous.size, len(table)),
        ("pre_scores", before.size, len(table)),
        ("ids", table.size if ids is None else ids.size, table.size),
    ):
        if size != expected:
            raise ctx.error(f"{name} must have {expected} values, as scores has shape {scores.shape}, found {size}")
    tokens = (
        np.broadcast_to(np.arange(table.shape[1]), table.shape) if ids is None else ctx.host(ids).reshape(table.shape)
    )
    if not is_accumulated:
        table = before[:, None].astype(np.float32) + np.log(table)
    selected: list[list[Candidate]] = [[] for _ in range(len(table))]
    for start, end in pairwise(sources):
        chosen = _best(ctx, table, tokens, previous, before, range(start, end), beam_size, end_id)
        if all(c.token == end_id and previous[c.prefix] == end_id for c in chosen):
            continue
        for candidate in chosen:
            selected[candidate.prefix].append(candidate)
    flat = [candidate for items in selected for candidate in items]
    counts = np.cumsum([0, *(len(items) for items in selected)])
    for slot in ("selected_ids", "selected_scores"):
        ctx.set_lod(slot, [sources, counts.tolist()])
    return {
        "selected_ids": ctx.array(np.array([c.token for c in flat], dtype=np.int64).reshape(-1, 1)),
        "selected_scores": ctx.array(np.array([c.score for c in flat], dtype=np.float32).reshape(-1, 1)),
        "parent_idx": ctx.array(np.array([c.prefix for c in flat], dtype=np.int32)),
    }


@beam_search.infer
def _(
    ctx: InferContext, pre_ids: TensorMeta, pre_scores: TensorMeta, ids: TensorMeta | None, scores: TensorMeta
) -> dict[str, TensorMeta]:
    return {
        "selected_ids": TensorMeta((-1, 1), VarType.INT64),
        "selected_scores": TensorMeta((-1, 1), VarType.FP32),
        "parent_idx": TensorMeta((-1,), VarType.INT32),
    }


def _source_offsets(ctx: OpContext, level: int, rows: int) -> list[int]:
    """The first rows of the sources: level `level` of the LoD of scores, in rows."""
    lod = ctx.lod("scores")
    if not 0 <= level < len(lod):
        raise ctx.error(f"level {level} is out of range: scores has {len(lod)} LoD levels")
    offsets = lod[level]
    for below in lod[level + 1 :]:
        offsets = [below[offset] for offset in offsets]
    if offsets[-1] != rows:
        raise ctx.error(f"the LoD of scores covers {offsets[-1]} rows, but it has {rows}")
    return offsets


def _best(
    ctx: OpContext,
    table: Any,
    tokens: Any,
    previous: Any,
    before: Any,
    prefixes: range,
    beam_size: int,
    end_id: int,
) -> list[Candidate]:
    """The best candidates of one source, best first; of equal scores the later prefix wins."""
    np, candidates = ctx.np, []
    scores = [before[p : p + 1] if previous[p] == end_id else table[p] for p in prefixes]
    everything = np.concatenate(scores) if scores else table[:0, 0]
    least = np.partition(everything, -beam_size)[-beam_size] if everything.size > beam_size else -np.inf
    for prefix, row in zip(prefixes, scores, strict=True):
        ended = previous[prefix] == end_id
        for column in np.flatnonzero(~(row < least)):
            token = end_id if ended else int(tokens[prefix, column])
            candidates.append(Candidate(prefix, token, float(row[column])))
    top: list[Candidate] = []
    for candidate in candidates:
        _insert(top, candidate, beam_size)
    return top


def _insert(top: list[Candidate], candidate: Candidate, beam_size: int) -> None:
    """Insert a candidate; a full beam drops its last one, also if both are equal."""
    if len(top) == beam_size:
        if _order(candidate) < _order(top[-1]):
            return
        top.pop()
    place = len(top)
    while place and _order(top[place - 1]) < _order(candidate):
        place -= 1
    top.insert(place, candidate)


def _order(candidate: Candidate) -> tuple[float, int]:
    return candidate.score, candidate.prefix
