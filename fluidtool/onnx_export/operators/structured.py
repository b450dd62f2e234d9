"""Labels along a sequence: the best path of a CRF, CTC alignments, edit distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import BOOL, Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import need, renders

NEVER = -1e30


@renders("crf_decoding")
def crf_decoding(g: Graph, op: Operation) -> Value:
    """Viterbi: a Scan forward keeps the best way into every label, one backward reads the path.

    One label more stands for the start, so that every row is like every other. Behind the end of a padded sequence every
    label leads to itself.
    """
    emission, transition, length = op["Emission"], op["Transition"], op.get("Length")
    lengths = op.lengths("Emission") if length is None else None
    if lengths is not None:
        rows, within = ragged.padded(g, emission, lengths)
        return _judged(op, ragged.packed(g, _viterbi(g, rows, transition, within), within).unsqueeze(1))
    inside = None if length is None else _inside(g, length, emission.dim_value(1))
    found = _judged(op, _viterbi(g, emission, transition, inside))
    return found if inside is None else g.where(inside, found, 0)


def _judged(op: Operation, path: Value) -> Value:
    """The path, or where it is the one of `Label`."""
    wanted = op.get("Label")
    return path if wanted is None else path.equals(wanted.cast(np.int64).reshape(path.dims())).cast(np.int64)


def _viterbi(g: Graph, emission: Value, transition: Value, inside: Value | None) -> Value:
    """[T, 1] of one sequence, [N, T] of padded ones."""
    rows = emission.unsqueeze(1) if inside is None else emission.transpose(1, 0, 2)
    inside = None if inside is None else inside.swap()
    count, dtype = emission.size(emission.rank - 1), emission.dtype
    start, end, steps = transition.part(0, 0, 1), transition.part(0, 1, 2), transition.part(0, 2)
    ways = g.concat([steps, start], 0).pad([0, 0], [0, 1], "constant", NEVER)
    rows = rows.pad([0, 0, 0], [0, 0, 1], "constant", NEVER)
    first = g.constant([[NEVER] * count + [0.0]], dtype).expand(g.vector([rows.dim(1), 1]))

    body = g.inner()
    before = body.input(body.name(f"{g.prefix}.score"), dtype, (-1, count + 1))
    row = body.input(body.name(f"{g.prefix}.row"), dtype, (-1, count + 1))
    through = before.unsqueeze(2) + ways.within(body)
    scores = through.reduce("Max", [1]) + row
    origin = body.op("ArgMax", through, axis=1, keepdims=0, dtype=np.int64, shape=(-1, count + 1))
    if inside is not None:
        here = body.input(body.name(f"{g.prefix}.inside"), BOOL, (-1,)).unsqueeze(1)
        scores = body.where(here, scores, before)
        origin = body.where(here, origin, body.constant(np.arange(count + 1)[None]))
    body.outputs = [scores, origin]
    given = [first, rows] if inside is None else [first, rows, inside]
    last, track = g.node("Scan", given, [dtype, np.int64], body=body, num_scan_inputs=len(given) - 1)

    finish = last.shaped((-1, count + 1)) + end.pad([0, 0], [0, 1], "constant", NEVER)
    label = g.op("ArgMax", finish, axis=1, keepdims=0, dtype=np.int64, shape=(-1,))
    back = g.inner()
    current = back.input(back.name(f"{g.prefix}.label"), np.int64, (-1,))
    origins = back.input(back.name(f"{g.prefix}.origin"), np.int64, (-1, count + 1))
    earlier = back.op("GatherElements", origins, current.unsqueeze(1), axis=1, shape=(-1, 1)).squeeze(1)
    back.outputs = [earlier, back.same("Identity", current)]
    _, path = g.node(
        "Scan", [label, track.shaped((-1, -1, count + 1))], [np.int64, np.int64], body=back, num_scan_inputs=1,
        scan_input_directions=[1], scan_output_directions=[1],
    )  # fmt: skip
    found = path.shaped((-1, -1))
    return found if inside is None else found.swap()


def _inside(g: Graph, length: Value, longest: Value) -> Value:
    """[N, longest]: which rows of padded sequences belong to them."""
    return g.range(0, longest.scalar()) < length.cast(np.int64).reshape([-1, 1])


@renders("ctc_align")
def ctc_align(g: Graph, op: Operation) -> Any:
    if op.get("InputLength") is not None:
        return _aligned_padded(g, op)
    tokens, lengths = op["Input"].flat(), op.lengths("Input")
    kept = _kept(g, op, tokens, None if lengths is None else ragged.places(g, lengths).equals(0))
    if lengths is not None:
        op.tell("Output", [ragged.padded(g, kept.cast(np.int64), lengths)[0].sum(1)])
    rows = g.op("Compress", tokens, kept, axis=0, shape=(-1,)).unsqueeze(1)
    empty = rows.dim_value(0).equals(0).scalar()
    nothing, something = g.inner(), g.inner()
    nothing.outputs = [nothing.same("Identity", nothing.constant([[-1]], tokens.dtype)).shaped((-1, 1))]
    something.outputs = [something.same("Identity", rows)]
    return g.op("If", empty, dtype=tokens.dtype, then_branch=nothing, else_branch=something, shape=(-1, 1))


def _kept(g: Graph, op: Operation, tokens: Value, first: Value | None = None) -> Value:
    """Along the last axis: tokens that are not blank, and of a run of equal ones the first; `first`: where sequences begin."""
    kept = ~tokens.equals(op.attr("blank"))
    if not op.attr("merge_repeated"):
        return kept
    last = tokens.rank - 1
    before = tokens.part(last, 0, -1).pad([*[0] * last, 1], [0] * tokens.rank, "constant", -1)
    repeated = tokens.equals(before)
    return kept & ~(repeated if first is None else repeated & ~first)


def _aligned_padded(g: Graph, op: Operation) -> dict[str, Value]:
    """Kept tokens go to the place that their number among the kept says, the others to one behind the end."""
    tokens = op["Input"].reshape(op["Input"].sizes()[:2])
    longest = tokens.dim_value(1)
    kept = _kept(g, op, tokens) & _inside(g, op["InputLength"], longest)
    count = g.same("CumSum", kept.cast(np.int64), g.constant(1, np.int64))
    places = g.where(kept, count - 1, longest)
    empty = g.full(g.vector([tokens.dim(0), longest + 1]), op.attr("padding_value"), tokens.dtype)
    filled = g.op("ScatterElements", empty, places, tokens, axis=1)
    lengths = kept.cast(np.int64).sum(1, keepdims=True)
    return {"Output": filled.part(1, 0, longest).shaped(tokens.shape), "OutputLength": lengths.cast(tokens.dtype)}


@renders("edit_distance")
def edit_distance(g: Graph, op: Operation) -> dict[str, Value]:
    """A Scan over the hypothesis: a row of the table follows from the one before by a running minimum."""
    need(op.get("HypsLength") is None, "padded sequences")
    hypothesis, reference = op.single()["Hyps"].cast(np.int64).flat(), op["Refs"].cast(np.int64).flat()
    places = g.range(0, reference.dim_value(0).scalar() + 1).cast(np.float32)
    body = g.inner()
    before = body.input(body.name(f"{g.prefix}.row"), np.float32, (-1,))
    token = body.input(body.name(f"{g.prefix}.token"), np.int64, ())
    ends = places.within(body)
    differs = (~token.equals(reference.within(body))).cast(np.float32)
    first = before.part(0, 0, 1) + 1
    rest = body.minimum(before.part(0, 1) + 1, before.part(0, 0, -1) + differs)
    least = body.concat([first, rest], 0) - ends
    reach = (
        body.where(ends.unsqueeze(0) <= ends.unsqueeze(1), least.unsqueeze(0), float(2**30)).reduce("Min", [1]) + ends
    )
    body.outputs = [reach.shaped((-1,))]
    # A Scan over nothing is no Scan to every runtime: the row before the first token is its state.
    (last,) = g.node("Scan", [places, hypothesis], [np.float32], body=body, num_scan_inputs=1)
    distance = last.shaped((-1,)).part(0, -1).reshape([1, 1])
    if op.attr("normalized"):
        distance = distance / reference.dim_value(0).cast(np.float32).reshape([1, 1])
    return {"Out": distance, "SequenceNum": g.constant([1], np.int64).counting()}


@renders("warpctc")
def warpctc(g: Graph, op: Operation) -> dict[str, Value]:
    """The negative logarithm of the probability of a label sequence: a Scan over the rows of log-probabilities."""
    need(op.get("LogitsLength") is None, "padded sequences")
    logits, label = op.single()["Logits"], op["Label"].cast(np.int64).flat()
    blank = op.attr("blank")
    chances = logits.apply("LogSoftmax", axis=-1)
    # Blanks around and between the labels: blank, l1, blank, l2, …, blank.
    pairs = g.concat([label.unsqueeze(1), g.full(g.vector([label.dim(0), 1]), blank, np.int64)], 1).flat()
    states = g.concat([g.constant([blank], np.int64), pairs], 0).shaped((-1,))
    two_before = g.concat([g.constant([-1, -1], np.int64), states.part(0, 0, -2)], 0)
    skips = ~states.equals(blank) & ~states.equals(two_before)
    count = states.dim_value(0)
    place = g.range(0, count.scalar())
    first = g.where(place.equals(0), 0.0, g.constant(np.float32(NEVER))).cast(logits.dtype)

    body = g.inner()
    before = body.input(body.name(f"{g.prefix}.score"), logits.dtype, (-1,))
    row = body.input(body.name(f"{g.prefix}.row"), logits.dtype, (logits.size(1),))
    never = body.constant([NEVER], logits.dtype)
    one_on = body.concat([never, before.part(0, 0, -1)], 0)
    two_on = body.concat([never, never, before.part(0, 0, -2)], 0).slice([0], [count.within(body)], [0])
    two_on = body.where(skips.within(body), two_on, NEVER)
    ways = body.stack([before, one_on.shaped((-1,)), two_on.shaped((-1,))], 0)
    body.outputs = [ways.reduce("LogSumExp", [0]) + row.gather(states.within(body), 0)]
    # Before the first row only the first state is possible, from which the second is one step: as the rule has it.
    (last,) = g.node("Scan", [first, chances], [logits.dtype], body=body, num_scan_inputs=1)
    ends = last.shaped((-1,)).part(0, -2)
    loss = -ends.reduce("LogSumExp", [0], keepdims=True)
    if op.attr("norm_by_times"):
        op.exporter.notes["warpctc: norm_by_times concerns gradients only"] = None
    return {"Loss": loss.reshape([1, 1])}
