"""How often operators, and pairs of them, occur in a program (Paddle 1.8.5 contrib/op_frequence.py)."""

from __future__ import annotations

from collections import Counter

from fluidtool.errors import ArgumentTypeError
from fluidtool.ir import Program

__all__ = ["op_freq_statistic"]


def op_freq_statistic(program: Program) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Operator types of block 0, and 'mul->elementwise_add' for one that reads what another wrote last, with their counts.

    The most frequent first. Operators that write only parameters do not count. Raises ArgumentTypeError.
    """
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"The input type should be Program. But you passed in {type(program)}")
    parameters = {param.name for param in program.global_block().all_parameters()}
    single: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    writer: dict[str, str] = {}
    for op in program.global_block().ops:
        pairs.update(
            f"{writer[name]}->{op.type}" for name in op.input_arg_names if name in writer and name not in parameters
        )
        writer.update(dict.fromkeys(op.output_arg_names, op.type))
        if any(name not in parameters for name in op.output_arg_names):
            single[op.type] += 1
    return single.most_common(), pairs.most_common()
