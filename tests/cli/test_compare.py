"""`fluidtool compare`: what is shown, exit codes, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.io.inference import inference_program
from fluidtool.ir import Program
from tests.cli.support import BIAS, DIGITS, WEIGHT, call, call_json, error_of, linear_model, linear_program, write_model

EVIL = "<script>\x1b[31m\u202e" + "n" * 10_000


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    return write_model(tmp_path / "wrong", linear_program(), w=WEIGHT, b=BIAS + np.eye(3, dtype="float32")[0])


def test_equal_models(model: Path) -> None:
    result = call("compare", model, model)
    assert result.exit_code == 0
    assert "4 values agree between A (numpy) and B (numpy)" in result.stderr
    assert "probability" in result.stdout and "First difference" not in result.stdout


def test_a_difference_is_located(model: Path, wrong: Path) -> None:
    result = call("compare", model, wrong, "--seed", 3)
    assert result.exit_code == 1
    assert "the first difference is sum, computed by operator 2 (elementwise_add) of block 0" in result.stderr
    fields = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in result.stdout.splitlines() if "  " in line.strip())
    assert fields["operators"] == "2 elementwise_add" and fields["reads"] == "product (agrees)"
    assert "b: 1 of 3 elements, by at most 1" in result.stdout


def test_json(model: Path, wrong: Path) -> None:
    result = call("compare", model, wrong, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["schema"] == "fluidtool.compare/1" and document["equal"] is False
    assert [each["name"] for each in document["values"]] == ["product", "sum", "positive", "probability"]
    assert [each["agrees"] for each in document["values"]][:2] == [True, False]
    assert document["first_difference"]["name"] == "sum"
    assert document["first_difference"]["parameters"][0]["name"] == "b"
    assert (document["rtol"], document["atol"], document["outputs"]) == (1e-4, None, ["probability"])
    assert document["part"] is None and document["first_not_finite"] is None


def test_json_of_equal_models(model: Path) -> None:
    document = call_json("compare", model, model, "--rtol", 0, "--atol", 0)
    assert document["equal"] is True and document["first_difference"] is None and document["not_in_right"] == []


def test_the_printed_command_shows_the_difference_again(model: Path, wrong: Path, tmp_path: Path) -> None:
    result = call("compare", model, wrong, "--bisect", "-o", tmp_path / "part", "--rtol", 0.001, "--atol", 0.01)
    assert result.exit_code == 1 and "the difference of sum shows in 1 of 4 operators" in result.stderr
    command = shlex.split(result.stderr.splitlines()[-1].split("shown again by: ")[1])
    assert command[-4:] == ["--rtol", "0.001", "--atol", "0.01"]
    again = call(*command[1:])
    assert again.exit_code == 1 and "1 elementwise_add" in again.stdout


def test_two_engines(native: object) -> None:
    result = call("compare", DIGITS, "--engine-b", "native", "--feed", DIGITS / "x.npy")
    assert result.exit_code == 0, result.stderr
    assert "Not in B: 5 of 11 values" in result.stdout and "part of batch_norm_0.tmp_3 (relu)" in result.stdout


def test_two_precisions(native: object) -> None:
    feed = ("--feed", DIGITS / "x.npy", "--engine", "native", "--precision-b", "bf16")
    assert call("compare", DIGITS, *feed).exit_code == 1
    assert call("compare", DIGITS, *feed, "--rtol", 0.02).exit_code == 0


def test_other_parameters(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", w=2 * WEIGHT, b=BIAS)
    result = call("compare", model, "--params-b", tmp_path / "other.npz")
    assert result.exit_code == 1 and "the first difference is product" in result.stderr


def test_recorded_values(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4), "float32"))
    assert call("run", model, "--feed", tmp_path / "x.npy", "--fetch-all", "-o", tmp_path / "values").exit_code == 0
    assert call("compare", model, "--recorded", tmp_path / "values", "--feed", tmp_path / "x.npy").exit_code == 0
    np.save(tmp_path / "values/sum.npy", np.zeros((2, 3), "float32"))
    result = call("compare", model, "--recorded", tmp_path / "values", "--feed", tmp_path / "x.npy", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["first_difference"]["name"] == "sum"


def test_the_first_nan_has_a_table(tmp_path: Path, model: Path) -> None:
    x = np.ones((2, 4), "float32")
    x[1, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    result = call("compare", model, model, "--feed", tmp_path / "x.npy")
    assert result.exit_code == 0
    row = result.stdout.split("First NaN or infinity")[1].splitlines()[2].split()
    assert row[:3] == ["1", "mul", "product"] and row[-5:-1] == ["3", "3", "0", "0"]


def test_no_more_rows_than_asked_for(model: Path, wrong: Path) -> None:
    shown = call("compare", model, wrong, "--top", 1).stdout
    assert "Worst of 3 values that differ" in shown
    assert len(shown.split("Worst of")[1].strip().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name what to compare A with"),
        (("B", "--recorded", "x"), "omit B"),
        (("--recorded", "x", "--paddle", "y"), "omit --paddle"),
        (("--paddle", "y", "--engine-b", "native"), "--paddle computes B"),
        (("--paddle", "y", "--device-b", "gpu"), "--paddle computes B"),
        (("--recorded", "x", "--device-b", "gpu"), "omit --device-b"),
        (("--device-b", "tpu"), "tpu"),
        (("B", "--bisect"), "give -o DIR"),
        (("B", "-o", "x"), "--output is the folder of --bisect"),
        (("B", "--rtol", "-1"), "must not be negative"),
        (("B", "--engine-b", "nativ"), "nativ"),
        (("B", "--precision-b", "half"), "half"),
        (("B", "--fetch", "nothing"), "cannot fetch nothing: the program has no such variable"),
        (("--paddle", "no-such-python"), "cannot be started"),
    ],
)
def test_what_makes_no_comparison_is_refused(model: Path, arguments: tuple[str, ...], message: str) -> None:
    result = call("compare", model, *(model if word == "B" else word for word in arguments))
    assert result.exit_code == 2 and result.stdout == ""
    assert message in result.stderr.splitlines()[-1]


def test_an_interpreter_without_paddle_is_refused(model: Path) -> None:
    result = call("compare", model, "--paddle", sys.executable)
    assert result.exit_code == 2 and "has no Paddle that can be imported" in result.stderr


def test_a_program_that_is_no_interpreter_is_refused(model: Path) -> None:
    result = call("compare", model, "--paddle", "/bin/false")
    assert result.exit_code == 2 and "did not run the model: exit code 1" in result.stderr


def test_an_interpreter_that_does_not_end_is_given_up(model: Path, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(0o755)
    result = call("compare", model, "--paddle", script, "--timeout", 0.3)
    assert result.exit_code == 2 and "did not finish within 0.3 seconds" in result.stderr


def test_an_existing_folder_stays_without_force(model: Path, wrong: Path, tmp_path: Path) -> None:
    out = tmp_path / "part"
    assert call("compare", model, wrong, "--bisect", "-o", out).exit_code == 1
    before = sorted(path.name for path in out.rglob("*"))
    result = call("compare", model, wrong, "--bisect", "-o", out)
    assert result.exit_code == 2 and "already exists" in error_of(result)
    assert call("compare", model, wrong, "--bisect", "-o", out, "--force").exit_code == 1
    assert sorted(path.name for path in out.rglob("*")) == before


def evil(scale: float) -> Program:
    program = Program()
    block = program.global_block()
    for name in (EVIL, EVIL + "2"):
        block.create_var(name=name, shape=[-1, 3], dtype="float32")
    attrs: dict[str, Any] = {"scale": scale, "bias": 0.0, "bias_after_scale": True}
    block.append_op(type="scale", inputs={"X": [EVIL]}, outputs={"Out": [EVIL + "2"]}, attrs=attrs)
    return inference_program(program, [EVIL], [EVIL + "2"])


def test_hostile_names_are_shown_without_harm(tmp_path: Path) -> None:
    a, b = (write_model(tmp_path / name, evil(scale)) for name, scale in (("a", 1.0), ("b", 2.0)))
    result = call("compare", a, b, "--bisect", "-o", tmp_path / "part")
    assert result.exit_code == 1
    assert not {"\x1b", "\u202e"} & set(result.stdout + result.stderr)
    assert max(map(len, result.stdout.splitlines())) < 1000
    command = shlex.split(result.stderr.splitlines()[-1].split("shown again by: ")[1])
    assert call(*command[1:]).exit_code == 1
