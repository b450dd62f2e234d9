"""Attention: one call for all heads, which packs keys and values itself."""

from __future__ import annotations

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.layouts import Buffer, Plain, broadcast_strides
from fluidtool.runtime.engines.native.lowering.builder import SMALL
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node, Shape, Value

ROWS = 32  # per task: packing keys and values for fewer does not pay off


@lowers("attention")
def _attention(low: Lowering, node: Node) -> None:
    """Heads may be stored side by side."""
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
    keys_at, values_at = low.plain(k), low.plain(v)
    place = low.contiguous(mask[0]) if mask else None
    of_mask: Shape = (0, 0, 0, 0)
    if place is not None:
        of_mask = broadcast_strides(place.strides, mask[0].shape, node.attrs["mask_shape"])
    arguments = abi.Attention(
        query=(source.buffer, source.offset), key=(keys_at.buffer, keys_at.offset),
        mask=None if place is None else (place.buffer, place.offset), out=(out.buffer, 0),
        value=(values_at.buffer, values_at.offset), scratch=(Buffer(tasks * room), 0),
        rows=rows, depth=depth, keys=keys, columns=columns, inner=inner,
        query_outer=of_q[0], query_inner=of_q[1], query_row=of_q[2],
        key_outer=of_k[0], key_inner=of_k[1], key_row=of_key, key_column=of_depth,
        value_outer=of_v[0], value_inner=of_v[1], value_row=of_value, value_column=of_column,
        out_outer=inner * rows * columns, out_inner=of_inner, out_row=of_row,
        mask_outer=of_mask[0], mask_inner=of_mask[1], mask_row=of_mask[2], mask_column=of_mask[3],
        row_parts=parts, task_scratch=room, factor=node.attrs["factor"],
    )  # fmt: skip
    low.calls.add(arguments, tasks, node.activation)


def _strides(place: Plain, value: Value) -> tuple[int, ...]:
    """Of outer and inner matrices, rows and columns."""
    return (0,) * (4 - len(value.shape)) + place.strides


def _parts(low: Lowering, matrices: int, rows: int, work: int) -> int:
    """The number of parts for the rows of a matrix."""
    threads = low.library.threads
    if threads == 1 or matrices * work < SMALL or matrices >= 2 * threads:
        return 1
    return max(1, min(rows // ROWS, -(-4 * threads // matrices)))
