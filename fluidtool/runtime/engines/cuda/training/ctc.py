"""warpctc in training steps: a block for each sequence goes over the states of its label, in logarithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.runtime.engines.cuda.calls import Buffer, Place
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.runs import beyond, bounds, of_block, tag_of
from fluidtool.runtime.engines.cuda.sources import Source, number, threads_for
from fluidtool.runtime.engines.cuda.training.building import StepBuilder, imports_step
from fluidtool.runtime.engines.cuda.training.sequences import taken
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.importers.sequences import offsets_of, owners
from fluidtool.runtime.graph.importers.structured import ctc_scores, spoken
from fluidtool.runtime.graph.ir import Node

Attrs = Mapping[str, Any]
NOTHING = number(-1e30)  # the logarithm of no path
REFUSED = number(1e30)  # stands for the sum over paths of a label that does not fit


@imports_step("warpctc")
def _ctc(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    x, given = b.get(op, "Logits"), spoken(b, op, attrs, b.ids)
    logs, scores = ctc_scores(b, x, given)
    b.put(op, "Loss", b.node("beside", [scores], (given.runs.count, 1), name="cost"))
    if b.wants(op, "WarpCTCGrad"):
        inputs = [logs, given.labels, scores, *given.lengths]
        kept = b.values if given.runs.is_padded else b.packed  # the program has it padded
        known = {"runs": given.runs, "labels": given.of_labels, "blank": given.blank}
        kept[op.outputs["WarpCTCGrad"][0]] = b.node("ctc_gradient", inputs, x.shape, **known)


@imports_step("warpctc_grad")
def _ctc_gradient(b: StepBuilder, op: Operator, attrs: Attrs) -> None:
    name, grad, shape = op.inputs["WarpCTCGrad"][0], b.get(op, "Loss@GRAD"), b.shape_of(op, "Logits")
    found = b.packed.get(name) or b.values.get(name)
    need(found is not None and found.shape == shape, "the gradient of a loss that is not in this step")
    assert found is not None
    if b.has(op, "LogitsLength"):
        count, lengths = found.shape[1], b.get(op, "LogitsLength", integer=True)
        need(prod(grad.shape) == prod(lengths.shape) == count, "a gradient that does not fit")
        text = "a * b / (c > 1.0f ? c : 1.0f)" if attrs["norm_by_times"] else "a * b"
        shapes = (found.shape, (1, count, 1), (1, count, 1))
        b.put(op, "Logits@GRAD", b.formula(text, found, grad, lengths, shapes=shapes))
        return
    offsets = offsets_of(b, op, "Logits", found.shape[0])
    need(prod(grad.shape) == len(offsets) - 1, "a gradient that does not fit")
    owner = owners(offsets)
    counts = np.diff(offsets)[owner] if attrs["norm_by_times"] else None
    weight = taken(b, b.view(grad, (len(offsets) - 1, 1)), owner, counts)
    b.put(op, "Logits@GRAD", b.formula("a * b", found, weight))


def _of_block(low: Lowering, node: Node, widest: int, arrays: Sequence[str]) -> tuple[Source, int, list[str]]:
    """A kernel whose blocks have a sequence each, its threads, and the names of its inputs; `label(s)` is the class of a state."""
    src, names = of_block(low, node)
    threads, labels, classes = threads_for(widest), node.attrs["labels"], node.inputs[0].shape[-1]
    first, count = bounds(low, src, labels, names[-2])
    src.lines += [
        f"__shared__ float {', '.join(f'{name}[{widest}]' for name in arrays)};",
        f"__shared__ int given[{max(widest // 2, 1)}];",
        f"const int first = {first}, size = 2 * {count} + 1;",
        f"for (int i = me; i < size / 2; i += {threads}) "
        f"given[i] = {tag_of(low, src, labels, f'{names[1]}[first + i]', classes)};",
        "__syncthreads();",
    ]
    return src, threads, names


def _label(state: str, blank: int) -> str:
    return f"(({state}) % 2 ? given[({state}) / 2] : {blank})"


def _joined(one: str, two: str) -> list[str]:
    """Statements that make `found` the logarithm of the sum of a state's own score and those of one and two states away."""
    return [
        f"const float a = state[s], b = {one}, c = {two};",
        "const float top = ft_larger(ft_larger(a, b), c);",
        "found = top + logf(expf(a - top) + expf(b - top) + expf(c - top));",
    ]


