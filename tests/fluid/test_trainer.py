"""Trainer: events, metrics, what is saved, checkpoints and resuming (tests/faults kills trainings)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, FeedError, UnreadableError, UsageError
from fluidtool.fluid.trainer import Trainer, build_feed_var_list
from fluidtool.fluid.training_events import (
    BeginEpochEvent,
    BeginStepEvent,
    CheckpointConfig,
    EndEpochEvent,
    EndStepEvent,
)
from fluidtool.io import checkpoints

BATCHES = 4
FEED_ORDER = ["x", "y"]


def network() -> list[Any]:
    """A line through 3-vectors: [mean squared error, prediction]."""
    x = fluid.layers.data(name="x", shape=[3], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    predicted = fluid.layers.fc(
        x, size=1, param_attr=fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    )
    return [fluid.layers.mean(fluid.layers.square_error_cost(predicted, y)), predicted]


def momentum() -> Any:
    return fluid.optimizer.Momentum(learning_rate=0.05, momentum=0.9)


def reader() -> Iterator[list[tuple[list[float], list[float]]]]:
    numbers = np.random.default_rng(3).standard_normal((BATCHES, 5, 3))
    for batch in numbers:
        yield [(list(row), [float(row.sum())]) for row in batch]


def make(config: CheckpointConfig | None = None, **options: Any) -> Trainer:
    return Trainer(network, momentum, place=fluid.CPUPlace(), checkpoint_config=config, **options)


def weights(trainer: Trainer) -> np.ndarray[Any, Any]:
    found = trainer.scope.find_var("w")
    assert found is not None
    return np.array(found.get_tensor())


def ignore(event: Any) -> None:
    assert event is not None


def stop_at(trainer: Trainer, epoch: int, step: int) -> Any:
    """A handler that breaks off as a crash would, after this step's checkpoint."""

    def handler(event: Any) -> None:
        if isinstance(event, EndStepEvent) and (event.epoch, event.step) == (epoch, step):
            raise KeyboardInterrupt

    return handler


# ---------------------------------------------------------------- the loop
def test_events_come_in_order_with_their_numbers() -> None:
    seen: list[tuple[Any, ...]] = []

    def handler(event: Any) -> None:
        seen.append((type(event), event.epoch, *([event.step] if hasattr(event, "step") else [])))

    make().train(2, handler, reader, FEED_ORDER)
    steps = [[(BeginStepEvent, e, s), (EndStepEvent, e, s)] for e in range(2) for s in range(BATCHES)]
    flat = [event for pair in steps for event in pair]
    half = len(flat) // 2
    assert seen == [
        (BeginEpochEvent, 0), *flat[:half], (EndEpochEvent, 0),
        (BeginEpochEvent, 1), *flat[half:], (EndEpochEvent, 1),
    ]  # fmt: skip


def test_metrics_are_what_train_func_returned() -> None:
    shapes: list[list[tuple[int, ...]]] = []

    def handler(event: Any) -> None:
        if isinstance(event, EndStepEvent):
            shapes.append([value.shape for value in event.metrics])

    make().train(1, handler, reader, FEED_ORDER)
    assert shapes == [[(1,), (5, 1)]] * BATCHES


def test_a_handler_can_do_without_metrics() -> None:
    metrics: list[Any] = []

    def handler(event: Any) -> None:
        if isinstance(event, BeginStepEvent):
            event.fetch_metrics = event.step == 1
        elif isinstance(event, EndStepEvent):
            metrics.append(len(event.metrics))

    make().train(1, handler, reader, FEED_ORDER)
    assert metrics == [0, 2, 0, 0]


def test_training_lowers_the_loss_that_test_gives() -> None:
    trainer = make()
    before = trainer.test(reader, FEED_ORDER)[0]
    trainer.train(20, ignore, reader, FEED_ORDER)
    assert trainer.test(reader, FEED_ORDER)[0] < 0.01 * before


def test_test_does_not_train() -> None:
    trainer = make()
    trainer.test(reader, FEED_ORDER)
    assert (weights(trainer) == 0.5).all()


def test_stop_ends_before_the_next_step_and_without_the_epochs_end() -> None:
    trainer = make()
    seen: list[Any] = []

    def handler(event: Any) -> None:
        seen.append(type(event))
        if isinstance(event, EndStepEvent) and event.step == 1:
            trainer.stop()

    trainer.train(3, handler, reader, FEED_ORDER)
    assert seen == [BeginEpochEvent, BeginStepEvent, EndStepEvent, BeginStepEvent, EndStepEvent]


def test_training_in_parallel_gives_the_parameters_of_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    alone, parallel = make(), make(parallel=True)

    def pairs() -> Iterator[list[Any]]:
        batches = list(reader())
        yield batches[0] + batches[1]
        yield batches[2] + batches[3]

    alone.train(2, ignore, pairs, FEED_ORDER)
    parallel.train(2, ignore, reader, FEED_ORDER)
    np.testing.assert_allclose(weights(parallel), weights(alone), rtol=1e-5)


