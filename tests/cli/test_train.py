"""`fluidtool train`: the trajectory, what is logged and saved, checkpoints and resuming, and every way to use it wrongly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.io import checkpoints
from fluidtool.io.parameters import read_value
from fluidtool.model import load
from tests.cli.support import SAMPLES, call, error_of, everything_below, write_model
from tests.support.golden import corpus, names_in, read_arrays, read_json

ROWS = 10
X = np.random.default_rng(5).standard_normal((ROWS, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
STATE = {"w", "w_velocity_0", "fc_0.b_0", "fc_0.b_0_velocity_0", "learning_rate_0"}


def network(rows: int = -1) -> Any:
    """A line through 3-vectors behind a dropout; returns the loss."""
    x = fluid.layers.data("x", [rows, 3], append_batch_size=False, dtype="float32")
    y = fluid.layers.data("y", [rows, 1], append_batch_size=False, dtype="float32")
    attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    predicted = fluid.layers.fc(fluid.layers.dropout(x, dropout_prob=0.3), size=1, param_attr=attr)
    return fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))


def write(folder: Path, build: Any = network, optimizer: Any = None) -> None:
    """main.pb and startup.pb of a network, and data.npz."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        (optimizer or fluid.optimizer.Momentum(0.05, momentum=0.9)).minimize(build())
    folder.mkdir()
    (folder / "main.pb").write_bytes(main.serialize_to_string())
    (folder / "startup.pb").write_bytes(startup.serialize_to_string())
    np.savez(folder / "data.npz", x=X, y=Y)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of programs, written while programs are still completed as they are built."""
    root = tmp_path_factory.mktemp("programs")
    write(root / "line")
    write(root / "fixed", lambda: network(5))
    write(root / "wild", optimizer=fluid.optimizer.SGD(1e30))
    return root


@pytest.fixture
def folder(written: Path) -> Path:
    return written / "line"


def train(folder: Path, *args: Any, data: Any = None) -> Any:
    """`fluidtool train` with the folder's data and batches of 4."""
    return call("train", folder, "--data", data or folder / "data.npz", "--batch-size", 4, *args)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def losses(folder: Path, *args: Any, **kwargs: Any) -> list[float]:
    result = train(folder, "--json", *args, **kwargs)
    assert result.exit_code == 0, result.stderr
    return [line["loss"] for line in lines(result.stdout)]