@lowers("ctc_scores")
def _lower_scores(low: Lowering, node: Node) -> None:
    """Forward, row by row. Beside them: what each sequence costs, and the logarithm of the sum over its paths."""
    (_, widest), classes, blank = node.output.shape, node.inputs[0].shape[-1], node.attrs["blank"]
    out, runs = low.new(node.output), node.attrs["runs"]
    cost, totals = Buffer(runs.count), Buffer(runs.count)
    low.beside[node.output, "cost"], low.beside[node.output, "totals"] = Place(cost, (1, 1)), Place(totals, (1,))
    src, threads, (logs, *_) = _of_block(low, node, widest, ["state"])
    label, two_before = _label("s", blank), _label("s - 2", blank)
    leaps = f"s > 1 && {label} != {blank} && {label} != {two_before} ? state[s - 2] : {NOTHING}"
    src.lines += [
        "int repeats = 0;",
        "for (int i = 1; i < size / 2; i++) repeats += given[i] == given[i - 1];",
        "for (int n = 0; n < count; n++) {",
        f"const int r = begin + n * {runs.step};",
        f"const float* row = {logs} + r * {classes};",
        f"float* own = out + r * {widest};",
        f"for (int s = me; s < size; s += {threads}) {{",
        f"    float found = s < 2 ? 0.0f : {NOTHING};",
        "    if (n > 0) {",
        *_joined(f"s > 0 ? state[s - 1] : {NOTHING}", leaps),
        "    }",
        f"    own[s] = ft_larger(found + row[{label}], {NOTHING});",
        "}",
        "__syncthreads();",
        f"for (int s = me; s < size; s += {threads}) state[s] = own[s];",
        "__syncthreads();",
        "}",
        "if (me) return;",
        f"float total = {REFUSED};",
        "if (count > 0 && size / 2 + repeats <= count) {",
        f"    const float a = state[size - 1], b = size > 1 ? state[size - 2] : {NOTHING}, top = ft_larger(a, b);",
        "    total = top + logf(expf(a - top) + expf(b - top));",
        "}",
        f"{src.writable(totals)}[sequence] = total;",
        f"{src.writable(cost)}[sequence] = total == {REFUSED} ? 0.0f : -total;",
    ]
    low.calls.append(src.launch(out, runs.count, threads, "ctc"))


@lowers("ctc_gradient")
def _lower_gradient(low: Lowering, node: Node) -> None:
    """Backward, row by row: the probability of each class less the share of the paths that are in it there."""
    classes, widest, blank = node.output.shape[-1], node.inputs[2].shape[1], node.attrs["blank"]
    out, runs = low.new(node.output), node.attrs["runs"]
    src, threads, (logs, _, scores, *_) = _of_block(low, node, widest, ["state", "share"])
    total = src.pointer(low.beside[node.inputs[2], "totals"].buffer)
    label, two_after, other = _label("s", blank), _label("s + 2", blank), _label("i", blank)
    leaps = f"s + 2 < size && {label} != {blank} && {label} != {two_after} ? state[s + 2] : {NOTHING}"
    src.lines += [
        f"const float all = {total}[sequence];",
        *beyond(runs, classes, threads, "0.0f"),
        "for (int n = count - 1; n >= 0; n--) {",
        f"const int r = begin + n * {runs.step};",
        f"const float* row = {logs} + r * {classes};",
        f"float* own = out + r * {classes};",
        f"if (all == {REFUSED}) {{",
        f"    for (int k = me; k < {classes}; k += {threads}) own[k] = 0.0f;",
        "    continue;",
        "}",
        f"for (int s = me; s < size; s += {threads}) {{",
        f"    float found = s + 2 < size ? {NOTHING} : 0.0f;",
        "    if (n + 1 < count) {",
        *_joined(f"s + 1 < size ? state[s + 1] : {NOTHING}", leaps),
        "    }",
        f"    share[s] = ft_larger(found + row[{label}], {NOTHING});",
        "}",
        "__syncthreads();",
        f"for (int s = me; s < size; s += {threads}) {{",
        "    state[s] = share[s];",
        f"    share[s] = expf({scores}[r * {widest} + s] + share[s] - row[{label}] - all);",
        "}",
        f"for (int k = me; k < {classes}; k += {threads}) own[k] = expf(row[k]);",
        "__syncthreads();",
        f"for (int s = me; s < size; s += {threads}) {{",
        "    bool first = true;",
        f"    for (int i = s - 1; i >= 0 && first; i--) first = {other} != {label};",
        "    if (!first) continue;",
        "    float found = 0.0f;",
        f"    for (int i = s; i < size; i++) if ({other} == {label}) found += share[i];",
        f"    own[{label}] -= found;",
        "}",
        "__syncthreads();",
        "}",
    ]
    low.calls.append(src.launch(out, runs.count, threads, "ctc_back"))