# ---------------------------------------------------------------- feed order
@pytest.mark.parametrize("order", [None, ["x", "y"], {"y": 1, "x": 0}])
def test_feed_orders_that_mean_x_then_y(order: Any) -> None:
    assert [var.name for var in build_feed_var_list(make().train_program, order)] == ["x", "y"]


def test_a_feed_order_that_is_no_permutation_is_refused() -> None:
    with pytest.raises(UsageError, match="should be a permutation"):
        build_feed_var_list(make().train_program, {"x": 0, "y": 2})


def test_a_feed_order_of_another_type_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="either None, list or dict"):
        build_feed_var_list(make().train_program, "x")


# ---------------------------------------------------------------- what is refused
def test_an_optimizer_func_must_return_an_optimizer() -> None:
    with pytest.raises(ArgumentTypeError, match="should be an instance of Optimizer"):
        Trainer(network, lambda: 0.1, place=fluid.CPUPlace())  # type: ignore[arg-type, return-value]


def test_a_train_func_must_return_variables() -> None:
    with pytest.raises(ArgumentTypeError, match="train_func must return the loss"):
        Trainer(lambda: None, momentum, place=fluid.CPUPlace())


def test_a_place_must_be_a_place() -> None:
    with pytest.raises(ArgumentTypeError, match="either CUDAPlace or CPUPlace"):
        Trainer(network, momentum, place="cpu")  # type: ignore[arg-type]


def test_training_needs_a_reader() -> None:
    with pytest.raises(ArgumentTypeError, match="takes a reader"):
        make().train(1, ignore)


def test_testing_needs_a_batch() -> None:
    with pytest.raises(FeedError, match="no mini-batch"):
        make().test(list, FEED_ORDER)


@pytest.mark.parametrize("name", ["max_num_checkpoints", "epoch_interval", "step_interval"])
def test_intervals_start_at_one(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} of CheckpointConfig must be at least 1"):
        CheckpointConfig(**{name: 0})  # type: ignore[arg-type]


def test_a_checkpoint_config_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="takes a CheckpointConfig"):
        make(str(tmp_path))  # type: ignore[arg-type]


# ---------------------------------------------------------------- saving
def test_a_trainer_starts_from_saved_parameters(tmp_path: Path) -> None:
    trainer = make()
    trainer.train(1, ignore, reader, FEED_ORDER)
    trainer.save_params(str(tmp_path / "model"))
    assert (weights(make(param_path=str(tmp_path / "model"))) == weights(trainer)).all()


def test_a_missing_param_path_is_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="is not a folder"):
        make(param_path=str(tmp_path / "none"))


def test_a_saved_inference_model_predicts(tmp_path: Path) -> None:
    trainer = make()
    trainer.train(1, ignore, reader, FEED_ORDER)
    trainer.save_inference_model(str(tmp_path), ["x"], [1])
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        (result,) = executor.run(program, {feeds[0]: np.eye(3, dtype="float32")}, fetches)
    bias = np.array(trainer.scope.find_var("fc_0.b_0").value)  # type: ignore[union-attr]
    np.testing.assert_array_equal(result, weights(trainer) + bias)


def test_an_inference_model_of_an_unknown_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="returned 2 variables"):
        make().save_inference_model(str(tmp_path), ["x"], [2])


# ---------------------------------------------------------------- checkpoints
def interrupted(folder: Path, epoch: int, step: int, **options: Any) -> None:
    trainer = make(CheckpointConfig(str(folder), step_interval=1, **options))
    with pytest.raises(KeyboardInterrupt):
        trainer.train(3, stop_at(trainer, epoch, step), reader, FEED_ORDER)


def test_only_the_latest_checkpoints_are_kept(tmp_path: Path) -> None:
    interrupted(tmp_path, 1, 2, max_num_checkpoints=2)
    assert checkpoints.serials(tmp_path) == [5, 6]


def test_the_intervals_say_when_checkpoints_are_saved(tmp_path: Path) -> None:
    trainer = make(CheckpointConfig(str(tmp_path), max_num_checkpoints=9, epoch_interval=2, step_interval=3))
    with pytest.raises(KeyboardInterrupt):
        trainer.train(3, stop_at(trainer, 2, 3), reader, FEED_ORDER)
    positions = [checkpoints.load_trainer_args(tmp_path, s, 0, ["epoch_id", "step_id"]) for s in range(4)]
    assert positions == [["0", "0"], ["0", "3"], ["2", "0"], ["2", "3"]]


