"""A table of a program's layers with their parameters and multiplications (Paddle 1.8.5 contrib/model_stat.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

from fluidtool.ir import Operator, Program
from fluidtool.records import dataclass

__all__ = ["summary"]

ACTIVATIONS = ("sigmoid", "tanh", "relu", "leaky_relu", "prelu")
COLUMNS = ("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")


@dataclass(frozen=True, slots=True)
class Row:
    """One layer: shapes without the batch dimension, numbers of parameters and of floating-point operations."""

    type: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    parameters: int
    operations: int


def summary(main_prog: Program) -> None:
    """Print a row for every convolution, product of fc, pooling, batch_norm and activation, and the totals."""
    rows = [row for block in main_prog.blocks for op in block.ops if (row := describe(op)) is not None]
    cells = [
        (str(n), row.type, str(row.input_shape), str(row.output_shape), str(row.parameters), str(row.operations))
        for n, row in enumerate(rows)
    ]
    parameters, operations = sum(row.parameters for row in rows), sum(row.operations for row in rows)
    lines = [
        *_table([COLUMNS, *cells]),
        f"Total PARAMs: {parameters}({parameters / 10**6:.4f}M)",
        f"Total FLOPs: {operations}({operations / 10**9:.2f}G)",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose first row is its header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    edge = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [
        "|" + "|".join(f" {text:>{width}} " for text, width in zip(row, widths, strict=True)) + "|" for row in rows
    ]
    return [edge, lines[0], edge, *lines[1:], edge]


def describe(op: Operator) -> Row | None:
    """The row of an operator; None if it does not count."""
    if op.type in ("conv2d", "depthwise_conv2d"):
        return _convolution(op)
    if op.type == "pool2d":
        out = _shape(op, op.output("Out"))
        return Row(op.type, _shape(op, op.input("X"))[1:], out[1:], 0, prod(out[1:]) * prod(op.attr("ksize")[:2]))
    if op.type == "mul" and "fc" in op.output("Out")[0]:
        weight = _shape(op, op.input("Y"))
        shapes = _shape(op, op.input("X"))[1:], _shape(op, op.output("Out"))[1:]
        return Row(op.type, *shapes, prod(weight) + 1, prod(weight))
    if op.type in ACTIVATIONS:
        shape = _shape(op, op.input("X"))
        count = int(op.type == "prelu")
        return Row(op.type, shape[1:], _shape(op, op.output("Out"))[1:], count, prod(shape[1:]))
    if op.type == "batch_norm":
        shape = _shape(op, op.input("X"))
        return Row(op.type, shape[1:], _shape(op, op.output("Y"))[1:], 2 * shape[1], 2 * prod(shape[1:]))
    return None


def _convolution(op: Operator) -> Row:
    channels, per_group, *kernel = _shape(op, op.input("Filter"))
    out = _shape(op, op.output("Output"))
    each = prod(kernel) * per_group + bool(op.input("Bias"))
    return Row(op.type, _shape(op, op.input("Input"))[1:], out[1:], channels * each, 2 * prod(out[1:]) * each)


def _shape(op: Operator, names: list[str]) -> tuple[int, ...]:
    return op.block.var_recursive(names[0]).shape
