"""What the recurrent layers of training steps have in common: activations, columns of gates, where kernels find their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fluidtool.runtime.engines.cuda.calls import Buffer, Place, Pointer
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import THREADS, Source
from fluidtool.runtime.engines.cuda.training.building import StepBuilder
from fluidtool.runtime.graph.importers.registry import SIGMOID, TANH, need
from fluidtool.runtime.graph.importers.sequences import ACTIVATIONS
from fluidtool.runtime.graph.ir import RELU, Node, Value

Attrs = Mapping[str, Any]
Lines = Callable[[Source], list[str]]
Before = tuple[Place, int]  # a matrix of states, and its row where those of a step begin
SLOPES = {
    SIGMOID: "({0} * {1} * (1.0f - {1}))",
    TANH: "({0} * (1.0f - {1} * {1}))",
    RELU.kind: "({1} > 0.0f ? {0} : 0.0f)",
}
"""Gradients of activations, by number: {0} is that of the result, {1} the result."""


def slope(kind: int, grad: str, result: str) -> str:
    """The gradient of an activation."""
    return SLOPES[kind].format(grad, result) if kind in SLOPES else f"({grad})"


def columns_of(b: StepBuilder, value: Value, start: int, count: int) -> Value:
    """Some columns of a matrix."""
    rows = value.shape[0]
    return b.node("slice", [value], (rows, count), starts=[0, start], sizes=(rows, count))


def kinds_of(attrs: Attrs, *names: str) -> list[int]:
    """Activations by number."""
    need({attrs[name] for name in names} <= ACTIVATIONS.keys(), "another activation")
    return [ACTIVATIONS[attrs[name]] for name in names]


def first_row(low: Lowering, node: Node, initial: Sequence[Value], columns: Sequence[int]) -> Pointer | None:
    """Initial states as rows of a step before the first one, each from its column on; None where there are none."""
    if not initial:
        return None
    alive, width = initial[0].shape[0], node.output.shape[1]
    rows = Buffer(alive * width)
    for column, value in zip(columns, initial, strict=True):
        low.copy(value, Place(rows, (width, 1), column))
    return Pointer(rows)


def pack(low: Lowering, x: Value, out: Place, columns: int, bias: Place | None, rows: Any) -> Any:
    """The kernel that brings rows in the order of the steps, with the bias, into the first columns of a place."""
    source, src, count = low.contiguous(x), Source(low), x.shape[0] * columns
    at = src.thread(count)
    row, column = src.whole(f"{at} / {columns}"), src.whole(f"{at} % {columns}")
    value = f"{src.pointer(source.buffer, source.offset)}[(int){src.table(rows)}[{row}] * {columns} + {column}]"
    if bias is not None:
        value += f" + {src.pointer(bias.buffer, bias.offset)}[{column}]"
    src.lines.append(f"out[{row} * {out.strides[0]} + {column}] = {value};")
    return src.launch(out, -(-count // THREADS), THREADS, "pack")


def by_columns(low: Lowering, value: Value) -> Place:
    """A place of a matrix whose rows are contiguous, at any distance."""
    place = low.place(value)
    fits = (place.strides[1] == 1 or value.shape[1] == 1) and not place.buffer.half
    return place if fits else low.contiguous(value)


def begun(low: Lowering, value: Value | None, rows: int, columns: int) -> Buffer:
    """Memory that begins with a matrix; with zeros without one."""
    found = Buffer(rows * columns)
    place = Place(found, (columns, 1))
    if value is None:
        low.elementwise(place, (rows, columns), lambda src, index: "0.0f")
    else:
        low.copy(value, place)
    return found


def element_at(src: Source, place: Place, start: int) -> str:
    """The element of a thread in a matrix, from the row `start` on."""
    step = place.strides[0]
    return f"{src.pointer(place.buffer, place.offset + start * step)}[row * {step} + unit]"
