"""Losses over all paths of sequences in training steps: linear_chain_crf, a block for each sequence, in logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.calls import Buffer, Place
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.sequences import of_sequences
from fluidtool.runtime.engines.cuda.sources import Source, threads_for
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.sequences import offsets_of
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]
MOST_TAGS = 2048  # whose scores a block keeps in its own memory, twice
MOST_PAIRS = 1 << 26  # of tags, of all sequences: each keeps its own sums for the gradient
LARGER, SUM = "ft_larger({a}, {b})", "({a} + {b})"
LOWEST = "-1.0f / 0.0f"


# ---------------------------------------------------------------- conditional random fields
def _crf_inputs(b: StepBuilder, op: Operator) -> tuple[Value, Value, Value, tuple[int, ...]]:
    """Emissions, transitions, labels, and where sequences begin."""
    need(not b.has(op, "Length"), "a conditional random field of padded sequences")
    x, transition = b.get(op, "Emission"), b.get(op, "Transition")
    need(len(x.shape) == 2 and transition.shape == (x.shape[1] + 2, x.shape[1]), "transitions that do not fit")
    need(x.shape[1] <= MOST_TAGS, f"more than {MOST_TAGS} tags")
    labels = b.ids(op, "Label", x.shape[1])
    need(
        prod(labels.shape) == x.shape[0] and len(b.lods.get(op.inputs["Label"][0], ())) == 1, "labels of another shape"
    )
    return x, transition, labels, offsets_of(b, op, "Label", x.shape[0])


def _scores(b: StepBuilder, given: tuple[Value, Value, Value, tuple[int, ...]]) -> Value:
    """The logarithms of forward scores, each row less the logarithm of its sum; made once for both directions."""
    *inputs, offsets = given
    key = ("crf", *inputs, offsets)
    if key not in b.stacks:
        b.stacks[key] = b.node("crf_scores", inputs, inputs[0].shape, offsets=offsets)
    found: Value = b.stacks[key]
    return found


@imports_step("linear_chain_crf")
def _crf(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    given = _crf_inputs(b, op)
    x, transition, _, offsets = given
    scores, rows = _scores(b, given), x.shape[0]
    b.put(op, "LogLikelihood", b.node("beside", [scores], (len(offsets) - 1, 1), name="cost"))
    if b.wants(op, "Alpha"):
        b.put(op, "Alpha", b.formula("expf(a)", scores))
    if b.wants(op, "EmissionExps"):
        most = b.node("reduce", [x], (rows, 1), sizes=(rows, x.shape[1], 1), how=2)
        b.put(op, "EmissionExps", b.formula("expf(a - b)", x, most))
    if b.wants(op, "TransitionExps"):
        b.put(op, "TransitionExps", b.formula("expf(a)", transition))


@imports_step("linear_chain_crf_grad")
def _crf_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    given = _crf_inputs(b, op)
    x, transition, labels, offsets = given
    grad, sequences = b.get(op, "LogLikelihood@GRAD"), len(offsets) - 1
    need(prod(grad.shape) == sequences, "a gradient that does not fit")
    need(sequences * prod(transition.shape) <= MOST_PAIRS, "more pairs of tags than there is memory for")
    inputs = [x, transition, labels, _scores(b, given), grad]
    found = b.node("crf_gradient", inputs, x.shape, offsets=offsets)
    if b.wants(op, "Emission@GRAD"):
        b.put(op, "Emission@GRAD", found)
    if b.wants(op, "Transition@GRAD"):
        parts = b.node("beside", [found], (sequences, *transition.shape), name="transitions")
        b.put(op, "Transition@GRAD", b.sums(parts, (1, 2)))


def _of_block(low: Lowering, offsets: tuple[int, ...], tags: int, threads: int) -> Source:
    """A kernel whose blocks have a sequence each: its first row, and how many it has."""
    src = Source(low)
    bounds = src.pointer(of_sequences(low, offsets))
    src.lines += [
        f"__shared__ float shared[{threads}], state[{tags}], ahead[{tags}];",
        "const int sequence = blockIdx.x, me = threadIdx.x;",
        f"const int begin = (int){bounds}[sequence], count = (int){bounds}[sequence + 1] - begin;",
    ]
    return src


def _inputs(low: Lowering, src: Source, *values: Value) -> list[str]:
    places = [low.contiguous(value) for value in values]
    return [src.pointer(place.buffer, place.offset) for place in places]


def log_of_sum(tags: int, term: str) -> list[str]:
    """Statements of a thread that make `found` the logarithm of the sum of exp(term), of all i."""
    return [
        f"float most = {LOWEST}, all = 0.0f;",
        f"for (int i = 0; i < {tags}; i++) most = ft_larger(most, {term});",
        f"for (int i = 0; i < {tags}; i++) all += expf({term} - most);",
        "found = most + logf(all);",
    ]


def level_of(src: Source, value: str, tags: int, threads: int) -> None:
    """Statements that make `level` the logarithm of the sum of the exponentials of a row, by all threads of a block."""
    src.reduced("peak", LOWEST, f"const float v = {value};", LARGER, tags, threads)
    src.reduced("total", "0.0f", f"const float v = expf({value} - peak);", SUM, tags, threads)
    src.lines.append("const float level = peak + logf(total);")


@lowers("crf_scores")
def _lower_scores(low: Lowering, node: Node) -> None:
    """Forward, row by row. Beside them: what the sequence costs, and the logarithms of the sums that rows were divided by."""
    offsets, (rows, tags) = node.attrs["offsets"], node.output.shape
    threads, out = threads_for(tags), low.new(node.output)
    cost, levels = Buffer(len(offsets) - 1), Buffer(rows)
    low.beside[node.output, "cost"] = Place(cost, (1, 1))
    low.beside[node.output, "levels"] = Place(levels, (1,))
    src = _of_block(low, offsets, tags, threads)
    x, t, labels = _inputs(low, src, *node.inputs)
    price, sums = src.writable(cost), src.writable(levels)
    src.lines += [
        f"if (count == 0) {{ if (me == 0) {price}[sequence] = 0.0f; return; }}",
        "float spent = 0.0f;",
        "int before = 0;",
        "for (int r = begin; r < begin + count; r++) {",
        f"const float* row = {x} + r * {tags};",
        f"float* own = out + r * {tags};",
        f"for (int j = me; j < {tags}; j += {threads}) {{",
        f"    float found = {t}[j];",
        "    if (r > begin) {",
        *log_of_sum(tags, f"(state[i] + {t}[(i + 2) * {tags} + j])"),
        "    }",
        "    own[j] = found + row[j];",
        "}",
        "__syncthreads();",
    ]
    level_of(src, "own[i]", tags, threads)
    src.lines += [
        f"for (int j = me; j < {tags}; j += {threads}) {{ own[j] -= level; state[j] = own[j]; }}",
        f"const int label = (int){labels}[r];",
        f"spent += level - row[label] - {t}[(r == begin ? 0 : (before + 2) * {tags}) + label];",
        "before = label;",
        f"if (me == 0) {sums}[r] = level;",
        "__syncthreads();",
        "}",
    ]
    level_of(src, f"(state[i] + {t}[{tags} + i])", tags, threads)
    src.lines.append(f"if (me == 0) {price}[sequence] = spent + level - {t}[{tags} + before];")
    low.calls.append(src.launch(out, len(offsets) - 1, threads, "crf"))


@lowers("crf_gradient")
def _lower_gradient(low: Lowering, node: Node) -> None:
    """Backward, row by row: expected tags less the given ones; beside them the same of pairs, for each sequence."""
    x_value, t_value, label_value, score_value, grad_value = node.inputs
    offsets, (_, tags) = node.attrs["offsets"], node.output.shape
    sequences, pairs = len(offsets) - 1, (tags + 2) * tags
    threads, out = threads_for(tags * tags), low.new(node.output)
    found = Buffer(sequences * pairs)
    low.beside[node.output, "transitions"] = Place(found, (pairs, tags, 1))
    src = _of_block(low, offsets, tags, threads)
    x, t, labels, scores, grad = _inputs(low, src, x_value, t_value, label_value, score_value, grad_value)
    sums = src.pointer(low.beside[score_value, "levels"].buffer)
    src.lines += [
        f"float* own = {src.writable(found)} + (whole)sequence * {pairs};",
        f"for (int i = me; i < {pairs}; i += {threads}) own[i] = 0.0f;",
        "__syncthreads();",
        f"const float weight = {grad}[sequence];",
        "for (int r = begin + count - 1; r >= begin; r--) {",
        "const bool last = r == begin + count - 1;",
        f"const float* row = {scores} + r * {tags};",
        f"for (int j = me; j < {tags}; j += {threads}) {{",
        f"    float found = {t}[{tags} + j];",
        "    if (!last) {",
        *log_of_sum(tags, f"({t}[(j + 2) * {tags} + i] + ahead[i])"),
        "    }",
        "    state[j] = found;",
        "}",
    ]
    src.reduced("high", LOWEST, "const float v = state[i];", LARGER, tags, threads)
    src.lines.append(f"for (int j = me; j < {tags}; j += {threads}) state[j] -= high;")
    level_of(src, "(row[i] + state[i])", tags, threads)
    src.lines += [
        f"const int label = (int){labels}[r];",
        f"for (int j = me; j < {tags}; j += {threads}) {{",
        "    const float g = (expf(row[j] + state[j] - level) - (j == label ? 1.0f : 0.0f)) * weight;",
        f"    out[r * {tags} + j] = g;",
        "    if (r == begin) own[j] = g;",
        f"    if (last) own[{tags} + j] = g;",
        f"    ahead[j] = {x}[r * {tags} + j] + state[j];",
        "}",
        "__syncthreads();",
        "if (r > begin) {",
        f"    const float* old = {scores} + (r - 1) * {tags};",
        f"    const float part = level + {sums}[r];",
        f"    const int pair = (int){labels}[r - 1] * {tags} + label;",
        f"    for (int i = me; i < {tags * tags}; i += {threads}) {{",
        f"        const float p = expf(old[i / {tags}] + {t}[{2 * tags} + i] + ahead[i % {tags}] - part);",
        f"        own[{2 * tags} + i] += (p - (i == pair ? 1.0f : 0.0f)) * weight;",
        "    }",
        "}",
        "}",
    ]
    low.calls.append(src.launch(out, sequences, threads, "crf_back"))
