"""A graph for sequences of any lengths: numbers of rows are rounded up, and offsets are data that it reads.

Beams of sentences that never come again have other offsets, and other numbers of rows, in every step of a decoder. Rounded up there
are few of them, so that most steps find a graph. Rows that are filled up hold anything: no kind of node here reads those of others,
except by the numbers of rows that count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.records import dataclass
from fluidtool.runtime.graph.bounds import COMPUTED
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Graph, Node, Shape, UnsupportedError, Value
from fluidtool.runtime.graph.pipeline import ImportedRegion

OFFSETS = "offsets of sequences"
"""The input that holds all offsets, and rows by number."""
SHORT = 32  # rows of a sequence that are no more work than one
Attrs = dict[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Filled:
    """A region for some inputs: `imported`, whose rows are filled up, and what these inputs say about it.

    key: the same for all inputs that the graph computes. numbers: its OFFSETS, whole numbers on the host or on a device. rows: of
    each output, how many count. lods: of each output.
    """

    imported: ImportedRegion
    key: tuple[tuple[Any, ...], ...]
    numbers: Any
    rows: Mapping[str, int]
    lods: Mapping[str, list[list[int]]]


def rounded_up(rows: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …: at most half is added, and there are two of them for each doubling."""
    power = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if 1 < rows <= 3 * power // 4 else power


def fill_up(imported: ImportedRegion, outputs: Sequence[str]) -> Filled:
    """The region with its rows filled up. Raises UnsupportedError, which names a result, for nodes that read rows otherwise."""
    graph, filling = imported.graph, _Filling()
    inputs = [filling.input(value) for value in graph.inputs]
    for node in graph.nodes:
        filling.add(node)
    numbers = np.concatenate([*filling.numbers, np.zeros(1, np.int64)])
    filling.offsets.shape = numbers.shape
    results = [filling.of(value) for value in graph.outputs]
    whole = Graph((*inputs, filling.offsets), results, tuple(filling.nodes))
    rows = {name: value.shape[0] for name, value in zip(outputs, graph.outputs, strict=True)}
    key = (*(("input", value.shape, str(value.integer)) for value in inputs), *map(_kind_of, filling.nodes))
    return Filled(replace(imported, graph=whole), key, numbers, rows, imported.lods)


def _kind_of(node: Node) -> tuple[Any, ...]:
    """What a node computes, as far as other inputs may change it."""
    texts = [f"{name}={node.attrs[name]!r}" for name in CHANGING if name in node.attrs]
    return node.kind, node.output.shape, " ".join(texts)


class _Filling:
    """The graph while it is built: values with their rows filled up, by those of the graph before."""

    def __init__(self) -> None:
        self.offsets = Value(OFFSETS, (1,), None, integer=True)
        self.numbers: list[NDArray[np.int64]] = []
        self.nodes: list[Node] = []
        self._size = 0
        self._values: dict[Value, Value] = {}

    def input(self, value: Value) -> Value:
        """An input of the region."""
        need(value.shape, f"{value.name} without rows")
        return self._put(value)

    def of(self, value: Value) -> Value:
        """The value in the place of another one; constants stay as they are."""
        return value if value.array is not None else self._values[value]

    def add(self, node: Node) -> None:
        """A node in the place of another one."""
        try:
            need(node.kind in RULES, f"{node.kind.replace('_', ' ')} of rows that are filled up")
            attrs = {**node.attrs, **RULES[node.kind](self, node)}
        except UnsupportedError as error:
            error.result = node.output.name
            raise
        inputs = [self.of(value) for value in node.inputs]
        if "at" in attrs:
            inputs.append(self.offsets)
            attrs = {name: each for name, each in attrs.items() if name not in ("rows", "offsets")}
        out = self._put(node.output)
        self.nodes.append(Node(node.kind, inputs, out, attrs, node.activation, None, node.multiply_adds))

    def note(self, numbers: Any, room: int, beyond: int) -> int:
        """Add numbers to OFFSETS, with `beyond` in the rest of their room; where they begin."""
        at, found = self._size, np.full(room, beyond, np.int64)
        found[: len(numbers)] = numbers
        self.numbers.append(found)
        self._size += room
        return at

    def _put(self, value: Value) -> Value:
        shape = (rounded_up(value.shape[0]), *value.shape[1:])
        self._values[value] = found = Value(value.name, shape, None, value.integer, value.short)
        return found


