"""Failures as JSON: one document on stdout, whatever fails, and the sentence on stderr as without --json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import fluidtool
from fluidtool import errors
from fluidtool.cli.options.outputs import Json
from fluidtool.errors import FluidError, Hint, Location
from tests.cli.support import DIGITS, SAMPLES, call, error_of, feed_file, linear_model, linear_program, write_model
from tests.cli.support import WEIGHT as W
from tests.support.checkout import child_environment


def failure(*args: Any) -> dict[str, Any]:
    """The error of a command that writes JSON; stderr ends with its sentence."""
    result = call(*args)
    document = json.loads(result.stdout)
    assert document["schema"] == "fluidtool.error/1" and document["error"]["exit_code"] == result.exit_code
    said = " ".join(error_of(result).split())
    assert document["error"]["message"] in said and (document["error"]["hint"] or "") in said
    found: dict[str, Any] = document["error"]
    return found


def test_a_feed_names_its_variable() -> None:
    found = failure("run", DIGITS, "--feed", DIGITS / "labels.npy", "--json")
    assert (found["code"], found["exit_code"], found["location"]["variable"]) == ("FT210", 2, "image")
    assert found["hint"] == "convert it: array.astype('float32')"


def test_an_operator_has_its_place(tmp_path: Path) -> None:
    program = linear_program()
    bias = np.zeros(4, "float32")
    program.global_block().var("b").shape = [4]
    folder = write_model(tmp_path / "m", program, w=W, b=bias)
    found = failure("run", folder, "--feed", feed_file(tmp_path / "x.npy"), "--engine", "numpy", "--json")
    place = found["location"]
    assert (found["code"], place["block"], place["type"]) == ("FT600", 0, "elementwise_add")
    assert fluidtool.load(folder).program.global_block().ops[place["operator"]].type == "elementwise_add"


def test_an_operator_that_breaks_its_schema_has_its_place_and_file(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().ops[1].remove_attr("x_num_col_dims")
    program.global_block().ops[1].set_attr("x_num_col_dims", "one")
    folder = write_model(tmp_path / "m", program, w=W, b=np.zeros(3, "float32"))
    place = failure("run", folder, "--random", "--json")["location"]
    assert (place["file"], place["operator"], place["type"]) == (str(folder / "__model__"), 1, "mul")


def test_nan_is_located_at_the_operator_that_made_it(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "m")
    np.save(tmp_path / "x.npy", np.full((1, 4), np.nan, "float32"))
    document = json.loads(call("run", folder, "--feed", tmp_path / "x.npy", "--check-nan", "--json").stdout)
    found = document["error"]
    assert document["schema"] == "fluidtool.run/1"
    assert (found["code"], found["location"]["variable"], found["location"]["type"]) == ("FT500", "x", "mul")


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--format=json"]])
def test_a_file_that_cannot_be_read(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.pdmodel").write_bytes(b"\x0a\xff\xff")
    found = failure("check", tmp_path / "bad.pdmodel", *words)
    assert (found["code"], found["exit_code"]) == ("FT300", 3)
    assert found["location"]["file"] == str(tmp_path / "bad.pdmodel")


def test_a_parameter_that_is_missing(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "m")
    (folder / "w").unlink()
    found = failure("run", folder, "--random", "--json")
    assert (found["code"], found["location"]["file"], found["location"]["variable"]) == ("FT310", str(folder), "w")


def test_output_that_exists(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    found = failure("prune", DIGITS, "--targets", "fc_0.tmp_0", "-o", tmp_path / "out", "--json")
    assert found["code"] == "FT260" and "--force" in found["hint"]
    assert found["location"]["file"] == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "--json"], "see 'fluidtool run --help'"),
        (["run", DIGITS, "--fed", "x", "--json"], "did you mean --feed"),
        (["run", DIGITS, "--json", "--batch", "many"], "see 'fluidtool run --help'"),
        (["inspct", DIGITS, "--json"], "did you mean inspect"),
        (["check", DIGITS, "--format", "json", "--fetch"], "see 'fluidtool check --help'"),
    ],
)
def test_a_command_line_that_is_wrong(words: list[Any], hint: str) -> None:
    found = failure(*words)
    assert (found["code"], found["exit_code"], found["location"]) == ("FT200", 2, None)
    assert hint in f"{found['message']} {found['hint']}"


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "file"),
    [
        (KeyError("lost"), "FT000", 70, None),
        (MemoryError(), "FT710", 2, None),
        (KeyboardInterrupt(), None, 130, None),
        (PermissionError(13, "Permission denied", "/some/file"), "FT300", 3, "/some/file"),
        (OSError(28, "No space left on device"), "FT261", 3, None),
    ],
)
def test_any_exception(
    error: BaseException, code: str, exit_code: int, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(json: Json = False) -> NoReturn:
        raise error

    monkeypatch.setattr("fluidtool.cli.commands.version.version", version)
    found = failure("version", "--json")
    assert (found["code"], found["exit_code"]) == (code, exit_code)
    assert (found["location"] or {}).get("file") == file


def test_without_json_nothing_is_on_stdout() -> None:
    result = call("run", DIGITS, "--feed", DIGITS / "labels.npy")
    assert result.stdout == "" and "convert it" in result.stderr


def test_a_line_of_json_ends_a_training_that_fails(tmp_path: Path) -> None:
    words = ["train", SAMPLES / "digits_training", "--data", tmp_path / "none.npz", "--json"]
    assert failure(*words)["location"]["file"] == str(tmp_path / "none.npz")
    assert len(call(*words).stdout.splitlines()) == 1


def test_json_behind_the_script_is_the_script_s(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)")
    result = call("exec", script, "--json")
    assert (result.exit_code, result.stdout) == (3, "")


# ---------------------------------------------------------------- the words of both sides
def test_python_reads_python_and_the_command_line_options(tmp_path: Path) -> None:
    with pytest.raises(FluidError) as raised:
        fluidtool.load(DIGITS).run({})
    assert "as in {'image': array}" in str(raised.value) and "--" not in str(raised.value)
    assert "--feed NAME=FILE" in error_of(call("run", DIGITS))


def test_an_error_keeps_its_hint_and_place_when_pickled() -> None:
    import pickle

    error = errors.FeedError("x", hint=Hint("python", "shell"), location=Location("file", variable="x"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.hint, again.location) == ("x; python", error.hint, error.location)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("option", [[], ["--json"]], ids=["table", "json"])
def test_a_full_disk_behind_stdout_is_an_error_like_others(option: list[str]) -> None:
    command = [sys.executable, "-m", "fluidtool", "inspect", str(DIGITS), *option]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=child_environment()
        )
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert "No space left on device [FT261]" in done.stderr
