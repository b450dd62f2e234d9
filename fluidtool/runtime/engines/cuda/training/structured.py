"""Sequences of tags in training steps: linear_chain_crf, a block for each sequence, in logarithms, and crf_decoding."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.calls import Buffer, Place
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.runs import beyond, of_block, tag_of
from fluidtool.runtime.engines.cuda.sources import Source, threads_for
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.structured import Scored, add_path, scored
from fluidtool.runtime.graph.ir import Node, Value

Attrs = Mapping[str, Any]
MOST_PAIRS = 1 << 26  # of tags, of all sequences: each keeps its own sums for the gradient
LARGER, SUM = "ft_larger({a}, {b})", "({a} + {b})"
LOWEST = "-1.0f / 0.0f"


# ---------------------------------------------------------------- importers
def _scores(b: StepBuilder, given: Scored, labels: Value) -> Value:
    """The logarithms of forward scores, each row less the logarithm of its sum; made once for both directions."""
    key = ("crf", given, labels)
    if key not in b.stacks:
        inputs = given.x, given.transition, labels, *given.lengths
        b.stacks[key] = b.node("crf_scores", inputs, given.x.shape, runs=given.runs)
    found: Value = b.stacks[key]
    return found


@imports_step("linear_chain_crf")
def _crf(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    given = scored(b, op, "Label", b.ids)
    scores, x = _scores(b, given, given.labels(op, b.ids)), given.x
    b.put(op, "LogLikelihood", b.node("beside", [scores], (given.runs.count, 1), name="cost"))
    if b.wants(op, "Alpha"):
        b.put(op, "Alpha", b.formula("expf(a)", scores))
    if b.wants(op, "EmissionExps"):
        *rows, tags = x.shape
        most = b.node("reduce", [x], (*rows, 1), sizes=(prod(rows), tags, 1), how=2)
        b.put(op, "EmissionExps", b.formula("expf(a - b)", x, most))
    if b.wants(op, "TransitionExps"):
        b.put(op, "TransitionExps", b.formula("expf(a)", given.transition))


@imports_step("linear_chain_crf_grad")
def _crf_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    given, grad = scored(b, op, "Label", b.ids), b.get(op, "LogLikelihood@GRAD")
    labels, transition, sequences = given.labels(op, b.ids), given.transition, given.runs.count
    need(prod(grad.shape) == sequences, "a gradient that does not fit")
    need(sequences * prod(transition.shape) <= MOST_PAIRS, "more pairs of tags than there is memory for")
    inputs = [given.x, transition, labels, _scores(b, given, labels), grad, *given.lengths]
    found = b.node("crf_gradient", inputs, given.x.shape, runs=given.runs)
    if b.wants(op, "Emission@GRAD"):
        b.put(op, "Emission@GRAD", found)
    if b.wants(op, "Transition@GRAD"):
        parts = b.node("beside", [found], (sequences, *transition.shape), name="transitions")
        b.put(op, "Transition@GRAD", b.sums(parts, (1, 2)))


@imports_step("crf_decoding")
def _crf_decoding(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    labels = [b.get(op, "Label", integer=True)] if b.has(op, "Label") else []
    add_path(b, op, scored(b, op, "Emission", b.ids), labels)


# ---------------------------------------------------------------- kernels
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
    runs, (*rows, tags) = node.attrs["runs"], node.output.shape
    threads, out = threads_for(tags), low.new(node.output)
    cost, levels = Buffer(runs.count), Buffer(prod(rows))
    low.beside[node.output, "cost"] = Place(cost, (1, 1))
    low.beside[node.output, "levels"] = Place(levels, (1,))
    src, (x, t, labels, *_) = of_block(low, node)
    price, sums = src.writable(cost), src.writable(levels)
    src.lines += [
        f"__shared__ float shared[{threads}], state[{tags}];",
        *beyond(runs, tags, threads, LOWEST),
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
        f"const int label = {tag_of(low, src, runs, f'{labels}[r]', tags)};",
        f"spent += level - row[label] - {t}[(r == begin ? 0 : (before + 2) * {tags}) + label];",
        "before = label;",
        f"if (me == 0) {sums}[r] = level;",
        "__syncthreads();",
        "}",
    ]
    level_of(src, f"(state[i] + {t}[{tags} + i])", tags, threads)
    src.lines.append(f"if (me == 0) {price}[sequence] = spent + level - {t}[{tags} + before];")
    low.calls.append(src.launch(out, runs.count, threads, "crf"))


@lowers("crf_gradient")
def _lower_gradient(low: Lowering, node: Node) -> None:
    """Backward, row by row: expected tags less the given ones; beside them the same of pairs, for each sequence."""
    runs, tags = node.attrs["runs"], node.output.shape[-1]
    threads, out, pairs = threads_for(tags * tags), low.new(node.output), (tags + 2) * tags
    found = Buffer(runs.count * pairs)
    low.beside[node.output, "transitions"] = Place(found, (pairs, tags, 1))
    src, (x, t, labels, scores, grad, *_) = of_block(low, node)
    sums = src.pointer(low.beside[node.inputs[3], "levels"].buffer)
    src.lines += [
        f"__shared__ float shared[{threads}], state[{tags}], ahead[{tags}];",
        *beyond(runs, tags, threads, "0.0f"),
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
    low.calls.append(src.launch(out, runs.count, threads, "crf_back"))
