"""Products of matrices: the weights packed while compiling, or at run time where they are computed."""

from __future__ import annotations

import numpy as np

from fluidtool.runtime.engines.native.graph import Node
from fluidtool.runtime.engines.native.lowering.memory import SEGMENT, SMALL, Lowering, lowers, padded_bias
from fluidtool.runtime.engines.native.steps import Buffer, Kind


@lowers("product")
def _product(low: Lowering, node: Node) -> None:
    facts = node.facts
    (rows, depth), columns = facts["matrix"], facts["weights"].shape[1]
    source = low.contiguous(node.inputs[0])
    residual = low.contiguous(node.residual) if node.residual is not None else None
    out = low.reuse_plain(node.residual, node.output) if node.residual is not None else None
    out = out or low.new_plain(node.output)
    packed = low.pack(facts["weights"])
    blocks = -(-columns // low.width)
    bias = padded_bias(facts["shift"], 1, blocks * low.width)
    n = _matrix_sizes(rows, depth, columns, low.width)
    n |= {10: depth, 13: columns, 17: columns, 18: low.width}
    tasks = _cut_product(low, n, rows * depth * columns)
    pointers = {
        0: (source.buffer, source.offset),
        1: (packed, 0),
        2: None if bias is None else (bias, 0),
        3: (out.buffer, out.offset),
        4: None if residual is None else (residual.buffer, residual.offset),
        5: (_offsets(depth), 0),
    }
    low.steps.add(Kind.CONVOLUTION, pointers, n, activation=node.activation, tasks=tasks)


def _matrix_sizes(rows: int, depth: int, columns: int, width: int) -> dict[int, int]:
    blocks = -(-columns // width)
    whole, rest = divmod(depth, SEGMENT)
    return {
        0: 1, 1: 1, 2: rows, 3: blocks, 4: whole + (rest > 0), 5: SEGMENT, 6: rest, 7: int(rest > 0), 14: width,
        19: 1, 23: columns - (blocks - 1) * width, 25: 1, 26: 1, 28: 1,
    }  # fmt: skip


def _offsets(depth: int) -> Buffer:
    table = np.arange(0, depth, SEGMENT, dtype=np.int64)
    return Buffer(table.size, "constant", table)


def _cut_product(low: Lowering, n: dict[int, int], work: int) -> int:
    threads, pairs = low.library.threads, -(-n[3] // 2)
    if work > SMALL and threads > 1:
        n[26] = min(pairs, 4 * threads)
        if n[26] < 2 * threads:
            n[28] = max(min(n[2] // 12, 4 * threads // n[26]), 1)
    return n[19] * n[25] * n[26] * n[28]


@lowers("matmul")
def _matmul(low: Lowering, node: Node) -> None:
    """Products of computed matrices: Y is packed at run time, X is read as it lies."""
    x, y = node.inputs
    source, other = low.plain(x), low.plain(y)
    if source.strides[-1] != 1:
        source = low.contiguous(x)
    outer = (1,) * (4 - len(x.shape)) + x.shape[:-2]
    *_, rows, depth = x.shape
    columns = node.output.shape[-1]
    out = low.new_plain(node.output)
    images, groups = outer
    blocks, width = -(-columns // low.width), low.width
    each = blocks * width * depth
    packed = Buffer(images * groups * each)
    by_depth, by_column = other.strides[-2:]
    if node.facts["swap_y"]:
        by_depth, by_column = by_column, by_depth
    outer_y = (0,) * (4 - len(y.shape)) + other.strides[:-2]
    n = dict(enumerate((depth, columns, by_depth, by_column, images * groups, images, *outer_y, groups * each, each)))
    low.steps.add(Kind.PACK, {0: (other.buffer, other.offset), 3: (packed, 0)}, n,
                  tasks=low.parts(packed.size, images * groups * -(-blocks // 2)))  # fmt: skip
    outer_x = (0,) * (4 - len(x.shape)) + source.strides[:-2]
    n = _matrix_sizes(rows, depth, columns, width)
    n |= {0: images, 8: outer_x[0], 10: source.strides[-2], 11: groups * rows * columns, 13: columns, 19: groups}
    n |= {20: outer_x[1], 21: each, 22: rows * columns, 24: groups * each}
    tasks = images * _cut_matmul(low, n, images * groups * rows * depth * columns)
    pointers = {0: (source.buffer, source.offset), 1: (packed, 0), 3: (out.buffer, 0), 5: (_offsets(depth), 0)}
    low.steps.add(Kind.CONVOLUTION, pointers, n, activation=node.activation, tasks=tasks)


def _cut_matmul(low: Lowering, n: dict[int, int], work: int) -> int:
    if n[0] * n[19] < 2 * low.library.threads:
        return _cut_product(low, n, work)
    return n[19]
