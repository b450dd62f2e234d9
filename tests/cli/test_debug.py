"""`fluidtool debug reduce`: any command as judge."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fluidtool.model import load
from tests.cli.support import call, error_of, linear_model
from tests.support.checkout import ROOT
from tests.support.golden import corpus


def has(type: str) -> list[str]:
    """Succeeds if the model has an operator of this type: its name stands in the file as it is."""
    return ["grep", "-q", type, "{model}/__model__"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


def types(folder: Path) -> list[str]:
    return [op.type for op in load(folder).program.global_block().ops if op.type not in ("feed", "fetch")]


def test_one_operator_is_left(model: Path, tmp_path: Path) -> None:
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--", *has("relu"))
    assert result.exit_code == 0, result.stderr
    assert types(tmp_path / "out") == ["relu"]
    assert re.search(r"operators\s+1 of 4", result.stdout) and re.search(r"inputs\s+sum", result.stdout)


def test_inputs_of_the_part_have_the_values_of_the_whole(model: Path, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    np.save(tmp_path / "x.npy", x)
    call("debug", "reduce", model, "-o", tmp_path / "out", "--feed", tmp_path / "x.npy", "--", *has("relu"))
    whole = load(model).run({"x": x}, ["sum", "positive"])
    with np.load(tmp_path / "out/feed.npz") as feed:
        assert np.array_equal(feed["sum"], whole["sum"].numpy())
        assert np.array_equal(load(tmp_path / "out").run(dict(feed))["positive"].numpy(), whole["positive"].numpy())


def test_operators_that_only_matter_together_stay(model: Path, tmp_path: Path) -> None:
    command = ["grep -q mul {model}/__model__ && grep -q softmax {model}/__model__"]
    document = call_json_of(model, tmp_path, command)
    assert types(tmp_path / "out") == ["mul", "softmax"]
    assert document["complete"] is True and document["operators"] == 2 and document["feeds"] == ["x", "positive"]


def call_json_of(model: Path, tmp_path: Path, command: list[str]) -> dict[str, object]:
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--json", "--", *command)
    assert result.exit_code == 0, result.stderr
    document: dict[str, object] = json.loads(result.stdout)
    assert document["schema"] == "fluidtool.debug/1"
    return document


def test_a_loop_stays_with_its_block(tmp_path: Path) -> None:
    model = corpus("models") / "seq2seq_train/separate"
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--", *has("while"))
    assert result.exit_code == 0, result.stderr
    part = load(tmp_path / "out").program
    assert "while" in types(tmp_path / "out") and part.num_blocks == 2 and part.block(1).ops


def test_one_word_is_run_by_the_shell(model: Path, tmp_path: Path) -> None:
    result = call(
        "debug",
        "reduce",
        model,
        "-o",
        tmp_path / "out",
        "--",
        "test -f {model}/w && test -f {feed} || test -f {model}/__params__",
    )
    assert result.exit_code == 0, result.stderr
    assert set(types(tmp_path / "out")) <= {"mul", "elementwise_add"}


def test_after_the_limit_the_smallest_part_so_far_is_saved(model: Path, tmp_path: Path) -> None:
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--limit", 1, "--", *has("softmax"))
    assert result.exit_code == 0 and "--limit ended the search" in result.stderr
    assert "softmax" in types(tmp_path / "out")


def test_a_command_that_fails_on_the_whole_model_is_refused(model: Path, tmp_path: Path) -> None:
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--", *has("conv2d"))
    assert result.exit_code == 2 and "does not succeed on the whole model: exit code 1" in error_of(result)
    assert not (tmp_path / "out").exists()


def test_a_command_that_takes_too_long_does_not_succeed(model: Path, tmp_path: Path) -> None:
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--timeout", 0.2, "--", "sleep 30; : {model}")
    assert result.exit_code == 2 and "within 0.2 seconds" in error_of(result)


@pytest.mark.parametrize(
    ("command", "message"),
    [(["true"], "must name the model as {model}"), (["no-such-command", "{model}"], "cannot be started")],
)
def test_what_is_no_judge_is_refused(model: Path, tmp_path: Path, command: list[str], message: str) -> None:
    result = call("debug", "reduce", model, "-o", tmp_path / "out", "--", *command)
    assert result.exit_code == 2 and message in error_of(result)


def test_another_action_is_refused(model: Path, tmp_path: Path) -> None:
    result = call("debug", "expand", model, "-o", tmp_path / "out", "--", "true {model}")
    assert result.exit_code == 2 and "there is no action 'expand'" in error_of(result)


def test_an_existing_folder_stays_without_force(model: Path, tmp_path: Path) -> None:
    result = call("debug", "reduce", model, "-o", model, "--", *has("relu"))
    assert result.exit_code == 2 and "already exists" in error_of(result)
    assert types(model) == ["mul", "elementwise_add", "relu", "softmax"]


@pytest.mark.slow
def test_fluidtool_itself_may_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "fluidtool").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec "{sys.executable}" -m fluidtool "$@"\n')
    (tools / "fluidtool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    judge = ["fluidtool", "run", "{model}", "--feed", "{feed}"]
    result = call("debug", "reduce", ROOT / "samples/digits", "-o", tmp_path / "part", "--limit", 20, "--", *judge)
    assert result.exit_code == 0, result.stderr
