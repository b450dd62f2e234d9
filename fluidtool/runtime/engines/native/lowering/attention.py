"""Attention: a step for all heads, which packs keys and values by itself."""

from __future__ import annotations

from fluidtool.runtime.engines.native.calls import Buffer, Kind, Plain
from fluidtool.runtime.engines.native.lowering.memory import SMALL, Lowering, broadcast_strides, lowers
from fluidtool.runtime.graph.ir import Node, Value

ROWS = 32  # of a task: fewer would not be worth packing keys and values for


@lowers("attention")
def _attention(low: Lowering, node: Node) -> None:
    """p and n as in src/attention.c; heads may be stored side by side."""
    q, k, v, *mask = node.inputs
    outer, inner = (1,) * (4 - len(q.shape)) + q.shape[:-2]
    rows, depth = q.shape[-2:]
    keys, columns = k.shape[-2 if node.attrs["swap_k"] else -1], node.output.shape[-1]
    source = low.plain(q)
    if source.strides[-1] != 1:
        source = low.contiguous(q)
    of_q, of_k, of_v = (_strides(place, value) for place, value in ((source, q), (low.plain(k), k), (low.plain(v), v)))
    of_key, of_depth = of_k[2:] if node.attrs["swap_k"] else of_k[:1:-1]
    of_value, of_column = of_v[:1:-1] if node.attrs["swap_y"] else of_v[2:]
    out = low.new_plain(node.output)
    of_row, of_inner = (inner * columns, columns) if node.attrs.get("heads_last") else (columns, rows * columns)
    parts = _parts(low, outer * inner, rows, rows * keys * (depth + columns))
    lanes, tasks = low.width, outer * inner * parts
    room = -(-keys // lanes) * lanes * depth + -(-columns // lanes) * lanes * keys
    n = dict(enumerate((rows, depth, keys, columns, of_q[2], of_key, of_depth, of_value, of_column, of_row, inner)))
    n |= dict(enumerate((*of_q[:2], *of_k[:2], *of_v[:2]), start=11))
    n |= {19: inner * rows * columns, 20: of_inner, 25: parts, 26: room}
    pointers = {
        slot: (place.buffer, place.offset) for slot, place in ((0, source), (1, low.plain(k)), (4, low.plain(v)))
    }
    if mask:
        place = low.contiguous(mask[0])
        pointers[2] = (place.buffer, place.offset)
        n |= dict(enumerate(broadcast_strides(place.strides, mask[0].shape, node.attrs["mask_shape"]), start=21))
    pointers |= {3: (out.buffer, 0), 6: (Buffer(tasks * room), 0)}
    constants = (*node.activation.constants, 0.0, 0.0, 0.0)[:3]
    low.steps.add(Kind.ATTENTION, pointers, n, activation=node.activation,
                  numbers=(*constants, node.attrs["factor"]), tasks=tasks)  # fmt: skip


def _strides(place: Plain, value: Value) -> tuple[int, ...]:
    """Of outer and inner matrices, rows and columns."""
    return (0,) * (4 - len(value.shape)) + place.strides


def _parts(low: Lowering, matrices: int, rows: int, work: int) -> int:
    """Into how many parts to cut the rows of a matrix."""
    threads = low.library.threads
    if threads == 1 or matrices * work < SMALL or matrices >= 2 * threads:
        return 1
    return max(1, min(rows // ROWS, -(-4 * threads // matrices)))
