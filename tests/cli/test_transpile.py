"""`fluidtool transpile`: passes in the order given, explained, verified, measured, saved like the model; wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import UsageError
from fluidtool.ir import Program
from fluidtool.model import load
from fluidtool.passes import catalogue
from fluidtool.passes.catalogue import INFERENCE_PASSES, InferencePass
from fluidtool.passes.result import PassResult
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.job import JobRequest
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
    on_terminal,
    write_model,
)
from tests.support.random_programs import pick_from, random_program

X = np.load(DIGITS / "x.npy")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The linear model with a `scale` by one before softmax."""
    program = linear_program()
    block = program.global_block()
    block.create_var(name="same", shape=[-1, 3], dtype="float32")
    block.insert_op(4, type="scale", inputs={"X": ["positive"]}, outputs={"Out": ["same"]}, attrs={"scale": 1.0})
    block.ops[5].set_input("X", ["same"])
    return write_model(tmp_path / "model", program, w=WEIGHT, b=BIAS)


@pytest.fixture
def training(tmp_path: Path) -> tuple[Path, Path]:
    """A training program and the program that initializes its parameters."""
    case = random_program(pick_from(3), trains=True)
    startup = Program()
    block = startup.global_block()
    for name, array in case.parameters.items():
        block.create_var(name=name, shape=array.shape, dtype="float32", persistable=True)
        attrs = {"shape": list(array.shape), "dtype": 5, "value": 0.1}
        block.append_op(type="fill_constant", inputs={}, outputs={"Out": [name]}, attrs=attrs)
    for name, program in (("main.pb", case.program), ("startup.pb", startup)):
        (tmp_path / name).write_bytes(program.serialize_to_string())
    return tmp_path / "main.pb", tmp_path / "startup.pb"


