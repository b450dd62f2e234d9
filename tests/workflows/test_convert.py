"""`fluidtool.convert` without the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import NotConvertibleError, OutputExistsError, UsageError
from fluidtool.workflows.onnx_model import compared
from tests.cli.support import DIGITS, TOPICS, linear_model
from tests.onnx_export.support import require_onnx

require_onnx()


def test_a_model_becomes_a_file(tmp_path: Path) -> None:
    result = fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "m.onnx")
    assert result.files == (tmp_path / "m.onnx",) and result.verified is None
    assert (result.to, result.opset, result.single_sequence) == ("onnx", 17, False)


@pytest.mark.parametrize("opset", [13, 17, 23])
def test_verification_compares_with_our_own_run(opset: int, tmp_path: Path) -> None:
    inputs = fluidtool.Inputs(random=True, batch=3)
    result = fluidtool.convert(
        fluidtool.load(DIGITS), tmp_path / "m.onnx", onnx=fluidtool.OnnxOptions(opset), verify=inputs
    )
    (output,) = result.verified or ()
    assert (output.dtype, output.shape, output.fault) == ("float32", (3, 10), "") and output.relative < 1e-5
    assert result.differing == []


def test_sequences_are_run_one_after_the_other(tmp_path: Path) -> None:
    inputs = fluidtool.Inputs(random=True, batch=3)
    result = fluidtool.convert(fluidtool.load(TOPICS), tmp_path / "m.onnx", verify=inputs)
    assert result.single_sequence and result.differing == []
    assert any("one sequence at a time" in note for note in result.notes)


def test_parameters_in_a_file_of_their_own(tmp_path: Path) -> None:
    import onnxruntime

    options = fluidtool.OnnxOptions(external=True)
    result = fluidtool.convert(fluidtool.load(TOPICS), tmp_path / "m.onnx", onnx=options)
    assert [file.name for file in result.files] == ["m.onnx", "m.onnx.data"]
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert session.run(None, {"words": np.ones((3, 1), "int64")})[0].shape == (1, 4)


def test_blockers_leave_nothing_behind(tmp_path: Path) -> None:
    model = fluidtool.load(linear_model(tmp_path / "model"))
    model.program.global_block().ops[2]._type = "sampling_id"  # what no format has
    with pytest.raises(NotConvertibleError, match="nothing was written") as caught:
        fluidtool.convert(model, tmp_path / "m.onnx")
    assert [each.type for each in caught.value.blockers] == ["sampling_id"]
    assert not (tmp_path / "m.onnx").exists()


def test_an_existing_file_stays(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("mine")
    with pytest.raises(OutputExistsError):
        fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_text() == "mine"
    fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "m.onnx", overwrite=True)
    assert (tmp_path / "m.onnx").read_bytes() != b"mine"


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no format 'onx' to convert to; did you mean onnx\?"):
        fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "m", to="onx")


@pytest.mark.parametrize(
    ("found", "fault", "difference"),
    [
        (np.array([1.0, 2.0], "float32"), "", 0.0),
        (np.array([1.0, 2.5], "float32"), "", 0.5),
        (np.array([1.0, np.nan], "float32"), "", float("inf")),
        (np.array([1.0, 2.0]), "float64 (2,), expected float32 (2,)", 0.0),
        (np.array([[1.0, 2.0]], "float32"), "float32 (1, 2), expected float32 (2,)", 0.0),
    ],
)
def test_what_a_comparison_says(found: Any, fault: str, difference: float) -> None:
    result = compared("y", found, np.array([1.0, 2.0], "float32"))
    assert (result.fault, result.difference, result.relative) == (fault, difference, difference / 2)
