"""An estimate of the memory of a program (Paddle 1.8.5 contrib/memory_usage_calc.py)."""

from __future__ import annotations

from math import prod

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.ir import Program, Variable
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor import numpy_dtype

__all__ = ["memory_usage"]


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """(at least, at most, 'B', 'KB' or 'MB') of what the operators of block 0 write in a run with this batch size.

    At least 5 % and at most 10 % more than the declared sizes add up to. Raises ArgumentTypeError, UsageError.
    """
    if not isinstance(program, Program):
        raise ArgumentTypeError(
            f"Calculating Memory Usage requires Program as its Parameter. But you passed in {type(program)}"
        )
    if batch_size <= 0:
        raise UsageError(f"The batch size need to be positive, found {batch_size}")
    block = program.global_block()
    names = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    total = float(sum(_bytes(block.vars[name], batch_size) for name in names if name in block.vars))
    unit = "B"
    for larger in ("KB", "MB"):
        if total > 1024:
            total, unit = total / 1024, larger
    return total * 1.05, total * 1.1, unit


def _bytes(var: Variable, batch_size: int) -> int:
    if var.type != VarType.LOD_TENSOR or var.dtype is None:
        return 0
    if sum(size < 0 for size in var.shape) > 1:
        raise UsageError(f"Var {var.name} has more than one negative dim: {shape_text(var.shape)}")
    return prod(-size * batch_size if size < 0 else size for size in var.shape) * numpy_dtype(var.dtype).itemsize
