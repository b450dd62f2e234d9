"""Which operators are implemented: those of a pattern, and those of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fluidtool.errors import Hint, UnsupportedOperatorError
from fluidtool.ir import Program
from fluidtool.ops.index import EXCLUDED, MODULES
from fluidtool.ops.paddle_185 import REGISTERED
from fluidtool.ops.registry import OpInfo, find_op
from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.report.ops import Counts


@dataclass(frozen=True, slots=True)
class Support:
    """A type of operators in a program, how many there are, and why they do not run; '' if they do."""

    type: str
    count: int
    reason: str


def coverage(program: Program) -> list[Support]:
    """The types of operators of a program, by name, except feed and fetch."""
    counts = Counter(op.type for block in program.blocks for op in block.ops if op.type not in ("feed", "fetch"))
    return [Support(op_type, counts[op_type], why_not(op_type)) for op_type in sorted(counts)]


def why_not(op_type: str) -> str:
    """Why an operator does not run; '' if it does."""
    return EXCLUDED.get(op_type, "" if op_type in MODULES else "unknown")


def matching(pattern: str) -> tuple[list[OpInfo], dict[str, str]]:
    """The operators that match a pattern such as 'sequence_*', and the reasons of those that are not supported.

    Raises UnsupportedOperatorError when there is neither.
    """
    types = [op_type for op_type in sorted(MODULES) if fnmatchcase(op_type, pattern)]
    excluded = {op_type: reason for op_type, reason in sorted(EXCLUDED.items()) if fnmatchcase(op_type, pattern)}
    if not types and not excluded:
        listed = Hint(
            "fluidtool.ops.index.MODULES has the implemented ones", "'fluidtool ops' lists the implemented ones"
        )
        raise UnsupportedOperatorError(f"no operator matches {pattern!r}", hint=listed)
    return [info for info in map(find_op, types) if info is not None], excluded


def counts(infos: Iterable[OpInfo], excluded: Iterable[str]) -> Counts:
    """How many of Paddle 1.8.5's forward operators are implemented, have a gradient, are excluded; and what is beside."""
    known = {info.type: info for info in infos}
    forward = [known[op_type] for op_type in REGISTERED & known.keys()]
    gradients = [op_type for op_type in known.keys() - REGISTERED if op_type.endswith(("_grad", "_grad_grad"))]
    return {
        "paddle_1_8_5_total": len(REGISTERED),
        "paddle_1_8_5_implemented": len(forward),
        "paddle_1_8_5_with_gradient": sum(info.gradient is not None or info.maker is not None for info in forward),
        "paddle_1_8_5_excluded": len(REGISTERED & set(excluded)),
        "gradient_operators": len(gradients),
        "later_operators": len(known) - len(forward) - len(gradients),
    }