def saved(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refusal(folder: Path, *args: Any, code: int = 2, **kwargs: Any) -> str:
    result = train(folder, *args, **kwargs)
    assert result.exit_code == code, result.stderr
    return error_of(result)


# ---------------------------------------------------------------- the numbers
@pytest.mark.parametrize("case", [name for name in names_in("train") if name != "lm_staticrnn_sgd"])
def test_the_trajectory_is_real_paddles(case: str, tmp_path: Path) -> None:
    """Losses as tests/models/test_golden_training.py asks for them; the inputs are in the order of their use."""
    source = corpus("train") / case
    args = ["train", source, "--data", source / "stream.npz", "--init", source / "init", "--no-shuffle", "--json"]
    result = call(*args)
    assert result.exit_code == 0, result.stderr
    expect = read_arrays(source / "expect.npz")
    slack = 20 * float(np.max(expect.get("nudge_loss", 0)))
    found = [line["loss"] for line in lines(result.stdout)]
    np.testing.assert_allclose(found, expect["loss"][: len(found)], rtol=1e-4, atol=1e-6 + slack)


def test_ready_batches_can_name_their_inputs() -> None:
    source = corpus("train") / "lm_staticrnn_sgd"
    spec = read_json(source / "case.json")
    args = ["train", source, "--data", source / "stream.npz", "--init", source / "init", "--no-shuffle", "--json"]
    result = call(*args, "--inputs", *[feed["name"] for feed in spec["feeds"]])
    assert result.exit_code == 0, result.stderr
    expect = read_arrays(source / "expect.npz")
    np.testing.assert_allclose([line["loss"] for line in lines(result.stdout)], expect["loss"], rtol=1e-4, atol=1e-6)


def test_sequences_are_taken_whole(tmp_path: Path) -> None:
    """Examples with a LoD, cut into batches of 4 sequences, give the trajectory of ready batches of 4 sequences."""
    source = corpus("train") / "bow_sparse_adam"
    stream = read_arrays(source / "stream.npz")
    steps = sorted({int(name[4:].split("_")[0]) for name in stream})
    words = np.concatenate([stream[f"step{i}_feed0"] for i in steps])
    lengths = np.concatenate([np.diff(stream[f"step{i}_feed0_lod0"]) for i in steps]).tolist()
    label = np.concatenate([stream[f"step{i}_feed1"] for i in steps])
    values: dict[str, Any] = {"words": words, "label": label, "words.lod": json.dumps([lengths])}
    np.savez(tmp_path / "data.npz", **values)
    start = ["--init", source / "init", "--no-shuffle"]
    examples = losses(source, *start, data=tmp_path / "data.npz")
    np.testing.assert_allclose(examples, read_arrays(source / "expect.npz")["loss"], rtol=1e-4, atol=1e-6)


def test_training_lowers_the_loss_of_real_digits() -> None:
    sample = SAMPLES / "digits_training"
    result = call("train", sample, "--data", sample / "data.npz", "--epochs", 2, "--json")
    assert result.exit_code == 0, result.stderr
    found = [line["loss"] for line in lines(result.stdout)]
    assert np.mean(found[16:]) < 0.6 * np.mean(found[:16])


# ---------------------------------------------------------------- data
def test_batches_cover_the_data_and_the_last_may_be_smaller(folder: Path) -> None:
    assert len(losses(folder)) == 3


def test_an_incomplete_batch_can_be_left_out(folder: Path) -> None:
    assert len(losses(folder, "--drop-last")) == 2


def test_seeds_decide_the_order(folder: Path) -> None:
    assert losses(folder) == losses(folder)
    assert losses(folder) != losses(folder, "--seed", 2)


def test_shuffled_epochs_differ_in_order(folder: Path) -> None:
    from fluidtool.training import Order

    order = Order(4)
    first, second = (np.concatenate(order.batches(ROWS, epoch)).tolist() for epoch in (0, 1))
    assert first != second and sorted(first) == sorted(second) == list(range(ROWS))
    assert np.concatenate(Order(4, shuffle=False).batches(ROWS, 1)).tolist() == list(range(ROWS))


def test_data_as_named_files(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "y.npy", Y)
    result = call("train", folder, "--data", f"x={tmp_path / 'a.npy'}", tmp_path / "y.npy", "--batch-size", 4, "--json")
    assert [line["loss"] for line in lines(result.stdout)] == losses(folder)


def test_data_as_a_folder(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    assert losses(folder, data=tmp_path) == losses(folder)


def test_files_for_the_same_inputs_are_put_together(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "1.npz", x=X[:6], y=Y[:6])
    np.savez(tmp_path / "2.npz", x=X[6:], y=Y[6:])
    args = ["train", folder, "--data", tmp_path / "1.npz", tmp_path / "2.npz", "--batch-size", 4, "--json"]
    assert [line["loss"] for line in lines(call(*args).stdout)] == losses(folder)


def test_a_declared_batch_size_is_taken(written: Path) -> None:
    result = call("train", written / "fixed", "--data", written / "fixed" / "data.npz", "--json")
    assert len(lines(result.stdout)) == ROWS / 5


# ---------------------------------------------------------------- what is shown and logged
def test_the_table_has_a_row_for_each_epoch(folder: Path) -> None:
    result = train(folder, "--epochs", 2)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["0", "3"], ["1", "3"]]


def test_lines_name_epoch_and_step(folder: Path) -> None:
    found = lines(train(folder, "--epochs", 2, "--json").stdout)
    assert [(line["epoch"], line["step"]) for line in found] == [(e, s) for e in range(2) for s in range(3)]
    assert all(line["examples_per_second"] > 0 for line in found)


def test_lines_have_what_is_fetched(folder: Path) -> None:
    found = lines(train(folder, "--json", "--fetch", "w", "learning_rate_0").stdout)
    assert np.shape(found[0]["fetch"]["w"]) == (3, 1)
    assert found[0]["fetch"]["learning_rate_0"] == [pytest.approx(0.05)]


def test_lines_for_every_second_step(folder: Path) -> None:
    assert [line["step"] for line in lines(train(folder, "--json", "--log-every", 2).stdout)] == [0, 2]


def test_the_log_has_the_lines_of_stdout(folder: Path, tmp_path: Path) -> None:
    result = train(folder, "--json", "--log", tmp_path / "log")
    assert (tmp_path / "log").read_text() == result.stdout


def test_another_loss_can_be_shown(folder: Path) -> None:
    assert losses(folder, "--loss", "square_error_cost_0.tmp_1", "--no-shuffle")[0] == pytest.approx(
        losses(folder, "--loss", "mean_0.tmp_0", "--no-shuffle")[0]
    )


# ---------------------------------------------------------------- what is saved
def test_all_that_persists_is_saved(folder: Path, tmp_path: Path) -> None:
    result = train(folder, "--save", tmp_path / "out")
    assert result.exit_code == 0 and "5 variables saved" in result.stderr
    assert everything_below(tmp_path / "out") == STATE


def test_saved_parameters_can_be_started_from(folder: Path, tmp_path: Path) -> None:
    train(folder, "--save", tmp_path / "out")
    result = train(folder, "--init", tmp_path / "out", "--json", "--fetch", "w", "--no-shuffle")
    assert "5 of 5 variables start from" in result.stderr
    assert lines(result.stdout)[0]["fetch"]["w"] != [[0.5]] * 3


def test_a_model_can_be_started_from() -> None:
    sample = SAMPLES / "digits_training"
    args = ["train", sample, "--data", sample / "data.npz", "--init", SAMPLES / "digits", "--json"]
    result = call(*args)
    assert "12 of 45 variables start from" in result.stderr
    assert lines(result.stdout)[0]["loss"] < 0.5, "a network that starts anew begins above 2"


def test_a_saved_inference_model_runs(folder: Path, tmp_path: Path) -> None:
    args = ["--save", tmp_path / "out", "--save-inference-model", tmp_path / "model", "--targets", "fc_0.tmp_1"]
    assert train(folder, *args).exit_code == 0
    model = load(tmp_path / "model")
    assert (model.feeds, model.fetches) == (["x"], ["fc_0.tmp_1"])
    weight, bias = (np.asarray(read_value(tmp_path / "out" / name)) for name in ("w", "fc_0.b_0"))
    kept = X * np.float32(0.7)  # dropout scales what it keeps when it predicts
    np.testing.assert_allclose(model.run({"x": X})["fc_0.tmp_1"].numpy(), kept @ weight + bias, rtol=1e-5, atol=1e-6)


def test_force_replaces_saved_parameters(folder: Path, tmp_path: Path) -> None:
    train(folder, "--save", tmp_path / "out")
    first = saved(tmp_path / "out")
    assert train(folder, "--save", tmp_path / "out", "--force", "--epochs", 2).exit_code == 0
    assert saved(tmp_path / "out") != first


# ---------------------------------------------------------------- checkpoints
def checkpointed(folder: Path, where: Path, *args: Any) -> Any:
    return train(folder, "--checkpoint", where, *args)


def test_resuming_gives_the_bits_of_an_unbroken_run(folder: Path, tmp_path: Path) -> None:
    train(folder, "--epochs", 4, "--save", tmp_path / "unbroken")
    checkpointed(folder, tmp_path / "c", "--epochs", 2)
    result = checkpointed(folder, tmp_path / "c", "--epochs", 4, "--resume", "--save", tmp_path / "resumed")
    assert "resumed after step 2 of epoch 1" in result.stderr
    assert saved(tmp_path / "resumed") == saved(tmp_path / "unbroken")


def test_resuming_within_an_epoch_gives_the_bits_of_an_unbroken_run(folder: Path, tmp_path: Path) -> None:
    train(folder, "--epochs", 2, "--save", tmp_path / "unbroken")
    checkpointed(folder, tmp_path / "c", "--epochs", 2, "--checkpoint-every", 4, "--keep", 9)
    last = checkpoints.checkpoint_dir(tmp_path / "c", 1)
    (last / checkpoints.MODEL_DIR / checkpoints.SUCCESS).unlink()
    result = checkpointed(folder, tmp_path / "c", "--epochs", 2, "--resume", "--save", tmp_path / "resumed")
    assert "resumed after step 0 of epoch 1" in result.stderr
    assert saved(tmp_path / "resumed") == saved(tmp_path / "unbroken")


def test_a_finished_training_has_nothing_left_to_do(folder: Path, tmp_path: Path) -> None:
    checkpointed(folder, tmp_path / "c")
    result = checkpointed(folder, tmp_path / "c", "--resume", "--json")
    assert (result.exit_code, result.stdout) == (0, "")


def test_resuming_without_a_checkpoint_begins(folder: Path, tmp_path: Path) -> None:
    result = checkpointed(folder, tmp_path / "c", "--resume")
    assert result.exit_code == 0 and "has no checkpoint yet" in result.stderr


@pytest.mark.parametrize(
    ("every", "steps"), [("2", ["1", "0", "2"]), ("3 steps", ["2", "2"]), ("2epochs", ["2"]), ("9epochs", ["2"])]
)
def test_checkpoints_are_due_after_steps_or_epochs_and_at_the_end(
    folder: Path, tmp_path: Path, every: str, steps: list[str]
) -> None:
    checkpointed(folder, tmp_path / "c", "--epochs", 2, "--checkpoint-every", every, "--keep", 9)
    found = [checkpoints.load_trainer_args(tmp_path / "c", n, 0, ["step_id"])[0] for n in range(len(steps))]
    assert checkpoints.serials(tmp_path / "c") == list(range(len(steps)))
    assert found == steps


def test_some_checkpoints_are_kept(folder: Path, tmp_path: Path) -> None:
    checkpointed(folder, tmp_path / "c", "--checkpoint-every", 1, "--keep", 2)
    assert checkpoints.serials(tmp_path / "c") == [1, 2]


def test_a_resumed_log_is_that_of_an_unbroken_run(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    checkpointed(folder, tmp_path / "c", "--log", log)
    with log.open("a") as file:
        file.write('{"epoch": 1, "step": 0, "loss": 1.0}\n{"epoch": 1, "st')  # what a killed run did after it
    checkpointed(folder, tmp_path / "c", "--log", log, "--resume", "--epochs", 2)
    unbroken = losses(folder, "--epochs", 2)
    assert [line["loss"] for line in lines(log.read_text())] == unbroken


def test_force_starts_anew(folder: Path, tmp_path: Path) -> None:
    checkpointed(folder, tmp_path / "c", "--epochs", 2)
    assert checkpointed(folder, tmp_path / "c", "--force").exit_code == 0
    assert checkpoints.serials(tmp_path / "c") == [0]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--batch-size", 5], "another batch size (4, now 5)"),
        (["--no-shuffle"], "another shuffle (True, now False)"),
        (["--seed", 2], "another seed (1, now 2)"),
        (["--drop-last"], "another drop last"),
    ],
)
def test_other_settings_cannot_go_on(folder: Path, tmp_path: Path, args: list[Any], what: str) -> None:
    checkpointed(folder, tmp_path / "c")
    assert what in refusal(folder, "--checkpoint", tmp_path / "c", "--resume", *args)


