"""How large a program is."""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool.ir import Program
from fluidtool.passes.pipeline import count_operators
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """A program in numbers; bytes and seconds of a run only where they were measured.

    activation_bytes_kept: if nothing were freed before the end; activation_bytes_live: if freed after use.
    """

    operators: int
    variables: int
    parameters: int
    parameter_bytes: int
    activation_bytes_kept: int | None = None
    activation_bytes_live: int | None = None
    seconds: float | None = None


def figures(program: Program, parameter_bytes: Mapping[str, int]) -> ProgramFigures:
    """The numbers of a program with these parameters."""
    variables = sum(len(block.vars) for block in program.blocks)
    return ProgramFigures(count_operators(program), variables, len(parameter_bytes), sum(parameter_bytes.values()))
