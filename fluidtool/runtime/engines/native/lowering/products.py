"""Products of matrices: the weights packed while compiling, or at run time where they are computed."""

from __future__ import annotations

from fluidtool.runtime.engines.native.calls import NARROW, Buffer, KernelCall, Kind, is_narrow
from fluidtool.runtime.engines.native.lowering.memory import PACKED_ROWS, SMALL, Lowering, lowers, padded_bias
from fluidtool.runtime.graph.ir import Node

ROWS = 24  # of one thread, below which a product is rather cut by columns


@lowers("product")
def _product(low: Lowering, node: Node) -> None:
    attrs = node.attrs
    (rows, depth), columns = attrs["matrix"], attrs["weights"].shape[1]
    source = low.contiguous(node.inputs[0])
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(node.residual, node.output) if node.residual is not None else None
    out = out or low.new_plain(node.output)
    packed = low.pack(attrs["weights"])
    bias = padded_bias(attrs["shift"], 1, -(-columns // low.width) * low.width)
    n = {0: rows, 1: depth, 2: columns, 3: depth, 4: columns, 5: columns, 6: 1, 7: 1}
    n[NARROW] = int(low.narrow)
    tasks = cut(low, n)
    pointers = {
        0: (source.buffer, source.offset),
        1: (packed, 0),
        2: None if bias is None else (bias, 0),
        3: (out.buffer, out.offset),
        4: None if residual is None else (residual.buffer, residual.offset),
    }
    low.steps.add(Kind.PRODUCT, pointers, n, activation=node.activation, tasks=tasks)


def cut(low: Lowering, n: dict[int, int]) -> int:
    """Choose the parts by columns and by rows; returns how many tasks that makes, all matrices together."""
    rows, depth, columns, matrices = n[0], n[1], n[2], n[6] * n[7]
    threads, groups = low.library.threads, -(-columns // (group_of(low.width) * low.width))
    n |= {14: 1, 15: 1}
    if threads > 1 and rows * depth * columns * matrices > SMALL and matrices < 2 * threads:
        wanted = -(-4 * threads // matrices)
        if rows > columns and rows >= ROWS * wanted:
            n[15] = wanted
        else:
            n[14] = min(groups, wanted)
            if n[14] < 2 * threads:
                n[15] = max(min(rows // 12, wanted // n[14]), 1)
    return n[14] * n[15] * matrices


def group_of(width: int) -> int:
    """Blocks of columns whose weights are packed together (as in src/products.c)."""
    return 3 if width == 16 else 2


def prefetch(kernel_calls: list[KernelCall], width: int) -> None:
    """Tell each product which constant weights are read next: its threads ask for them while they compute."""
    coming: KernelCall | None = None
    for kernel_call in reversed(kernel_calls):
        if kernel_call.kind in (Kind.PRODUCT, Kind.ATTENTION) and not is_narrow(kernel_call):
            if coming is not None:
                columns = group_of(width) * width
                kernel_call.pointers[5] = coming.pointers[1]
                kernel_call.sizes |= {17: -(-coming.sizes[2] // columns), 18: columns * coming.sizes[1]}
            if kernel_call.kind is Kind.PRODUCT and kernel_call.pointers[1][0].role == "constant":
                coming = kernel_call


@lowers("matmul")
def _matmul(low: Lowering, node: Node) -> None:
    """Products of computed matrices: Y is packed at run time, X is read as it lies; heads may be stored side by side."""
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
    n = dict(enumerate((depth, columns, by_depth, by_column, outer * inner, outer, *outer_y, inner * each, each)))
    n[12] = columns
    low.steps.add(Kind.PACK, {0: (other.buffer, other.offset), 3: (packed, 0)}, n,
                  tasks=low.task_count(packed.size, outer * inner * -(-depth // PACKED_ROWS)))  # fmt: skip
    outer_x = (0,) * (4 - len(x.shape)) + source.strides[:-2]
    n = {0: rows, 1: depth, 2: columns, 3: source.strides[-2], 4: of_row, 6: outer, 7: inner}
    n |= {8: outer_x[0], 9: outer_x[1], 10: inner * each, 11: each, 12: of_outer, 13: of_inner}
    tasks = cut(low, n)
    pointers = {0: (source.buffer, source.offset), 1: (packed, 0), 3: (out.buffer, 0)}
    low.steps.add(Kind.PRODUCT, pointers, n, activation=node.activation, tasks=tasks)
