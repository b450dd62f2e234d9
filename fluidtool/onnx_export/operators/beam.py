"""Beam search over one source sentence in a run, and the sentences that it finds."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export.graph import INT64, Graph, Value
from fluidtool.onnx_export.items import Items
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.control import constructed, levels_of, sequence_of
from fluidtool.onnx_export.ragged import owners
from fluidtool.onnx_export.registry import need, renders


@renders("beam_search")
def beam_search(g: Graph, op: Operation) -> dict[str, Value]:
    """The best continuations of one source: a prefix that has ended offers its end alone.

    Of equal scores that of the later prefix comes first; within a prefix, that of the earlier column.
    """
    op.exporter.require_single()
    need(op.attr("level") == 0, "a level other than that of the sources")
    end, dtype = op.attr("end_id"), np.float32
    table = op["scores"].cast(dtype)
    rows, columns = table.dim_value(0), table.dim_value(1)
    before = op["pre_scores"].cast(dtype).reshape([-1, 1])
    ended = op["pre_ids"].cast(INT64).reshape([-1, 1]).equals(end)
    if not op.attr("is_accumulated"):
        table = before + table.apply("Log")
    places = g.range(0, columns.scalar()).unsqueeze(0)
    given = op.get("ids")
    tokens = places.expand(table.dims()) if given is None else given.cast(INT64).reshape(table.dims())
    offered = ~ended | places.equals(0)
    # The last prefix comes first, so that of equal scores TopK takes that of the later one.
    prefixes = (rows - 1 - g.range(0, rows.scalar())).unsqueeze(1).expand(table.dims())
    found = [
        _kept(g, _turned(value).flat(), _turned(offered.shaped((-1, -1))).flat())
        for value in (g.where(ended, before, table), g.where(ended, g.constant(end, INT64), tokens))
    ]
    owner = _kept(g, prefixes.flat(), _turned(offered.shaped((-1, -1))).flat())
    many = g.minimum(found[0].dim_value(0), op.attr("beam_size"))
    _, best = g.node("TopK", [found[0], many], [dtype, np.int64], axis=0)
    best = best.shaped((-1,))
    finished = owner.gather(best, 0)
    over = found[1].gather(best, 0).equals(end) & ended.flat().gather(finished, 0)
    goes_on = (~over).cast(np.int32).reduce("Max", [0], keepdims=True).cast(INT64)
    best = best.part(0, 0, many * goes_on)
    owner = owner.gather(best, 0)
    # Stable: the selections of a prefix stay in the order of their scores.
    _, order = g.node("TopK", [owner, owner.dim_value(0)], [np.int64, np.int64], axis=0, largest=0, sorted=1)
    order = order.shaped((-1,))
    owner, best = owner.gather(order, 0), best.gather(order, 0)
    counts = owner.unsqueeze(0).equals(g.range(0, rows.scalar()).unsqueeze(1)).cast(INT64).sum(1)
    for slot in ("selected_ids", "selected_scores"):
        op.tell(slot, [rows, counts])
    scores, ids = (value.gather(best, 0).unsqueeze(1) for value in found)
    return {"selected_ids": ids, "selected_scores": scores, "parent_idx": owner.cast(np.int32)}


def _turned(x: Value) -> Value:
    """The rows from the last one on."""
    return x.slice([-1], [-(2**63)], [0], [-1]).shaped(x.shape)


def _kept(g: Graph, x: Value, where: Value) -> Value:
    return g.op("Compress", x, where, axis=0, shape=(-1,))


@renders("beam_search_decode")
def beam_search_decode(g: Graph, op: Operation) -> dict[str, Value]:
    """A Loop from the last step to the first: which selection each sentence comes from, with its token and score."""
    op.exporter.require_single()
    end, beam = op.attr("end_id"), op.attr("beam_size")
    ids, scores, counts = _steps(g, op)
    number = g.op("SequenceLength", ids, dtype=np.int64, shape=())
    body = g.inner()
    turn = body.input(body.name(f"{g.prefix}.number"), np.int64, ())
    body.input(body.name(f"{g.prefix}.goes_on"), np.bool_, ())
    before = body.input(body.name(f"{g.prefix}.sentences"), np.int64, (-1,))
    given = [body.input(body.name(f"{g.prefix}.{what}"), dtype, None) for what, dtype in HELD.items()]
    body.inputs[-len(HELD) :] = held = [value.as_sequence() for value in given]
    at = number.within(body) - 1 - turn
    tokens = body.op("SequenceAt", ids.within(body), at, dtype=np.int64).flat().shaped((-1,))
    values = body.op("SequenceAt", scores.within(body), at, dtype=np.float32).flat().shaped((-1,))
    step = body.op("SequenceAt", counts.within(body), at, dtype=np.int64, shape=(-1,))
    # Until a step has selections there are no sentences; each selection of that step is the end of one.
    first = before.dim_value(0).equals(0)
    fresh = body.range(0, body.where(first, tokens.dim_value(0), 0).scalar())
    current = body.concat([before, fresh], 0)
    token = tokens.gather(current, 0)
    told = (~token.equals(end)) | first
    added = (token, values.gather(current, 0), told.cast(np.int64))
    grown = [
        body.op("SequenceInsert", sequence, value, dtype=value.dtype).as_sequence()
        for sequence, value in zip(held, added, strict=True)
    ]
    body.outputs = [body.constant(True), owners(body, step).gather(current, 0), *grown]
    body.outputs[0] = body.same("Identity", body.outputs[0])
    empty = [constructed(g, (), dtype) for dtype in HELD.values()]
    last, *found = g.node("Loop", [number, None, g.constant([], INT64), *empty], [np.int64, *HELD.values()], body=body)
    return _sentences(g, op, last.shaped((-1,)), found, beam)


HELD = {"tokens": np.int64, "scores": np.float32, "told": np.int64}


def _steps(g: Graph, op: Operation) -> tuple[Value, Value, Value]:
    """The tokens, the scores, and how many selections each prefix has, step by step."""
    ids, scores = (op.exporter.find(g, op.names(slot)[0]) for slot in ("Ids", "Scores"))
    need(isinstance(ids, Items) and isinstance(scores, Items), "it does not decode an array of selections")
    assert isinstance(ids, Items) and isinstance(scores, Items)
    levels = levels_of(g, ids)
    need(len(levels) == 2, "it does not decode selections of beam_search with two levels of sequences")
    return sequence_of(g, ids, INT64), sequence_of(g, scores, np.float32), levels[-1]


def _sentences(g: Graph, op: Operation, last: Value, found: list[Value], beam: int) -> dict[str, Value]:
    """Sentences best first; a beam that was never full has some without tokens."""
    many = last.dim_value(0)
    # [steps, sentences], from the last step on; the steps before any selection gave nothing.
    tokens, scores, told = (
        g.op("ConcatFromSequence", value.as_sequence(), axis=0, dtype=value.dtype, shape=(-1,)) for value in found
    )
    size = g.concat([g.binary("Div", tokens.dim_value(0), g.maximum(many, 1)), many], 0)
    tokens, scores, told = (value.reshape(size).shaped((-1, -1)) for value in (tokens, scores, told))
    ends = scores.part(0, 0, 1).flat()
    _, order = g.node("TopK", [ends, ends.dim_value(0)], [np.float32, np.int64], axis=0)
    order = order.shaped((-1,))
    parts = [_turned(value).gather(order, 1).swap() for value in (tokens, scores, told)]
    kept = parts[2].flat().cast(np.bool_)
    lengths = parts[2].sum(1).pad([0], [g.constant([beam], INT64) - many])
    for slot in ("SentenceIds", "SentenceScores"):
        op.tell(slot, [g.constant([beam], INT64), lengths])
    ids, values = (_kept(g, value.flat(), kept) for value in parts[:2])
    return {"SentenceIds": ids, "SentenceScores": values}
