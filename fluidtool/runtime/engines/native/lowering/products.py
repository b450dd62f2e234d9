"""Matrix products: weights are packed at compile time, computed ones at run time."""

from __future__ import annotations

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.calls import KernelCall, is_narrow
from fluidtool.runtime.engines.native.layouts import Buffer, Pointer
from fluidtool.runtime.engines.native.lowering.builder import SMALL
from fluidtool.runtime.engines.native.lowering.packing import PACKED_ROWS, padded_bias
from fluidtool.runtime.engines.native.lowering.values import Lowering, lowers
from fluidtool.runtime.graph.ir import Node

ROWS = 24  # per thread, below which a product is split by columns instead


@lowers("product")
def _product(low: Lowering, node: Node) -> None:
    attrs = node.attrs
    (rows, depth), columns = attrs["matrix"], attrs["weights"].shape[1]
    source = low.contiguous(node.inputs[0])
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(node.residual, node.output) if node.residual is not None else None
    out = out or low.new_plain(node.output)
    packed = low.packing.pack(attrs["weights"])
    bias = padded_bias(attrs["shift"], 1, -(-columns // low.width) * low.width)
    column_parts, row_parts = cut(low, rows, depth, columns)
    arguments = abi.Product(
        source=(source.buffer, source.offset), weights=(packed, 0), bias=None if bias is None else (bias, 0),
        out=(out.buffer, out.offset), residual=None if residual is None else (residual.buffer, residual.offset),
        rows=rows, depth=depth, columns=columns, source_row=depth, out_row=columns, residual_row=columns,
        column_parts=column_parts, row_parts=row_parts, bfloat16=int(low.packing.narrow),
    )  # fmt: skip
    low.calls.add(arguments, column_parts * row_parts, node.activation)


def cut(low: Lowering, rows: int, depth: int, columns: int, matrices: int = 1) -> tuple[int, int]:
    """The parts by columns and by rows of each of some matrices."""
    threads, groups = low.library.threads, -(-columns // (group_of(low.width) * low.width))
    if threads == 1 or rows * depth * columns * matrices <= SMALL or matrices >= 2 * threads:
        return 1, 1
    wanted = -(-4 * threads // matrices)
    if rows > columns and rows >= ROWS * wanted:
        return 1, wanted
    by_column = min(groups, wanted)
    return by_column, max(min(rows // 12, wanted // by_column), 1) if by_column < 2 * threads else 1


def group_of(width: int) -> int:
    """Blocks of columns whose weights are packed together (as in src/products.c)."""
    return 3 if width == 16 else 2


def prefetch(kernel_calls: list[KernelCall], width: int) -> None:
    """Tell each product which constant weights are read next: its threads prefetch them."""
    coming: abi.Product[Pointer] | None = None
    for kernel_call in reversed(kernel_calls):
        arguments = kernel_call.arguments
        if isinstance(arguments, abi.Product | abi.Attention) and not is_narrow(kernel_call):
            if coming is not None:
                columns = group_of(width) * width
                arguments.next_weights = coming.weights
                arguments.next_groups, arguments.next_group = -(-coming.columns // columns), columns * coming.depth
            if isinstance(arguments, abi.Product) and arguments.weights[0].role == "constant":
                coming = arguments


@lowers("matmul")
def _matmul(low: Lowering, node: Node) -> None:
    """Products of computed matrices: Y is packed at run time, X is read in place; heads may be stored side by side."""
    x, y = node.inputs
    source, other = low.plain(x), low.plain(y)
    if source.strides[-1] != 1:
        source = low.contiguous(x)
    outer, inner = (1,) * (4 - len(x.shape)) + x.shape[:-2]
    *_, rows, depth = x.shape
    columns = node.output.shape[-1]
    out = low.new_plain(node.output)
    blocks = -(-columns // low.width)
    each, of_outer = blocks * low.width * depth, inner * rows * columns
    of_row, of_inner = (inner * columns, columns) if node.attrs.get("heads_last") else (columns, rows * columns)
    packed = Buffer(outer * inner * each)
    by_depth, by_column = other.strides[-2:]
    if node.attrs["swap_y"]:
        by_depth, by_column = by_column, by_depth
    outer_y = (0,) * (4 - len(y.shape)) + other.strides[:-2]
    packing = abi.Pack(
        source=(other.buffer, other.offset), out=(packed, 0), depth=depth, columns=columns, source_row=by_depth,
        source_column=by_column, matrices=outer * inner, outer=outer, source_outer=outer_y[0], source_inner=outer_y[1],
        out_outer=inner * each, out_inner=each, all_columns=columns,
    )  # fmt: skip
    low.calls.add(packing, low.calls.task_count(packed.size, outer * inner * -(-depth // PACKED_ROWS)))
    outer_x = (0,) * (4 - len(x.shape)) + source.strides[:-2]
    column_parts, row_parts = cut(low, rows, depth, columns, outer * inner)
    arguments = abi.Product(
        source=(source.buffer, source.offset), weights=(packed, 0), out=(out.buffer, 0), rows=rows, depth=depth,
        columns=columns, source_row=source.strides[-2], out_row=of_row, outer=outer, inner=inner, source_outer=outer_x[0],
        source_inner=outer_x[1], weights_outer=inner * each, weights_inner=each, out_outer=of_outer, out_inner=of_inner,
        column_parts=column_parts, row_parts=row_parts,
    )  # fmt: skip
    low.calls.add(arguments, outer * inner * column_parts * row_parts, node.activation)
