"""Images that are added up, scaled by channel, resampled to the nearest pixel, and put side by side by channel, in one step.

A graph for lowering has one node `image_sums` for them, whose parts follow each other as channels. Each part is one kernel
call, which also rounds to bytes if a quantizer follows. Detectors with a pyramid of features are full of such sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Blocked, Buffer
from fluidtool.runtime.engines.native.lowering.channels import is_of_channels
from fluidtool.runtime.engines.native.lowering.int8 import NO_BYTES, Stored, place_of_bytes, steps
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.importers.registry import ADD
from fluidtool.runtime.graph.ir import NONE, Graph, Node, Value, operands
from fluidtool.runtime.graph.rewrites.fusion import is_by_channel
from fluidtool.runtime.graph.rewrites.rewriting import ELSEWHERE, NoMatch, Producer, Rewrite, sweep


@dataclass(frozen=True, slots=True)
class Sum:
    """source * factors + residual + added, each of them optional; `added` may have another size: `cells` has the row of each row,
    and the pixel of each column.
    """

    channels: int
    source: Value | None = None
    factors: Value | None = None
    residual: Value | None = None
    added: Value | None = None
    cells: Any = None
    multiply_adds: int = 0

    @property
    def operands(self) -> list[Value]:
        """The values that it reads."""
        return [value for value in (self.source, self.factors, self.residual, self.added) if value is not None]


def join_image_sums(graph: Graph) -> Graph:
    """The graph with a node for every sum of images that is worth one."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in operands(node):
            readers.setdefault(value, []).append(node)

    outputs = frozenset(graph.outputs)

    def quantized(value: Value) -> bool:
        """Whether all that becomes of a value is bytes of an image, by one quantizer."""
        after = readers.get(value, [])
        return value not in outputs and len(after) == 1 and after[0].kind == "quantize" and read(after[0])

    def read(node: Node) -> bool:
        """Whether convolutions read its bytes, and nothing else its floats."""
        found = readers.get(node.output, [])
        return node.output not in outputs and bool(found) and _read_bytes(node.output, found)

    graph = sweep(graph, _sum_rule).graph
    return sweep(graph, _parts_rule(quantized)).graph


def _read_bytes(value: Value, nodes: list[Node]) -> bool:
    return all(node.kind == "conv_int8" and node.inputs[0] is value and node.residual is not value for node in nodes)


def _sum_rule(node: Node, alone: Producer) -> Rewrite | NoMatch:
    """An image and another one, resampled to its size, are added in one step."""
    if _is_scaled(node) and node.residual is not None:
        resampled = alone(node.residual)
        if resampled is None or not _is_nearest(resampled):
            return NoMatch("what is added has not been resampled, or is read elsewhere")
        found = replace(_of_scaled(node), residual=None, added=resampled.inputs[0], cells=resampled.attrs["cells"])
        return Rewrite(
            {resampled: (), node: (_node(node.output, [found], node.multiply_adds + resampled.multiply_adds),)}
        )
    if node.kind != "binary" or node.attrs["operation"] != ADD or len(node.output.shape) != 4:
        return ELSEWHERE
    if any(value.shape != node.output.shape or value.array is not None for value in node.inputs):
        return ELSEWHERE
    for value, other in (node.inputs, reversed(node.inputs)):
        resampled = alone(value)
        if resampled is None or not _is_nearest(resampled):
            continue
        if node.activation != NONE or node.residual is not None or value is other:
            return NoMatch("something else is added, or an activation follows")
        scaled = alone(other)
        base = Sum(node.output.shape[1], other)
        gone = [resampled]
        if scaled is not None and _is_scaled(scaled):
            base = _of_scaled(scaled)
            gone.append(scaled)
        found = replace(base, added=resampled.inputs[0], cells=resampled.attrs["cells"])
        work = node.multiply_adds + sum(each.multiply_adds for each in gone)
        return Rewrite({**dict.fromkeys(gone, ()), node: (_node(node.output, [found], work),)})
    return ELSEWHERE