# ---------------------------------------------------------------- what each kind of node needs
def _in_rows(node: Node, rank: int = 1) -> int:
    """The rows of a node each of which is computed of the same rows of its inputs; raises UnsupportedError for other ones."""
    rows = node.output.shape[0]
    need(len(node.output.shape) >= rank and node.residual is None, "a result without rows")
    for value in node.inputs:
        need(value.array is None and len(value.shape) >= rank, "a value without rows")
        need(value.shape[0] == rows, "a value with other rows")
    return rows


def _alike(filling: _Filling, node: Node) -> Attrs:
    _in_rows(node)
    return {}


def _last_axis(filling: _Filling, node: Node) -> Attrs:
    _in_rows(node, rank=2)
    need(node.attrs.get("mask_shape") is None, "a mask of rows")
    return {}


def _broadcast(node: Node, shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes to which inputs are broadcast, with rows filled up: of values that have as many, or that are the same for all."""
    rows, found = node.output.shape[0], []
    for value, shape in zip(node.inputs, shapes, strict=True):
        need(len(shape) == len(node.output.shape), "a value without rows")
        has_rows = value.array is None and value.shape[0] == rows == shape[0]
        need(
            has_rows or (shape[0] == 1 and (value.array is not None or value.shape[0] == 1)), "a value with other rows"
        )
        found.append((rounded_up(rows), *shape[1:]) if has_rows else shape)
    return found


def _binary(filling: _Filling, node: Node) -> Attrs:
    need(node.residual is None, "a further addend")
    _, y_shape = _broadcast(node, (node.output.shape, node.attrs["y_shape"]))
    return {"y_shape": y_shape}


def _formula(filling: _Filling, node: Node) -> Attrs:
    return {"shapes": tuple(_broadcast(node, node.attrs["shapes"]))}


def _matrix(filling: _Filling, node: Node) -> Attrs:
    """Products and normalizations, of one or more lines for each row."""
    rows, (lines, width) = _in_rows(node, rank=2), node.attrs["matrix"]
    need(lines % rows == 0, "a value without rows")
    return {"matrix": (lines // rows * rounded_up(rows), width)}


def _slice(filling: _Filling, node: Node) -> Attrs:
    rows, sizes = _in_rows(node), node.attrs["sizes"]
    need(node.attrs["starts"][0] == 0 and sizes[0] == rows, "a part of the rows")
    return {"sizes": [rounded_up(rows), *sizes[1:]]}


def _concat(filling: _Filling, node: Node) -> Attrs:
    _in_rows(node, rank=2)
    need(node.attrs["axis"] > 0, "rows behind each other")
    return {}


def _lookup(filling: _Filling, node: Node) -> Attrs:
    need(node.attrs["ids"] != COMPUTED, "ids that are computed")  # those of rows that are filled up may be out of range
    _in_rows(node, rank=2)
    return {}


def _one_step(filling: _Filling, node: Node) -> Attrs:
    rows = _in_rows(node, rank=2)
    need(node.attrs["offsets"] == tuple(range(rows + 1)), "steps of sequences")
    return {"offsets": tuple(range(rounded_up(rows) + 1))}


def _pick_rows(filling: _Filling, node: Node) -> Attrs:
    need(node.inputs[0].array is None, "rows of a constant")
    picked = node.attrs["rows"]
    times = len(picked) // node.output.shape[0]
    return {"at": filling.note(picked, times * rounded_up(node.output.shape[0]), beyond=-1)}


def _of_sequences(filling: _Filling, node: Node) -> Attrs:
    offsets = node.attrs["offsets"]
    need(node.inputs[0].array is None, "sequences of a constant")
    sequences = rounded_up(len(offsets) - 1)
    longest = 1 << max(int(np.diff(offsets).max()) - 1, SHORT - 1).bit_length()  # by which threads are shared out
    at = filling.note(offsets, sequences + 1, beyond=offsets[-1])
    return {"at": at, "sequences": sequences, "longest": longest}


RULES: dict[str, Callable[[_Filling, Node], Attrs]] = {
    "unary": _alike, "view": _alike, "pick": _last_axis, "softmax": _last_axis, "top_k": _last_axis, "binary": _binary,
    "formula": _formula, "product": _matrix, "layer_norm": _matrix, "slice": _slice, "concat": _concat, "gather": _lookup,
    "gru": _one_step, "pick_rows": _pick_rows, "sequence_pool": _of_sequences, "sequence_softmax": _of_sequences,
}  # fmt: skip
"""For each kind of node that may have its rows filled up, its attrs that change. Raises UnsupportedError."""
CHANGING = ("at", "longest", "matrix", "sequences", "shapes", "sizes", "starts", "y_shape")
"""Attrs by which graphs of the same operators may differ."""