def test_training_goes_on_after_the_step_of_the_checkpoint(tmp_path: Path) -> None:
    interrupted(tmp_path, 1, 2)
    steps: list[tuple[int, int]] = []

    def handler(event: Any) -> None:
        if isinstance(event, EndStepEvent):
            steps.append((event.epoch, event.step))

    make(CheckpointConfig(str(tmp_path))).train(3, handler, reader, FEED_ORDER)
    assert steps == [(1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_no_checkpoint_is_left_after_training(tmp_path: Path) -> None:
    make(CheckpointConfig(str(tmp_path), step_interval=1)).train(1, ignore, reader, FEED_ORDER)
    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_checkpoint_does_not_count(tmp_path: Path) -> None:
    interrupted(tmp_path, 1, 2)
    (tmp_path / "checkpoint_6" / checkpoints.MODEL_DIR / checkpoints.SUCCESS).unlink()
    config = CheckpointConfig(str(tmp_path))
    make(config)
    assert (config.load_serial, config.epoch_id, config.step_id) == (5, 1, 1)


def test_rotation_removes_incomplete_checkpoints_below_the_latest(tmp_path: Path) -> None:
    interrupted(tmp_path, 0, 2)
    (tmp_path / "checkpoint_0" / checkpoints.MODEL_DIR / checkpoints.SUCCESS).unlink()
    assert checkpoints.rotate(tmp_path, 3) == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint_1", "checkpoint_2"]


# ---------------------------------------------------------------- random numbers
def noisy() -> list[Any]:
    """`network` behind a dropout without a seed of its own."""
    x = fluid.layers.data(name="x", shape=[3], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    predicted = fluid.layers.fc(fluid.layers.dropout(x, dropout_prob=0.5), size=1, param_attr=attr)
    fluid.default_main_program().random_seed = 11  # at the end, or dropout would take it for a seed of its own
    return [fluid.layers.mean(fluid.layers.square_error_cost(predicted, y)), predicted]


def noisy_trainer(folder: Path | None, **options: Any) -> Trainer:
    config = CheckpointConfig(str(folder), step_interval=1) if folder else None
    return Trainer(noisy, momentum, place=fluid.CPUPlace(), checkpoint_config=config, **options)


def interrupt(trainer: Trainer, epoch: int, step: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        trainer.train(3, stop_at(trainer, epoch, step), reader, FEED_ORDER)


@pytest.mark.parametrize("parallel", [False, True])
def test_random_numbers_go_on_where_the_checkpoint_stands(
    tmp_path: Path, parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    unbroken = noisy_trainer(None, parallel=parallel)
    unbroken.train(3, ignore, reader, FEED_ORDER)
    interrupt(noisy_trainer(tmp_path, parallel=parallel), 1, 1)
    resumed = noisy_trainer(tmp_path, parallel=parallel)
    resumed.train(3, ignore, reader, FEED_ORDER)
    assert (weights(resumed) == weights(unbroken)).all()


def normalized() -> list[Any]:
    """`network` behind a batch_norm, whose statistics are each device's own."""
    x = fluid.layers.data(name="x", shape=[3], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    predicted = fluid.layers.fc(fluid.layers.batch_norm(x), size=1, param_attr=attr)
    return [fluid.layers.mean(fluid.layers.square_error_cost(predicted, y)), predicted]


def test_what_is_each_devices_own_goes_on_where_the_checkpoint_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPU_NUM", "2")

    def trainer(folder: Path | None) -> Trainer:
        config = CheckpointConfig(str(folder), step_interval=1) if folder else None
        return Trainer(normalized, momentum, place=fluid.CPUPlace(), parallel=True, checkpoint_config=config)

    def statistics(made: Trainer) -> list[Any]:
        scopes = made._executor.device_scopes(made._runnable(), made.scope)
        return [np.array(scope.find_var("batch_norm_0.w_1").value) for scope in scopes]  # type: ignore[union-attr]

    unbroken = trainer(None)
    unbroken.train(3, ignore, reader, FEED_ORDER)
    interrupt(trainer(tmp_path), 1, 1)
    resumed = trainer(tmp_path)
    resumed.train(3, ignore, reader, FEED_ORDER)
    first, second = statistics(unbroken)
    assert (first != second).any()
    np.testing.assert_array_equal(statistics(resumed), [first, second])


def test_a_checkpoint_without_random_state_is_read(tmp_path: Path) -> None:
    interrupt(noisy_trainer(tmp_path), 1, 1)
    for file in tmp_path.rglob(checkpoints.STATE):
        file.unlink()
    trainer = noisy_trainer(tmp_path)
    assert trainer.checkpoint_cfg is not None and trainer.checkpoint_cfg.epoch_id == 1


def test_a_damaged_random_state_is_refused(tmp_path: Path) -> None:
    interrupt(noisy_trainer(tmp_path), 1, 1)
    for file in tmp_path.rglob(checkpoints.STATE):
        file.write_text('{"random": [{"bit_generator": "MT19937"}]}')
    with pytest.raises(UnreadableError, match="random state cannot be used"):
        noisy_trainer(tmp_path)


def test_a_state_that_is_no_json_is_refused(tmp_path: Path) -> None:
    interrupt(noisy_trainer(tmp_path), 1, 1)
    for file in tmp_path.rglob(checkpoints.STATE):
        file.write_text("{")
    with pytest.raises(UnreadableError, match=checkpoints.STATE):
        noisy_trainer(tmp_path)


def test_random_state_of_another_number_of_devices_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    interrupt(noisy_trainer(tmp_path, parallel=True), 1, 1)
    with pytest.raises(UsageError, match="random state of 2 devices, but the training runs on 1"):
        noisy_trainer(tmp_path)
