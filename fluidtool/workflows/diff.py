"""`fluidtool.diff(left, right)`: what two models do not have in common."""

from __future__ import annotations

from fluidtool.io.difference import ParameterDifference, parameter_differences
from fluidtool.ir.difference import ProgramDifference, difference
from fluidtool.records import dataclass
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """What differs: of the programs, and of the parameters; None where these were not compared."""

    program: ProgramDifference
    parameters: tuple[ParameterDifference, ...] | None

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.program.equal and not self.parameters


def diff(
    left: Source, right: Source, *, params: bool = False, callstack: bool = False, watcher: Watcher = SILENT
) -> ModelDifference:
    """Compare two programs; with params also the values of their parameters, with callstack also where operators were made.

    Operators are aligned by type and outputs, variables by name, sub-blocks by the operators that hold them.
    """
    left, right = (opened(side, need_parameters=params, validate=False) for side in (left, right))
    with watcher.progress("comparing"):
        program = difference(left.program, right.program, callstack=callstack)
        weights = tuple(parameter_differences(left.files.parameters, right.files.parameters)) if params else None
    return ModelDifference(program, weights)
