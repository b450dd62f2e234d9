"""`fluidtool prune`: what is cut, in which layout it is saved, and that nothing is half-written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fluidtool.model import load
from tests.cli.support import (
    BIAS,
    DIGITS,
    PAIR,
    TOPICS,
    WEIGHT,
    call,
    call_json,
    combined_model,
    error_of,
    everything_below,
    linear_model,
    linear_program,
    write_model,
)

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


# ---------------------------------------------------------------- what is cut
def test_cut_at_an_output(model: Path, tmp_path: Path) -> None:
    result = call("prune", model, "--targets", "product", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert everything_below(tmp_path / "out") == {"__model__", "w"}
    cut = load(tmp_path / "out")
    assert (cut.feeds, cut.fetches) == (["x"], ["product"])
    assert np.array_equal(cut.run({"x": X})["product"], X @ WEIGHT)


def test_cut_at_an_input(model: Path, tmp_path: Path) -> None:
    result = call("prune", model, "--targets", "probability", "--inputs", "product", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert everything_below(tmp_path / "out") == {"__model__", "b"}
    cut = load(tmp_path / "out")
    assert cut.feeds == ["product"]
    assert np.array_equal(cut.run({"product": X @ WEIGHT})["probability"], load(model).run({"x": X})["probability"])


def test_several_targets_keep_their_order(model: Path, tmp_path: Path) -> None:
    call("prune", model, "--targets", "probability", "sum", "-o", tmp_path / "out")
    assert load(tmp_path / "out").fetches == ["probability", "sum"]


def test_targets_by_pattern_in_order_of_computation(model: Path, tmp_path: Path) -> None:
    assert call("prune", model, "--targets", "p*", "-o", tmp_path / "out").exit_code == 0
    assert load(tmp_path / "out").fetches == ["product", "positive", "probability"]


def test_a_pattern_without_a_match(model: Path, tmp_path: Path) -> None:
    result = call("prune", model, "--targets", "fc_*", "-o", tmp_path / "out")
    assert result.exit_code == 2 and "no computed variable matches the pattern 'fc_*'" in error_of(result)
    assert not (tmp_path / "out").exists()


def test_operators_in_place_are_followed(tmp_path: Path) -> None:
    """relu writes over its input: the cut at `sum` is what relu leaves in it."""
    model = linear_model(tmp_path / "model", in_place=True)
    call("prune", model, "--targets", "sum", "-o", tmp_path / "out")
    cut = load(tmp_path / "out")
    assert [op.type for op in cut.program.global_block().ops] == ["feed", "mul", "elementwise_add", "relu", "fetch"]
    assert np.array_equal(cut.run({"x": X})["sum"], np.maximum(X @ WEIGHT + BIAS, 0))


def test_an_input_with_several_values_is_refused(tmp_path: Path) -> None:
    program = linear_program(in_place=True)
    block = program.global_block()
    block.create_var(name="early", shape=[-1, 3], dtype="float32")
    block.insert_op(3, type="scale", inputs={"X": ["sum"]}, outputs={"Out": ["early"]}, attrs={"scale": 2.0})
    model = write_model(tmp_path / "model", program, w=WEIGHT, b=BIAS)
    args = ["prune", model, "--targets", "probability", "early", "--inputs", "sum", "-o", tmp_path / "out"]
    result = call(*args)
    assert result.exit_code == 2 and "sum has several values" in error_of(result)
    assert not (tmp_path / "out").exists()


def test_what_is_not_fed_is_named(model: Path, tmp_path: Path) -> None:
    program = linear_program(feeds=["x", "b"])
    folder = write_model(tmp_path / "two", program, w=WEIGHT)
    program.global_block().var("b").persistable = False
    (folder / "__model__").write_bytes(program.serialize_to_string())
    result = call("prune", folder, "--targets", "sum", "--inputs", "product", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "sum also depends on b" in error_of(result) and "name it as an input too" in error_of(result)


def test_an_idle_input_is_refused(model: Path, tmp_path: Path) -> None:
    args = ["prune", model, "--targets", "product", "--inputs", "x", "sum", "-o", tmp_path / "out"]
    result = call(*args)
    assert result.exit_code == 2 and "product does not depend on sum" in error_of(result)


@pytest.mark.parametrize("option", ["--targets", "--inputs"])
def test_an_unknown_name_is_answered_with_a_near_one(model: Path, tmp_path: Path, option: str) -> None:
    args = ["prune", model, "--targets", "sum", "-o", tmp_path / "out"]
    result = call(*args, option, "prduct")
    assert result.exit_code == 2 and "did you mean product?" in error_of(result)
    assert not (tmp_path / "out").exists()


def test_the_sequence_model_keeps_its_numbers(tmp_path: Path) -> None:
    call("prune", TOPICS, "--targets", "sequence_pool_1.tmp_0", "-o", tmp_path / "out")
    for name, folder in (("a", TOPICS), ("b", tmp_path / "out")):
        args = ["--feed", TOPICS / "feed.npz", "--lod", TOPICS / "lod.json", "--fetch", "sequence_pool_1.tmp_0"]
        assert call("run", folder, *args, "-o", tmp_path / f"{name}.npy").exit_code == 0
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


# ---------------------------------------------------------------- what is said
def test_before_and_after(model: Path, tmp_path: Path) -> None:
    out = call("prune", model, "--targets", "product", "-o", tmp_path / "out").stdout
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["before", "after"]
    assert (
        ["operators", "6", "3"] in lines
        and ["parameters", "2", "1"] in lines
        and ["size", "of", "parameters", "60", "B", "48", "B"] in lines
    )


def test_before_and_after_in_json(model: Path, tmp_path: Path) -> None:
    data = call_json("prune", model, "--targets", "product", "-o", tmp_path / "out")
    assert data["before"]["parameters"] == 2 and data["after"] == {
        "operators": 3,
        "variables": 5,
        "parameters": 1,
        "parameter_bytes": 48,
    }
    assert sorted(data["files"]) == sorted(str(tmp_path / "out" / name) for name in ("__model__", "w"))


# ---------------------------------------------------------------- layouts
def test_a_combined_file_stays_combined(tmp_path: Path) -> None:
    call("prune", combined_model(tmp_path / "model"), "--targets", "sum", "-o", tmp_path / "out")
    assert everything_below(tmp_path / "out") == {"__model__", "__params__"}
    assert np.allclose(load(tmp_path / "out").run({"x": X})["sum"], X @ WEIGHT + BIAS, atol=1e-6)


def test_files_keep_their_names(tmp_path: Path) -> None:
    call("prune", TOPICS, "--targets", "fc_1.tmp_2", "-o", tmp_path / "out")
    assert everything_below(tmp_path / "out") == {"model", "params"}


@pytest.mark.parametrize("source", [PAIR, f"{PAIR}.pdmodel"])
@pytest.mark.parametrize("target", ["net", "net.pdmodel"])
def test_a_pair_stays_a_pair(tmp_path: Path, source: object, target: str) -> None:
    assert call("prune", source, "--targets", "fc_2.tmp_1", "-o", tmp_path / target).exit_code == 0
    assert everything_below(tmp_path) == {"net.pdmodel", "net.pdiparams"}
    assert load(tmp_path / "net").fetches == ["fc_2.tmp_1"]


def test_a_folder_with_a_pair_becomes_a_folder_with_a_pair(tmp_path: Path) -> None:
    assert call("prune", PAIR.parent, "--targets", "fc_2.tmp_1", "-o", tmp_path / "net").exit_code == 0
    assert everything_below(tmp_path / "net") == {"model.pdmodel", "model.pdiparams"}


def test_the_program_alone(model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "__model__", tmp_path / "net.pb")
    args = ["prune", tmp_path / "net.pb", "--targets", "sum", "-o", tmp_path / "cut.pb"]
    result = call(*args)
    assert result.exit_code == 3 and "has no file for 2 parameters" in error_of(result)
    assert call(*args, "--program-only").exit_code == 0
    assert load(tmp_path / "cut.pb", need_parameters=False).fetches == ["sum"]


# ---------------------------------------------------------------- writing
def test_nothing_is_overwritten_without_force(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ["prune", model, "--targets", "sum", "-o", out]
    assert call(*args).exit_code == 0
    result = call("prune", model, "--targets", "product", "-o", out)
    assert result.exit_code == 2 and "already exists" in error_of(result)
    assert everything_below(out) == {"__model__", "w", "b"}


def test_force_replaces_the_whole_model(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("prune", model, "--targets", "sum", "-o", out)
    assert call("prune", model, "--targets", "product", "-o", out, "--force").exit_code == 0
    assert everything_below(out) == {"__model__", "w"}
    assert everything_below(tmp_path) == {"model", "out", *(f"model/{n}" for n in "wb"), "model/__model__"} | {
        "out/__model__",
        "out/w",
    }


def test_a_model_can_be_cut_in_place(model: Path) -> None:
    assert call("prune", model, "--targets", "product", "-o", model, "--force").exit_code == 0
    assert np.array_equal(load(model).run({"x": X})["product"], X @ WEIGHT)


def test_force_deletes_nothing_but_a_model(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("prune", model, "--targets", "sum", "-o", out)
    (out / "notes.txt").write_text("precious")
    result = call("prune", model, "--targets", "product", "-o", out, "--force")
    assert result.exit_code == 2 and "notes.txt" in error_of(result)
    other = tmp_path / "documents"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    assert call("prune", model, "--targets", "product", "-o", other, "--force").exit_code == 2
    assert (out / "notes.txt").exists() and (other / "thesis.tex").exists()


def test_a_failure_leaves_nothing_behind(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[bytes]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fluidtool.io.saving.value_parts", broken)
    before = everything_below(tmp_path)
    assert call("prune", model, "--targets", "sum", "-o", tmp_path / "out").exit_code == 3
    assert everything_below(tmp_path) == before


def test_samples_can_be_cut_and_checked(tmp_path: Path) -> None:
    assert call("prune", DIGITS, "--targets", "pool2d_0.tmp_0", "-o", tmp_path / "out").exit_code == 0
    assert call("check", tmp_path / "out").exit_code == 0