def test_another_program_cannot_go_on(written: Path, tmp_path: Path) -> None:
    checkpointed(written / "line", tmp_path / "c")
    assert "another main program" in refusal(written / "wild", "--checkpoint", tmp_path / "c", "--resume")


# ---------------------------------------------------------------- what cannot work
def test_a_loss_that_is_not_finite(written: Path, tmp_path: Path) -> None:
    text = refusal(written / "wild", "--epochs", 9, "--checkpoint", tmp_path / "c", "--save", tmp_path / "s", code=5)
    assert "the loss mean_0.tmp_0 is " in text and " of epoch " in text and "--allow-nan" in text
    assert not (tmp_path / "s").exists()


def test_a_loss_that_is_not_finite_can_be_allowed(written: Path) -> None:
    found = lines(train(written / "wild", "--epochs", 9, "--allow-nan", "--json").stdout)
    assert len(found) == 27 and found[-1]["loss"] in ("NaN", "Infinity")


def arrays(**changed: Any) -> dict[str, Any]:
    return {name: array for name, array in {"x": X, "y": Y, **changed}.items() if array is not None}


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (arrays(y=None), "no data for the input y; the inputs are x float32 (-1, 3), y float32 (-1, 1)"),
        (arrays(x=X[:, :2]), "input x takes shape (-1, 3) (-1: any size), found (4, 2)"),
        (arrays(x=X.astype("float64")), "input x takes float32, found float64"),
        (arrays(y=Y[:7]), "different numbers of examples: x 10, y 7"),
        (arrays(x=X[:0], y=Y[:0]), "the data has no examples"),
        (arrays(x=np.float32(1)), "the data of x is a single number"),
        (arrays(z=Y), "there is no input 'z'"),
        (arrays(w=X), "w is not an input"),
        ({"step0_feed0": X}, "step0_feed0 to step0_feed1"),
        ({"step1_feed0": X, "step1_feed1": Y}, "step0_feed0 to step0_feed1"),
    ],
)
def test_data_that_do_not_fit(folder: Path, tmp_path: Path, values: dict[str, Any], what: str) -> None:
    np.savez(tmp_path / "data.npz", **values)
    result = call("train", folder, "--data", tmp_path / "data.npz", *([] if "step" in what else ["--batch-size", 4]))
    assert result.exit_code == (3 if "step" in what else 2)
    assert what in error_of(result)


