"""`fluidtool quantize`: what it shows and saves, and every kind of misuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fluidtool.model import load
from tests.cli.support import DIGITS, call, call_json, error_of, everything_below

DATA = ("--data", DIGITS / "x.npy")


def test_outputs_and_operators_are_shown(tmp_path: Path) -> None:
    result = call("quantize", DIGITS, *DATA, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    for text in ("Outputs", "largest difference", "root mean square", "Operators in 8 bits", "conv2d_1.tmp_0"):
        assert text in result.stdout
    assert "Left in float32" not in result.stdout and f"saved to {tmp_path / 'out'}" in result.stderr


def test_what_is_saved_has_quantizers(tmp_path: Path) -> None:
    call("quantize", DIGITS, *DATA, "-o", tmp_path / "out")
    types = [op.type for op in load(tmp_path / "out").program.global_block().ops]
    assert types.count("fake_quantize_moving_average_abs_max") == 3
    assert {"__model__", "image.scale"} <= everything_below(tmp_path / "out")


def test_without_output_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("quantize", DIGITS, *DATA).exit_code == 0
    assert not list(tmp_path.iterdir())


def test_what_is_skipped_is_listed_with_its_reason() -> None:
    out = call("quantize", DIGITS, *DATA, "--skip", "fc_*").stdout
    assert "Left in float32" in out and "it is to be skipped" in out


def test_the_document() -> None:
    data = call_json("quantize", DIGITS, *DATA, "--method", "percentile", "--percentile", "99", "--skip", "fc_*")
    assert data["schema"] == "fluidtool.quantize/1" and data["batches"] == 1 and data["files"] == []
    assert [each["quantized"] for each in data["operators"]] == [True, True, False]
    assert data["operators"][2]["reason"] == "it is to be skipped" and data["operators"][2]["input_scale"] is None
    assert data["outputs"][0]["largest_difference"] > 0


def test_several_batches(tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", np.load(DIGITS / "x.npy")[:3])
    assert call_json("quantize", DIGITS, *DATA, tmp_path / "more.npy")["batches"] == 2


# ---------------------------------------------------------------- misuse
def test_output_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_text("mine")
    result = call("quantize", DIGITS, *DATA, "-o", tmp_path / "out")
    assert result.exit_code == 2 and everything_below(tmp_path / "out") == {"notes"}


def test_output_is_replaced_by_force(tmp_path: Path) -> None:
    call("quantize", DIGITS, *DATA, "-o", tmp_path / "out")
    assert call("quantize", DIGITS, *DATA, "-o", tmp_path / "out", "--force").exit_code == 0


def test_data_is_needed() -> None:
    assert call("quantize", DIGITS).exit_code == 2


def test_data_that_is_not_there() -> None:
    result = call("quantize", DIGITS, "--data", "nothing.npy")
    assert result.exit_code == 3 and "nothing.npy" in error_of(result)


def test_data_for_no_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", other=np.zeros(3, np.float32))
    result = call("quantize", DIGITS, "--data", tmp_path / "data.npz")
    assert result.exit_code == 2 and "there is no input 'other'" in error_of(result)


def test_an_unknown_method() -> None:
    assert call("quantize", DIGITS, *DATA, "--method", "guess").exit_code == 2


def test_a_percentile_out_of_range() -> None:
    result = call("quantize", DIGITS, *DATA, "--method", "percentile", "--percentile", "101")
    assert result.exit_code == 2 and "at most 100" in error_of(result)