def types(folder: object, **options: Any) -> list[str]:
    return [op.type for op in load(folder, **options).program.global_block().ops]


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# ---------------------------------------------------------------- what is done
def test_batch_norm_vanishes_and_the_numbers_stay(tmp_path: Path) -> None:
    result = call("transpile", DIGITS, "--fuse-bn", "--verify", "--feed", DIGITS / "x.npy", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert types(tmp_path / "out").count("batch_norm") == 0
    before, after = (next(iter(load(m).run({"image": X}).values())).numpy() for m in (DIGITS, tmp_path / "out"))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    assert "both programs compute the same (within 1e-05" in result.stderr
    assert f"saved to {tmp_path / 'out'}" in result.stderr


@pytest.mark.parametrize(
    ("options", "order"),
    [
        (["--fuse-bn", "--memory-optimize"], ["fuse-batch-norm", "memory-optimize"]),
        (["--memory-optimize", "--fuse-bn"], ["memory-optimize", "fuse-batch-norm"]),
        (["--fuse", "drop-dead", "is-test", "--release-memory"], ["drop-dead", "is-test", "release-memory"]),
        (["--fuse=is-test", "--release-memory", "--fuse", "drop-dead"], ["is-test", "release-memory", "drop-dead"]),
        (["--all-inference", "--fuse", "is-test", "--fuse-bn"], ["all-inference", "is-test", "fuse-batch-norm"]),
    ],
)
def test_passes_run_in_the_order_in_which_they_are_given(options: list[str], order: list[str]) -> None:
    assert [each["name"] for each in call_json("transpile", DIGITS, *options)["passes"]] == order


def test_the_model_may_stand_behind_the_passes() -> None:
    result = call("transpile", "--release-memory", "--fuse-bn", DIGITS, "--json")
    assert [each["name"] for each in json.loads(result.stdout)["passes"]] == ["release-memory", "fuse-batch-norm"]


def test_operators_and_parameters_before_and_after() -> None:
    out = rows(call("transpile", DIGITS, "--fuse-bn").stdout)
    assert ["fuse-batch-norm", "2", "0"] in out
    assert ["operators", "13", "13"] in out and ["parameters", "12", "6"] in out


def test_explain_says_what_was_done_and_why_not(model: Path) -> None:
    out = call("transpile", model, "--fuse", "drop-identity", "--skip", "same", "positive", "--explain").stdout
    assert "same is fetched or must be kept" in out and ["drop-identity", "0", "1"] in rows(out)
    done = call("transpile", model, "--fuse", "drop-identity", "--explain").stdout
    assert ["done", "scale", "same", "same", "is", "positive"] in rows(done)


def test_explain_says_which_rewrites_all_of_them_left_out_and_how_to_ask_for_them(model: Path) -> None:
    out = rows(call("transpile", model, "--all-inference", "--explain").stdout)
    assert ["all-inference:", "left", "out"] in out
    for known in INFERENCE_PASSES:
        assert (["--fuse", known.name, *known.not_saved.split()] in out) == (not known.saved)


def test_json_says_which_rewrites_all_of_them_left_out_and_how_to_ask_for_them(model: Path) -> None:
    both, one = call_json("transpile", model, "--all-inference", "--fuse", "fuse-attention")["passes"]
    skipped = next(row for row in both["left_out"] if row["name"] == "fuse-skip-layer-norm")
    assert skipped == {
        "name": "fuse-skip-layer-norm",
        "reason": "Paddle 1.8.5 has skip_layernorm only in its CUDA build",
        "option": "--fuse fuse-skip-layer-norm",
    }
    assert "fuse-attention" not in {row["name"] for row in both["left_out"]} and one["left_out"] == []


def test_a_rewrite_by_name_leaves_nothing_out(model: Path) -> None:
    assert "left out" not in call("transpile", model, "--fuse", "drop-identity", "--explain").stdout


def test_json_has_every_decision(model: Path) -> None:
    data = call_json("transpile", model, "--fuse", "drop-identity", "--verify")
    (stage,) = data["passes"]
    assert (stage["operators_before"], stage["operators_after"]) == (7, 6)
    assert stage["decisions"] == [
        {
            "rule": "drop-identity",
            "block": 0,
            "type": "scale",
            "variable": "same",
            "done": True,
            "reason": "same is positive",
        }
    ]
    assert data["before"]["operators"] == 7 and data["after"]["operators"] == 6 and data["files"] == []
    assert data["comparison"]["agrees"] is True and data["comparison"]["rtol"] == 0


def test_measure_shows_memory_and_time() -> None:
    data = call_json("transpile", DIGITS, "--memory-optimize", "--release-memory", "--measure", "--batch", 4)
    before, after = data["before"], data["after"]
    assert after["activation_bytes_kept"] < before["activation_bytes_kept"]
    assert before["activation_bytes_live"] <= after["activation_bytes_live"] <= after["activation_bytes_kept"]
    assert before["seconds"] > 0 and after["seconds"] > 0
    out = call("transpile", DIGITS, "--release-memory", "--measure").stdout
    assert "activations, if kept to the end" in out and "time of a run" in out


def test_sequences_are_verified_too() -> None:
    options = ["--feed", TOPICS / "feed.npz", "--lod", TOPICS / "lod.json"]
    result = call("transpile", TOPICS, "--all-inference", "--memory-optimize", "--verify", *options)
    assert result.exit_code == 0, result.stderr


def test_nothing_is_written_without_output(model: Path, tmp_path: Path) -> None:
    before = everything_below(tmp_path)
    result = call("transpile", model, "--all-inference", "--verify")
    assert result.exit_code == 0 and "nothing was written; -o OUT saves the result" in result.stderr
    assert everything_below(tmp_path) == before


def test_how_much_rounding_is_allowed_can_be_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nearly(self: object, program: Program, scope: Any, keep: object = ()) -> PassResult:
        scope.var("w").value = LoDTensor(scope.var("w").value.numpy() * np.float32(1.0005))
        return PassResult()

    monkeypatch.setattr(InferencePass, "run", nearly)
    assert call("transpile", model, "--fuse-bn", "--verify").exit_code == 1
    assert call("transpile", model, "--fuse-bn", "--verify", "--rtol", "1e-3").exit_code == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_passes_over_random_programs(seed: int, tmp_path: Path) -> None:
    pick = pick_from(seed)
    case = random_program(pick, blocks=seed % 2 == 0, feed_fetch=True)
    folder = write_model(tmp_path / "model", case.program, **case.parameters)
    words = ["--memory-optimize", "--release-memory", "--fuse-bn", "--all-inference"]
    words += [f"--fuse={known.name}" for known in INFERENCE_PASSES]
    options = [words[pick(len(words))] for _ in range(1 + pick(4))]
    result = call("transpile", folder, *options, "--verify", "--batch", 2, "-o", tmp_path / "out")
    assert result.exit_code == 0, (options, result.stderr)
    assert call("check", tmp_path / "out").exit_code in (0, 1)
    assert "FC1" not in call("check", tmp_path / "out").stdout.replace("FC103", "")


# ---------------------------------------------------------------- training programs
def test_a_training_program_shares_memory_and_trains_the_same(training: tuple[Path, Path], tmp_path: Path) -> None:
    main, startup = training
    out = tmp_path / "out.pb"
    options = ["--memory-optimize", "--level", 1, "--release-memory", "--startup", startup, "--verify", "-o", out]
    result = call("transpile", main, *options)
    assert result.exit_code == 0, result.stderr
    assert "persistable variables that a run changes" in result.stdout and "bit by bit" in result.stderr
    assert "delete_var" in types(out, need_parameters=False)


def test_a_training_program_without_parameters_is_transpiled_alone(training: tuple[Path, Path], tmp_path: Path) -> None:
    assert call("transpile", training[0], "--release-memory", "-o", tmp_path / "out.pb").exit_code == 0
    assert "delete_var" in types(tmp_path / "out.pb", need_parameters=False)


@pytest.mark.parametrize("option", ["--fuse-bn", "--all-inference"])
def test_inference_rewrites_refuse_a_training_program(training: tuple[Path, Path], tmp_path: Path, option: str) -> None:
    result = call("transpile", training[0], option, "-o", tmp_path / "out.pb")
    assert result.exit_code == 2
    assert "this program trains them" in error_of(result) and "fluidtool prune" in error_of(result)
    assert not (tmp_path / "out.pb").exists()


def test_a_training_program_cannot_run_without_parameters(training: tuple[Path, Path]) -> None:
    result = call("transpile", training[0], "--release-memory", "--verify")
    assert result.exit_code == 3 and "has no file for" in error_of(result)
    assert "or give --startup FILE, the program that makes them" in error_of(result)


def test_operators_touch_no_files(model: Path, tmp_path: Path) -> None:
    program = load(model).program
    attrs = {"file_path": str(tmp_path / "leak")}
    program.global_block().insert_op(1, type="save", inputs={"X": ["w"]}, outputs={}, attrs=attrs)
    (model / "__model__").write_bytes(program.serialize_to_string())
    result = call("transpile", model, "--memory-optimize", "--verify", "-o", tmp_path / "out")
    assert result.exit_code == 2 and "FT250" in error_of(result)
    assert not (tmp_path / "leak").exists() and not (tmp_path / "out").exists()
    assert call("transpile", model, "--memory-optimize", "--verify", "--allow-files", tmp_path).exit_code == 0


# ---------------------------------------------------------------- layouts and writing
def test_a_folder_with_a_file_for_each_parameter(tmp_path: Path) -> None:
    call("transpile", DIGITS, "--fuse-bn", "-o", tmp_path / "out")
    names = {"conv2d_0.w_0_fuse_bn", "conv2d_1.w_0_fuse_bn", "batch_norm_0.b_0_fuse_bn", "batch_norm_1.b_0_fuse_bn"}
    assert everything_below(tmp_path / "out") == {"__model__", "fc_0.w_0", "fc_0.b_0", *names}


def test_a_combined_file_stays_combined(tmp_path: Path) -> None:
    call("transpile", combined_model(tmp_path / "model"), "--memory-optimize", "-o", tmp_path / "out")
    assert everything_below(tmp_path / "out") == {"__model__", "__params__"}


def test_a_pair_stays_a_pair(tmp_path: Path) -> None:
    assert call("transpile", PAIR, "--all-inference", "--verify", "-o", tmp_path / "net").exit_code == 0
    assert everything_below(tmp_path) == {"net.pdmodel", "net.pdiparams"}


def test_nothing_is_overwritten_without_force(model: Path, tmp_path: Path) -> None:
    args = ["transpile", model, "--fuse", "drop-identity", "-o", tmp_path / "out"]
    assert call(*args).exit_code == 0
    result = call(*args)
    assert result.exit_code == 2 and "already exists" in error_of(result)
    assert call(*args, "--force").exit_code == 0


def test_nothing_is_written_when_outputs_differ(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ruin(program: Program, scope: Any, keep: object) -> PassResult:
        program.global_block().ops[5].set_attr("scale", 1.5)
        program.global_block().ops[4].set_attr("scale", 1.5)
        return PassResult()

    monkeypatch.setattr(InferencePass, "run", lambda self, program, scope, keep=(): ruin(program, scope, keep))
    result = call("transpile", model, "--fuse", "drop-identity", "--verify", "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "1 of 1 value differs (probability); nothing was written" in result.stderr
    (row,) = [row for row in rows(result.stdout) if row[:1] == ["probability"]]
    assert row[1:3] == ["3", "3"]
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- wrong use
def test_help_lists_the_passes() -> None:
    for args in (["--fuse", "help"], [DIGITS, "--fuse", "help"]):
        result = call("transpile", *args)
        assert result.exit_code == 0
        for known in INFERENCE_PASSES:
            assert known.name in result.stdout and known.summary in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "say what to do: --fuse-bn, --fuse PASS"),
        (["--fuse", "fuse-batchnorm"], "did you mean fuse-batch-norm"),
        (["--fuse", "zzz"], "--fuse help' lists them"),
        (["--fuse"], "there is no pass '-o'"),
        (["--fuse-bm"], "did you mean --fuse or --fuse-bn"),
        (["--fuse-bn", "--level", "1"], "--level applies to --memory-optimize"),
        (["--memory-optimize", "--level", "2"], "--level must be 0 or 1, found 2"),
        (["--memory-optimize", "--skip", "imag"], "did you mean image?"),
        (["--fuse-bn", "--random"], "give --verify or --measure too"),
        (["--fuse-bn", "--rtol", "1e-3"], "--rtol applies to --verify"),
        (["--fuse-bn", "--startup", "x.pb"], "give --verify, --measure or --distribute too"),
        (["--fuse-bn", "--verify", "--feed", "zzz=x.npy"], "x.npy"),
        (["--fuse-bn", "--trainers", "2"], "--trainers applies to distributed training; give --distribute too"),
        (["--fuse-bn", "--async"], "--sync/--async applies to distributed training"),
        (["--distribute"], "give --startup FILE"),
        (["--distribute", "--fuse-bn"], "are two transpilers"),
        (["--distribute", "--startup", "x.pb", "--verify"], "--verify applies to passes"),
        (["--distribute", "--startup", "x.pb", "--skip", "x"], "--skip applies to passes"),
        (["--distribute", "--mode", "ring"], "pserver"),
    ],
)
def test_wrong_options_are_answered(options: list[str], message: str, tmp_path: Path) -> None:
    result = call("transpile", DIGITS, *options, "-o", tmp_path / "out")
    assert result.exit_code in (2, 3) and message in error_of(result)
    assert not (tmp_path / "out").exists()


