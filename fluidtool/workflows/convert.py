"""`fluidtool.convert(model, output, to="onnx")`: saves a model, or its parameters alone, in another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fluidtool.errors import Hint, UsageError
from fluidtool.workflows.conversion import TOLERANCE, ConvertRequest, ConvertResult, OnnxOptions
from fluidtool.workflows.inputs import Inputs
from fluidtool.workflows.layouts import write_combined, write_paddle1, write_paddle2, write_separate
from fluidtool.workflows.names import did_you_mean
from fluidtool.workflows.onnx_model import write_onnx
from fluidtool.workflows.parameter_files import write_npz, write_pdparams, write_safetensors
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher

# A new target is a row here.
TARGETS: Mapping[str, Callable[[ConvertRequest], ConvertResult]] = {
    "onnx": write_onnx,
    "paddle1": write_paddle1,
    "paddle2": write_paddle2,
    "separate": write_separate,
    "combined": write_combined,
    "pdparams": write_pdparams,
    "npz": write_npz,
    "safetensors": write_safetensors,
}


def convert(
    model: Source,
    output: str | Path,
    *,
    to: str = "onnx",
    overwrite: bool = False,
    onnx: OnnxOptions | None = None,
    verify: Inputs | None = None,
    tolerance: float = TOLERANCE,
    watcher: Watcher = SILENT,
) -> ConvertResult:
    """Save a model in the format `to`: all of it, or nothing if that format cannot express something.

    verify: run the result on these inputs and compare with fluidtool's own run; `tolerance` is relative to the largest
    number of an output. Raises NotConvertibleError with every blocker, UsageError for an unknown target,
    OutputExistsError, OutputError, DependencyError for a missing package, and with `verify` what `run` raises.
    """
    if to not in TARGETS:
        hint = did_you_mean(to, TARGETS) or f"expected one of {', '.join(TARGETS)}"
        raise UsageError(f"there is no format {to!r} to convert to", hint=hint)
    if to != "onnx" and (onnx is not None or verify is not None):
        raise UsageError(
            f"options of ONNX and verification do not apply to {to}, which keeps every byte of the parameters",
            hint=Hint("omit onnx= and verify=", "omit --opset, --external-data, --several-sequences and --verify"),
        )
    if not tolerance >= 0:
        raise UsageError("the tolerance must not be negative")
    model = opened(model, validate=to == "onnx")
    request = ConvertRequest(model, Path(output), overwrite, onnx or OnnxOptions(), verify, tolerance, watcher)
    return TARGETS[to](request)