def test_files_that_do_not_fit_together(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", X)
    np.save(tmp_path / "2.npy", X[:, :2])
    result = call("train", folder, "--data", f"x={tmp_path / '1.npy'}", f"x={tmp_path / '2.npy'}")
    assert result.exit_code == 2 and "disagree on the data of the input x" in error_of(result)


def test_sequences_without_lengths(tmp_path: Path) -> None:
    source = corpus("train") / "bow_sparse_adam"
    np.savez(tmp_path / "data.npz", words=np.zeros((4, 1), "int64"), label=np.zeros((4, 1), "int64"))
    assert "words.lod in the .npz" in refusal(source, data=tmp_path / "data.npz")


def test_a_folder_without_data(folder: Path, tmp_path: Path) -> None:
    assert "has no NAME.npy for any input" in refusal(folder, data=tmp_path)


def test_a_missing_data_file(folder: Path, tmp_path: Path) -> None:
    assert "cannot read" in refusal(folder, data=tmp_path / "none.npz", code=3)


def test_batches_of_another_size_than_declared(written: Path) -> None:
    assert "declared for batches of 5" in refusal(written / "fixed")


def test_data_that_do_not_fill_declared_batches(written: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X[:7], y=Y[:7])
    result = call("train", written / "fixed", "--data", tmp_path / "data.npz")
    assert result.exit_code == 2 and "--drop-last" in error_of(result)


def test_a_batch_size_above_the_data(folder: Path) -> None:
    result = call("train", folder, "--data", folder / "data.npz", "--batch-size", 11, "--drop-last")
    assert result.exit_code == 2 and "do not fill one batch of 11" in error_of(result)


@pytest.fixture
def untrainable(folder: Path, tmp_path: Path) -> Path:
    """The forward pass alone, as a main program."""
    target = tmp_path / "forward"
    target.mkdir()
    program = fluid.Program.parse_from_string((folder / "main.pb").read_bytes())
    block = program.global_block()
    block.ops = [op for op in block.ops if not int(op.get_attr("op_role", 0)) & 3]
    (target / "main.pb").write_bytes(program.serialize_to_string())
    return target


def test_a_program_without_optimizer(untrainable: Path, folder: Path) -> None:
    assert "no optimizer operators" in refusal(untrainable, data=folder / "data.npz")


def test_a_folder_without_programs(tmp_path: Path, folder: Path) -> None:
    assert "has no main program" in refusal(tmp_path, data=folder / "data.npz", code=3)


def test_a_missing_folder(tmp_path: Path, folder: Path) -> None:
    assert "there are no programs at" in refusal(tmp_path / "none", data=folder / "data.npz", code=3)


@pytest.mark.parametrize("option", ["--main", "--startup"])
def test_a_missing_program(folder: Path, option: str) -> None:
    assert f"there is no {option.strip('-')} program other.pb" in refusal(folder, option, "other.pb", code=3)


def test_programs_by_other_names(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for old, new in (("main.pb", "a"), ("startup.pb", "b"), ("data.npz", "data.npz")):
        (tmp_path / "p" / new).write_bytes((folder / old).read_bytes())
    assert losses(tmp_path / "p", "--main", "a", "--startup", "b") == losses(folder)


def test_no_way_to_start(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "main.pb").write_bytes((folder / "main.pb").read_bytes())
    assert "neither a startup program nor parameters" in refusal(tmp_path, data=folder / "data.npz")


def test_parameters_of_another_shape(folder: Path) -> None:
    assert "fc_0.b_0 is declared (1,)" in refusal(folder, "--init", SAMPLES / "digits", code=3)


def test_a_model_with_other_parameters(folder: Path, tmp_path: Path) -> None:
    program = fluid.Program()
    program.global_block().create_var(name="q", shape=[1], dtype="float32", persistable=True)
    model = write_model(tmp_path / "other", program, q=np.ones(1, "float32"))
    assert "has no value for any variable" in refusal(folder, "--init", model, code=3)


def test_a_folder_without_parameters(folder: Path, tmp_path: Path) -> None:
    assert "has no parameters of the program, and no model" in refusal(folder, "--init", tmp_path, code=3)


def test_an_unknown_loss(folder: Path) -> None:
    assert "the loss mean_0.tmp_1: " in (text := refusal(folder, "--loss", "mean_0.tmp_1"))
    assert "did you mean mean_0.tmp_0" in text


def test_an_unknown_fetch(folder: Path) -> None:
    assert "cannot fetch acc" in refusal(folder, "--fetch", "acc")


def test_an_unknown_input(folder: Path) -> None:
    assert "'q' is not an input" in refusal(folder, "--inputs", "q")


def test_an_unknown_target(folder: Path, tmp_path: Path) -> None:
    text = refusal(folder, "--save-inference-model", tmp_path / "m", "--targets", "nothing")
    assert "no variable 'nothing'" in text


def test_targets_without_an_inference_model(folder: Path) -> None:
    assert "--save-inference-model" in refusal(folder, "--targets", "fc_0.tmp_1")


def test_an_inference_model_without_targets(folder: Path, tmp_path: Path) -> None:
    assert "--targets NAME" in refusal(folder, "--save-inference-model", tmp_path / "m")


def test_resuming_without_a_place(folder: Path) -> None:
    assert "--checkpoint DIR" in refusal(folder, "--resume")


@pytest.mark.parametrize("every", ["0", "x", "2 days"])
def test_checkpoints_at_odd_times(folder: Path, tmp_path: Path, every: str) -> None:
    assert "--checkpoint-every" in refusal(folder, "--checkpoint", tmp_path / "c", "--checkpoint-every", every)


def outputs(tmp_path: Path) -> Iterator[tuple[list[Any], Path]]:
    yield ["--save", tmp_path / "out"], tmp_path / "out" / "w"
    yield ["--save-inference-model", tmp_path / "model", "--targets", "fc_0.tmp_1"], tmp_path / "model" / "w"
    yield ["--log", tmp_path / "log"], tmp_path / "log"
    yield ["--checkpoint", tmp_path / "c"], tmp_path / "c" / "checkpoint_0" / "__model__" / "w"


@pytest.mark.parametrize("index", range(4))
def test_nothing_is_overwritten_without_force(folder: Path, tmp_path: Path, index: int) -> None:
    args, file = list(outputs(tmp_path))[index]
    assert train(folder, *args).exit_code == 0
    before = file.read_bytes()
    text = refusal(folder, *args, "--epochs", 2)
    assert ("already exists" in text or "already has checkpoints" in text) and "--force" in text
    assert file.read_bytes() == before


def test_a_folder_with_something_else_is_never_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    assert "contains more than parameters" in refusal(folder, "--save", tmp_path, "--force")
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_log_that_is_none_cannot_go_on(folder: Path, tmp_path: Path) -> None:
    checkpointed(folder, tmp_path / "c")
    (tmp_path / "log").write_text("hello\nyou\n")
    text = refusal(folder, "--checkpoint", tmp_path / "c", "--resume", "--log", tmp_path / "log", code=3)
    assert "line 1, is not a line of a training log" in text


def test_a_file_that_is_no_log_is_not_overwritten_by_a_resumed_training(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine\nand yours\n")
    text = refusal(folder, "--checkpoint", tmp_path / "c", "--resume", "--log", tmp_path / "notes", code=3)
    assert "not a line of a training log" in text
    assert (tmp_path / "notes").read_text() == "mine\nand yours\n"


@pytest.mark.parametrize("other", ["--save", "--checkpoint", "--log"])
def test_outputs_have_places_of_their_own(folder: Path, tmp_path: Path, other: str) -> None:
    model = ["--save-inference-model", tmp_path / "m", "--targets", "fc_0.tmp_1"]
    assert "must name different paths" in refusal(folder, *model, other, tmp_path / "m")


def test_a_checkpoint_survives_a_start_that_fails(folder: Path, tmp_path: Path) -> None:
    checkpointed(folder, tmp_path / "c")
    refusal(folder, "--checkpoint", tmp_path / "c", "--force", "--init", tmp_path / "none", code=3)
    assert checkpoints.serials(tmp_path / "c") == [0]


def test_a_damaged_checkpoint_is_refused(folder: Path, tmp_path: Path) -> None:
    checkpointed(folder, tmp_path / "c")
    file = tmp_path / "c" / "checkpoint_0" / "__model__" / "w"
    file.write_bytes(file.read_bytes()[:-3])
    assert "checkpoint_0" in refusal(folder, "--checkpoint", tmp_path / "c", "--resume", code=3)


def test_an_unknown_device(folder: Path) -> None:
    assert "--device must be cpu, gpu or gpu:N, found 'tpu'" in refusal(folder, "--device", "tpu")