def test_an_option_without_its_value_names_the_help_of_the_command() -> None:
    assert "requires an argument; see 'fluidtool transpile --help'" in error_of(call("transpile", DIGITS, "--fuse"))


def test_missing_parameters_are_an_error(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "model")
    (folder / "w").unlink()
    result = call("transpile", folder, "--memory-optimize", "-o", tmp_path / "out")
    assert result.exit_code == 3 and "no file" in error_of(result)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- distributed training
@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the library is asked to make a job of; it refuses."""
    seen: list[Any] = []

    def refuse(*given: Any, **options: Any) -> None:
        seen.extend([*given, options])
        raise UsageError("no servers")

    monkeypatch.setattr("fluidtool.workflows.job.make_job", refuse)
    return seen


def test_options_of_distributed_training_are_what_is_asked_for(asked: list[Any], tmp_path: Path) -> None:
    options = ["--pservers", "a:1,b:2", "--trainers", "2", "--trainer-id", 1, "--mode", "pserver", "--async"]
    more = ["--no-slice", "--split-method", "hashname", "--min-block-size", 100, "-o", tmp_path / "out"]
    call("transpile", "main.pb", "--startup", "startup.pb", "--distribute", *options, *more)
    request = JobRequest(
        pservers="a:1,b:2",
        trainers="2",
        trainer_id=1,
        sync=False,
        slice_variables=False,
        split_method="HashName",
        min_block_size=100,
    )
    assert asked == [Path("main.pb"), Path("startup.pb"), tmp_path / "out", request, {"overwrite": False}]


def test_what_is_left_out_has_paddles_defaults(asked: list[Any]) -> None:
    call("transpile", "main.pb", "--startup", "startup.pb", "--distribute", "-o", "out")
    assert asked[3] == JobRequest(
        pservers=None,
        trainers=None,
        trainer_id=None,
        mode="pserver",
        sync=True,
        slice_variables=True,
        split_method="RoundRobin",
        min_block_size=8192,
    )


def test_a_training_program_is_distributed(tmp_path: Path) -> None:
    sample = DIGITS.parent / "digits_training"
    options = ["--distribute", "--startup", sample / "startup.pb", "--pservers", "a:1,b:2", "--trainers", 2, "--all"]
    result = call("transpile", sample / "main.pb", *options, "-o", tmp_path / "out", env={"PADDLE_TRAINING_ROLE": None})
    assert result.exit_code == 0, result.stderr
    assert {"send", "recv"} <= set(types(tmp_path / "out/trainer_0/main.pb", need_parameters=False))
    assert "listen_and_serv" in types(tmp_path / "out/pserver_1/main.pb", need_parameters=False)


def test_a_fault_of_distribution_is_one_paragraph(asked: list[Any]) -> None:
    result = call("transpile", "main.pb", "--startup", "startup.pb", "--distribute", "-o", "out")
    assert asked and result.exit_code == 2 and "no servers" in error_of(result)


# ---------------------------------------------------------------- where it is shown
def test_help_fits_eighty_columns() -> None:
    text = call("transpile", "--help", env={"COLUMNS": "80"}).stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "Passes (they run in the order given):" in text


def test_eighty_columns_are_enough_on_a_terminal() -> None:
    written = on_terminal("transpile", DIGITS, "--all-inference", "--memory-optimize", "--explain", TERM="dumb")
    assert max(len(line.rstrip()) for line in written.splitlines()) <= 80


def test_a_catalogue_row_is_all_that_a_new_pass_needs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = InferencePass("again", "identities:drop_identity", "once more", True)
    monkeypatch.setattr(catalogue, "INFERENCE_PASSES", (row,))
    monkeypatch.setattr("fluidtool.passes.pipeline.INFERENCE_PASSES", (row,))
    assert call("transpile", model, "--fuse", "again").exit_code == 0


# ---------------------------------------------------------------- the drawing
def test_memory_is_drawn_before_and_after(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    result = call("transpile", model, "--memory-optimize", "--draw", path, "--batch", 2)
    assert result.exit_code == 0 and f"drawing saved to {path}" in result.stderr
    text = path.read_text("utf-8")
    assert "before: at most" in text and "after: at most" in text and "a batch of 2" in text


def test_only_passes_that_save_memory_are_drawn(model: Path, tmp_path: Path) -> None:
    message = error_of(call("transpile", model, "--fuse-bn", "--draw", tmp_path / "memory.svg"))
    assert "--draw shows what --memory-optimize and --release-memory save" in message


def test_a_drawing_of_memory_replaces_nothing(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    path.write_text("mine")
    assert "already exists" in error_of(call("transpile", model, "--memory-optimize", "--draw", path))
    assert path.read_text() == "mine"
