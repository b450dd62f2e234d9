"""Sequences: rows by number, pooling, softmax, and recurrent layers step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.runtime.engines.cuda.calls import Buffer, Matrix, Place, Pointer, Product
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers, need_cublaslt
from fluidtool.runtime.engines.cuda.recurrences import OfSums, Recurrence, Step, of_step, recurrent_step, steps_of
from fluidtool.runtime.engines.cuda.sources import FUNCTIONS, THREADS, Source, number, threads_for
from fluidtool.runtime.graph.importers.registry import SIGMOID
from fluidtool.runtime.graph.ir import Node, Value

FULL_SIGMOID = 64  # of gru_unit (importers/sequences.py): over the full range, as ours is


def of_sequences(low: Lowering, offsets: Sequence[int]) -> Buffer:
    """The first row of each sequence, and the end of the last one."""
    return low.constant(np.asarray(offsets, np.int64))


def numbers_of(low: Lowering, src: Source, node: Node, name: str) -> str:
    """A pointer to the offsets, or the rows by number, of a node: constants, or data (graph/filling.py)."""
    if name in node.attrs:
        return src.pointer(of_sequences(low, node.attrs[name]))
    place = low.contiguous(node.inputs[-1])
    return src.pointer(place.buffer, place.offset + node.attrs["at"])


@lowers("pick_rows")
def _pick_rows(low: Lowering, node: Node) -> None:
    """Rows of the input by number, zeros for -1, `times` of them side by side in each row of the result."""
    x = node.inputs[0]
    width = prod(x.shape[1:])
    place, out = low.contiguous(x), low.new(node.output)
    src, count = Source(low), prod(node.output.shape)
    at = src.thread(count)
    row = src.whole(f"(int){numbers_of(low, src, node, 'rows')}[{at} / {width}]")
    text = (
        f"out[{at}] = {row} < 0 ? 0.0f : {src.pointer(place.buffer, place.offset)}[{row} * {width} + {at} % {width}];"
    )
    src.lines.append(text)
    low.calls.append(src.launch(out, -(-count // THREADS), THREADS, "rows"))


POOLS: dict[int, tuple[str, str, str]] = {  # SUM, AVERAGE, SQRT, MAX: start, join, result
    0: ("0.0f", "total + v", "total"),
    1: ("0.0f", "total + v", "total / (float)(end - begin)"),
    2: ("0.0f", "total + v", "total / sqrtf((float)(end - begin))"),
    3: ("-1.0f / 0.0f", "ft_larger(total, v)", "total"),
}
FIRST, LAST = 4, 5


@lowers("sequence_pool")
def _sequence_pool(low: Lowering, node: Node) -> None:
    x, attrs, width = node.inputs[0], node.attrs, prod(node.output.shape[1:])
    place, out, count = low.contiguous(x), low.new(node.output), prod(node.output.shape)
    src = Source(low)
    at, bounds = src.thread(count), numbers_of(low, src, node, "offsets")
    source = src.pointer(place.buffer, place.offset)
    src.lines.append(f"const int begin = (int){bounds}[{at} / {width}], end = (int){bounds}[{at} / {width} + 1];")
    column = src.whole(f"{at} % {width}")
    src.lines.append(f"if (begin == end) {{ out[{at}] = {number(attrs['empty'])}; return; }}")
    if attrs["how"] in (FIRST, LAST):
        row = "begin" if attrs["how"] == FIRST else "(end - 1)"
        src.lines.append(f"out[{at}] = {source}[{row} * {width} + {column}];")
    else:
        start, join, result = POOLS[attrs["how"]]
        step = f"const float v = {source}[i * {width} + {column}]; total = {join};"
        src.lines += [
            f"float total = {start};",
            f"for (int i = begin; i < end; i++) {{ {step} }}",
            f"out[{at}] = {result};",
        ]
    low.calls.append(src.launch(out, -(-count // THREADS), THREADS, "pool"))


@lowers("sequence_softmax")
def _sequence_softmax(low: Lowering, node: Node) -> None:
    x, attrs = node.inputs[0], node.attrs
    place, out = low.contiguous(x), low.new(node.output)
    if "offsets" in attrs:
        sequences, longest = len(attrs["offsets"]) - 1, max(int(np.diff(attrs["offsets"]).max()), 1)
    else:
        sequences, longest = attrs["sequences"], attrs["longest"]
    threads = threads_for(longest)
    src = Source(low)
    src.row(threads)
    bounds, source = numbers_of(low, src, node, "offsets"), src.pointer(place.buffer, place.offset)
    src.lines.append(f"const int begin = (int){bounds}[row], count = (int){bounds}[row + 1] - begin;")
    value = f"const float v = {source}[begin + i];"
    power = f"const float v = expf({source}[begin + i] - most);"
    src.reduced("most", "-1.0f / 0.0f", value, "ft_larger({a}, {b})", "count", threads)
    src.reduced("sum", "0.0f", power, "({a} + {b})", "count", threads)
    src.lines.append(f"for (int i = me; i < count; i += {threads}) {{ {power} out[begin + i] = v / sum; }}")
    low.calls.append(src.launch(out, sequences, threads, "softmax"))


@lowers("cosine")
def _cosine(low: Lowering, node: Node) -> None:
    x, y = node.inputs
    rows, width = node.output.shape[0], prod(x.shape[1:])
    one, other, out = low.contiguous(x), low.contiguous(y), low.new(node.output)
    threads = threads_for(width)
    src = Source(low)
    src.row(threads)
    a = f"{src.pointer(one.buffer, one.offset)}[row * {width} + i]"
    b = f"{src.pointer(other.buffer, other.offset)}[{f'row * {width} + ' if y.shape[0] == rows else ''}i]"
    for name, text in (("both", f"{a} * {b}"), ("first", f"{a} * {a}"), ("second", f"{b} * {b}")):
        src.reduced(name, "0.0f", f"const float v = {text};", "({a} + {b})", width, threads)
    src.lines.append("if (me == 0) out[row] = both / sqrtf(first) / sqrtf(second);")
    low.calls.append(src.launch(out, rows, threads, "cosine"))


# ---------------------------------------------------------------- recurrent layers
def packed_rows(offsets: Sequence[int], reverse: bool) -> tuple[Any, Any]:
    """(the first packed row of every step, then their number; the row that each packed row is): the longest sequence first."""
    bounds = np.asarray(offsets, np.int64)
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    firsts, lengths = bounds[:-1][order], lengths[order]
    steps = np.arange(int(lengths[0]))
    alive = np.searchsorted(-lengths, -steps, side="left")
    starts = np.concatenate([[0], np.cumsum(alive)]).astype(np.int64)
    step = np.repeat(steps, alive)
    place = np.arange(starts[-1]) - starts[step]
    return starts, firsts[place] + (lengths[place] - 1 - step if reverse else step)


def packing_of(attrs: Any) -> tuple[int, Any, Any]:
    """How many sequences there are, and their packed rows; with `by_time` as many in each step, whose rows lie together."""
    if "by_time" not in attrs:
        return len(attrs["offsets"]) - 1, *packed_rows(attrs["offsets"], attrs["reverse"])
    steps, sequences = attrs["by_time"]
    rows = np.arange(steps * sequences).reshape(steps, sequences)
    return sequences, np.arange(steps + 1) * sequences, (rows[::-1] if attrs["reverse"] else rows).reshape(-1)


def begin(low: Lowering, initial: Value, into: Place, attrs: Any) -> None:
    """Initial states, in the order in which sequences are packed."""
    if "by_time" in attrs:
        low.copy(initial, into)
        return
    longest = np.argsort(-np.diff(attrs["offsets"]), kind="stable")
    place, width = low.contiguous(initial), into.strides[0]

    def taken(src: Source, index: list[str]) -> str:
        return (
            f"{src.pointer(place.buffer, place.offset)}[(int){src.table(longest)}[{index[0]}] * {width} + {index[1]}]"
        )

    low.elementwise(into, initial.shape, taken)


def function(kind: int, value: str) -> str:
    """An activation by its number in a recurrent layer."""
    name = FUNCTIONS[SIGMOID if kind == FULL_SIGMOID else kind]
    return f"{name}({value})" if name else value


def packed_gates(low: Lowering, node: Node, columns: int, bias: Any, rows: Buffer) -> Place:
    """The inputs' part of the sums: rows in the order of the steps, with the bias."""
    x = low.contiguous(node.inputs[0])
    gates = Place(Buffer(prod(node.inputs[0].shape)), (columns, 1))
    src, count = Source(low), prod(node.inputs[0].shape)
    at, column = src.thread(count), f"at % {columns}"
    taken = f"{src.pointer(x.buffer, x.offset)}[(int){src.pointer(rows)}[{at} / {columns}] * {columns} + {column}]"
    src.lines.append(f"out[{at}] = {taken} + {src.table(np.asarray(bias, np.float32))}[{column}];")
    low.calls.append(src.launch(gates, -(-count // THREADS), THREADS, "pack"))
    return gates


@lowers("lstm")
def _lstm(low: Lowering, node: Node) -> None:
    """Step by step: the gates' product and a kernel for the cells, or one that does both; a projection is one more of each."""
    need_cublaslt(low)
    attrs, (sequences, starts, rows) = node.attrs, packing_of(node.attrs)
    fed_back, size = attrs["weights"].shape[0], attrs["weights"].shape[1] // 4
    order, weights = low.constant(rows), low.constant(np.asarray(attrs["weights"], np.float32))
    bias = np.asarray(attrs["bias"], np.float32).reshape(-1)
    gates = packed_gates(low, node, 4 * size, bias[: 4 * size], order)
    out, cells, hidden = low.new(node.output), Buffer(sequences * size), Buffer(sequences * size)
    projection = attrs.get("projection")
    # without a projection a step reads the states of one buffer and writes the other
    state = Buffer(sequences * fed_back)
    for value, place in zip(node.inputs[1:], (Place(state, (fed_back, 1)), Place(cells, (size, 1))), strict=False):
        begin(low, value, place, attrs)
    has_before = len(node.inputs) > 1
    projected = None if projection is None else low.constant(np.asarray(projection, np.float32))
    for step, start in zip(steps_of(low, starts), starts.tolist(), strict=False):
        first, before = Pointer(gates.buffer, start * 4 * size), Matrix(Pointer(state), fed_back)
        recurrence = Recurrence(
            Matrix(first, 4 * size),
            before if step.number or has_before else None,
            Matrix(Pointer(weights), 4 * size),
            fed_back,
            4,
        )
        bound = attrs.get("bounds", (0.0, 0.0))[0]
        cell = _Cell(size, attrs["activations"], bound, bias[4 * size :], step.number > 0 or has_before)
        target = out if projection is None else Place(hidden, (size, 1))

        def text(
            src: Source, sums: Sequence[str], cell: _Cell = cell, start: int = start, hidden: Buffer = hidden
        ) -> list[str]:
            lines = cell.lines(src, sums, cells)
            if projection is not None:
                return [*lines, f"out[row * {size} + unit] = h;"]
            where = f"(int){src.pointer(order, start)}[row]"
            kept = f"{src.writable(hidden)}[row * {size} + unit] = h;"
            return [*lines, kept, f"out[{where} * {size} + unit] = h;"]

        recurrent_step(low, step, size, target, recurrence, text, "lstm")
        if projected is None:
            state, hidden = hidden, state
        else:
            low.calls.append(
                Product(
                    Matrix(Pointer(hidden), size), Matrix(Pointer(projected), fed_back), Matrix(Pointer(state), fed_back),
                    step.alive, size, fed_back,
                )
            )  # fmt: skip
            _finish_projection(low, state, fed_back, step, attrs, Pointer(order, start), out)
    low.beside[node.output, "cells"] = Place(cells, (size, 1))


def _finish_projection(
    low: Lowering, state: Buffer, width: int, step: Step, attrs: Any, order: Pointer, out: Place
) -> None:
    """The activation and the bounds of projected states, which are fed back and are the result."""
    bound = number(attrs["bounds"][1])

    def text(src: Source) -> list[str]:
        place = f"{src.writable(state)}[row * {width} + unit]"
        value = function(attrs["activations"][3], place)
        if attrs["bounds"][1] > 0:
            value = f"ft_clip({value}, -{bound}, {bound})"
        where = f"(int){src.pointer(order.buffer, order.offset)}[row]"
        return [f"const float r = {value};", f"{place} = r;", f"out[{where} * {width} + unit] = r;"]

    of_step(low, step, width, out, text, "project")


class _Cell:
    """The statements of one step of an LSTM: gates stand as candidate, input, forget, output."""

    def __init__(self, size: int, activations: Sequence[int], bound: float, peepholes: Any, has_before: bool) -> None:
        self.size, self.bound, self.peepholes, self.has_before = size, bound, peepholes, has_before
        self.gate, self.cell, self.candidate = activations[:3]

    def lines(self, src: Source, sums: Sequence[str], cells: Buffer) -> list[str]:
        """Statements that compute the hidden state `h` from the sums of the gates, and keep the cell state."""
        size = self.size
        state = f"{src.writable(cells)}[row * {size} + unit]"
        if len(self.peepholes):
            table = src.table(self.peepholes)
            looks = [f" + {what} * {table}[{k * size} + unit]" for k, what in enumerate(("before", "before", "c"))]
            sums = [sums[0], *(sum_ + look for sum_, look in zip(sums[1:], looks, strict=True))]
        kept = f" + before * {function(self.gate, sums[2])}" if self.has_before else ""
        lines = [
            f"const float before = {state if self.has_before else '0.0f'};",
            f"float c = {function(self.candidate, sums[0])} * {function(self.gate, sums[1])}{kept};",
        ]
        if self.bound > 0:
            lines.append(f"c = ft_clip(c, -{number(self.bound)}, {number(self.bound)});")
        return [
            *lines,
            f"{state} = c;",
            f"const float h = {function(self.gate, sums[3])} * {function(self.cell, 'c')};",
        ]


@lowers("gru")
def _gru(low: Lowering, node: Node) -> None:
    """Step by step: product and kernel of the gates, then of the candidate; or a call each. Gates are update, reset, candidate."""
    need_cublaslt(low)
    attrs, size = node.attrs, node.attrs["weights"].shape[0]
    starts, rows = packed_rows(attrs["offsets"], attrs["reverse"])
    order, flat = low.constant(rows), np.asarray(attrs["weights"], np.float32).reshape(-1)
    for_gates = low.constant(flat[: 2 * size * size].reshape(size, 2 * size))
    for_candidate = low.constant(flat[2 * size * size :].reshape(size, size))
    gates = packed_gates(low, node, 3 * size, attrs["bias"], order)
    sequences = len(attrs["offsets"]) - 1
    out, hidden, reset = low.new(node.output), Buffer(sequences * size), Buffer(sequences * size)
    for initial in node.inputs[1:]:
        begin(low, initial, Place(hidden, (size, 1)), attrs)
    for step, start in zip(steps_of(low, starts), starts.tolist(), strict=False):
        at = start * 3 * size
        has_before = step.number > 0 or len(node.inputs) > 1
        both, candidate = (Matrix(Pointer(gates.buffer, at + skipped), 3 * size) for skipped in (0, 2 * size))
        state = None
        if has_before:
            of_gates = Recurrence(both, Matrix(Pointer(hidden), size), Matrix(Pointer(for_gates), 2 * size), size, 2)
            update = both.pointer if of_gates.is_one_call(step) else None
            text = _resets(size, attrs, hidden, update)
            recurrent_step(low, step, size, Place(reset, (size, 1)), of_gates, text, "reset")
            state = Matrix(Pointer(reset), size)
        of_candidate = Recurrence(candidate, state, Matrix(Pointer(for_candidate), size), size, 1)
        text = _gru_cell(size, attrs, both.pointer, hidden, Pointer(order, start), has_before)
        recurrent_step(low, step, size, out, of_candidate, text, "gru")


def _resets(size: int, attrs: Any, hidden: Buffer, update: Pointer | None) -> OfSums:
    """The reset states; the sums of the update gates, too, where they are not in memory yet."""

    def text(src: Source, sums: Sequence[str]) -> list[str]:
        gate = function(attrs["activations"][0], sums[1])
        lines = [f"out[row * {size} + unit] = {gate} * {src.pointer(hidden)}[row * {size} + unit];"]
        if update is None:
            return lines
        return [*lines, f"{src.writable(update.buffer, update.offset)}[row * {3 * size} + unit] = {sums[0]};"]

    return text


def _gru_cell(size: int, attrs: Any, gates: Pointer, hidden: Buffer, order: Pointer, has_before: bool) -> OfSums:
    def text(src: Source, sums: Sequence[str]) -> list[str]:
        source, state = src.pointer(gates.buffer, gates.offset), f"{src.writable(hidden)}[row * {size} + unit]"
        gate, candidate = attrs["activations"]
        if has_before:
            result = "c + u * (b - c)" if attrs["origin"] else "b + u * (c - b)"
        else:
            result = "c - u * c" if attrs["origin"] else "u * c"
        return [
            f"const float u = {function(gate, f'{source}[row * {3 * size} + unit]')};",
            f"const float c = {function(candidate, sums[0])};",
            f"const float b = {state if has_before else '0.0f'}, h = {result};",
            f"{state} = h;",
            f"out[(int){src.pointer(order.buffer, order.offset)}[row] * {size} + unit] = h;",
        ]

    return text