def _parts_rule(quantized: Callable[[Value], bool]) -> Callable[[Node, Producer], Rewrite | NoMatch]:
    """The rule for concatenations of images by channel that become bytes."""

    def rule(node: Node, alone: Producer) -> Rewrite | NoMatch:
        """Images are resampled and scaled while they are put side by side as bytes."""
        if node.kind != "concat" or not is_of_channels(node) or any(value.array is not None for value in node.inputs):
            return ELSEWHERE
        if not quantized(node.output) or any(value.shape[1] % 4 for value in node.inputs[:-1]):
            return NoMatch("its parts are read as floats, or fill no words of bytes")
        found, gone = [], []
        for value in node.inputs:
            made = alone(value)
            if made is not None and _is_nearest(made):
                found.append(Sum(value.shape[1], added=made.inputs[0], cells=made.attrs["cells"]))
                gone.append(made)
            elif made is not None and _is_scaled(made):
                found.append(_of_scaled(made))
                gone.append(made)
            else:
                found.append(Sum(value.shape[1], value))
        if not gone:
            return NoMatch("no part is resampled or scaled")
        work = node.multiply_adds + sum(each.multiply_adds for each in gone)
        return Rewrite({**dict.fromkeys(gone, ()), node: (_node(node.output, found, work),)})

    return rule


def _node(output: Value, parts: list[Sum], multiply_adds: int) -> Node:
    values = [value for part in parts for value in part.operands]
    return Node("image_sums", values, output, {"parts": tuple(parts)}, multiply_adds=multiply_adds)


def _is_nearest(node: Node) -> bool:
    return node.kind == "interpolate" and node.attrs["shares"] is None and node.activation == NONE


def _is_scaled(node: Node) -> bool:
    if not is_by_channel(node) or any(value.array is not None for value in node.inputs):
        return False
    return bool(node.activation == NONE and node.inputs[1].shape == node.attrs["y_shape"])


def _of_scaled(node: Node) -> Sum:
    return Sum(node.output.shape[1], node.inputs[0], node.inputs[1], node.residual)


# ---------------------------------------------------------------- lowering
@lowers("image_sums")
def _image_sums(low: Lowering, node: Node) -> None:
    parts = node.attrs["parts"]
    place, quantizer, floats = place_of_bytes(low, node)
    out = None
    if floats:
        source = parts[0].source
        reused = low.reuse_blocked(source, node.output) if len(parts) == 1 and source in low.blockeds else None
        out = reused or low.new_blocked(node.output)
    first = 0
    for part in parts:
        _sum(low, part, out, Stored(None, place, quantizer), first, node.output)
        first += part.channels


def _sum(low: Lowering, part: Sum, out: Blocked | None, stored: Stored, first: int, output: Value) -> None:
    images, channels, rows, columns = output.shape
    blocks, bytes_of = -(-part.channels // low.width), stored.bytes
    arguments: dict[str, Any] = {"last_bytes": low.width} | NO_BYTES
    if bytes_of is not None and stored.quantizer is not None:
        room = bytes_of.pixel - first if first + part.channels == channels else part.channels
        arguments = {
            "out_int8": (bytes_of.buffer, (bytes_of.origin + first) // 4), "int8_image": bytes_of.image,
            "int8_row": bytes_of.row, "int8_pixel": bytes_of.pixel, "last_bytes": room - (blocks - 1) * low.width,
            **steps(stored.quantizer),
        }  # fmt: skip
    for name, value in (("source", part.source), ("residual", part.residual)):
        arguments |= dict(_strided(name, None if value is None else low.blocked(value)))
    arguments |= dict(
        _strided("out", None if out is None else out.channels(first, (images, part.channels, rows, columns)))
    )
    factors = None if part.factors is None else low.blocked(part.factors)
    if factors is not None:
        assert part.factors is not None
        by_image = factors.image * (part.factors.shape[0] > 1)
        arguments |= {"factors_image": by_image, "factors_block": factors.block}
    added = None if part.added is None else low.blocked(part.added)
    table = None
    if added is not None:
        axes = zip(part.cells, (added.row, added.lanes), strict=True)
        offsets = np.concatenate([(axis * step).reshape(-1) for axis, step in axes])
        table = Buffer(offsets.size, "constant", np.ascontiguousarray(offsets, np.int64)), 0
        arguments |= {"added_image": added.image, "added_block": added.block}
    call = abi.SumImages(
        images=images, rows=rows, columns=columns, blocks=blocks, offsets=table,
        factors=None if factors is None else (factors.buffer, factors.origin),
        added=None if added is None else (added.buffer, added.origin), **arguments,
    )  # fmt: skip
    low.calls.add(call, low.calls.task_count(4 * images * part.channels * rows * columns, images * rows))


def _strided(name: str, place: Blocked | None) -> Iterator[tuple[str, Any]]:
    """The arguments for an image of the size of the result."""
    yield name, None if place is None else (place.buffer, place.origin)
    if place is not None:
        yield from ((f"{name}_image", place.image), (f"{name}_row", place.row))
        yield from ((f"{name}_pixel", place.lanes), (f"{name}_block", place.block))
