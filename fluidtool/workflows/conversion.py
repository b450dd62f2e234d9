"""What every target of `convert` is asked, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fluidtool.model import Model
from fluidtool.onnx_export.exporter import DEFAULT_OPSET
from fluidtool.records import dataclass
from fluidtool.workflows.inputs import Inputs
from fluidtool.workflows.watcher import SILENT, Watcher

TOLERANCE = 1e-4
NOISE = 1e-6


@dataclass(frozen=True, slots=True)
class OnnxOptions:
    """opset: the version of ONNX's operators, 13 to 23. external: parameters in a separate file, OUTPUT.data, whatever
    their size; above 2 GB they always are. several: inputs with sequences take several sequences and their lengths,
    instead of one.
    """

    opset: int = DEFAULT_OPSET
    external: bool = False
    several: bool = False


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """A model and where it goes. verify: run the result on these inputs beside our own run, and compare."""

    model: Model
    output: Path
    overwrite: bool = False
    onnx: OnnxOptions = OnnxOptions()
    verify: Inputs | None = None
    tolerance: float = TOLERANCE
    watcher: Watcher = SILENT


def given(model: Model) -> str:
    """What a model was read from: 'the program m/__model__ with parameters in m (one file per parameter)'."""
    files = model.files
    if not files.parameter_source:
        return f"the program {files.program_source} without parameters"
    return f"the program {files.program_source} with parameters in {files.parameter_source} ({files.layout})"


@dataclass(frozen=True, slots=True)
class VerifiedOutput:
    """An output of the converted model beside our own: the largest difference, and that relative to the largest number.

    fault: why they cannot be compared: another data type, another shape.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    difference: float = 0.0
    relative: float = 0.0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """What was written. notes: what holds of the converted model beyond what its file says.

    given: what the model was read from. nodes, opset: of ONNX. single_sequence: its inputs with sequences take one sequence
    at a time. verified: None where this was not asked.
    """

    to: str
    files: tuple[Path, ...]
    given: str
    operators: int
    parameters: int
    nodes: int = 0
    opset: int | None = None
    single_sequence: bool = False
    notes: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    verified: Sequence[VerifiedOutput] | None = None

    @property
    def differing(self) -> list[VerifiedOutput]:
        """The outputs that do not agree: a difference below NOISE is one of float32, however small the output is."""
        return [
            each
            for each in self.verified or ()
            if each.fault or not (each.relative <= self.tolerance or (self.tolerance and each.difference <= NOISE))
        ]
