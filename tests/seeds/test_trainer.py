"""`Trainer`, the four events, `CheckpointConfig` and `Inferencer` as documented."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import Trainer


def mlp(image: Any, layer_sizes: Any = (20, 10), activation: str = "relu", num_classes: int = 10) -> Any:
    hidden = image
    for layer_size in layer_sizes:
        hidden = fluid.layers.fc(input=hidden, size=layer_size, act=activation)
    return fluid.layers.fc(input=hidden, size=num_classes, act="softmax")


def train_mnist_mlp() -> Any:
    img = fluid.layers.data(name="image", shape=[784])
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    prediction = mlp(img)
    return fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))


def digits() -> Iterator[list[Any]]:
    """Two batches of images that light up where their label says."""
    for start in (0, 5):
        labels = range(start, start + 5)
        yield [(np.eye(784, dtype="float32")[label * 7] * 5, [label]) for label in labels]


@pytest.mark.parametrize("parallel", [False, True])
def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallel: bool) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    seen = []

    def optimizer() -> Any:
        return fluid.optimizer.Adam()

    trainer = Trainer(train_func=train_mnist_mlp, optimizer_func=optimizer, place=fluid.CPUPlace(), parallel=parallel)

    def train_callback(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            seen.append(("Epoch ID", event.epoch, "Step ID", event.step, "AvgLoss", float(np.mean(event.metrics[0]))))
        elif isinstance(event, fluid.EndEpochEvent):
            trainer.save_params(str(tmp_path / f"model_{event.epoch}"))

    untrained = trainer.test(reader=digits, feed_order=["image", "label"])
    trainer.train(num_epochs=3, event_handler=train_callback, reader=digits, feed_order=["image", "label"])
    assert [step[1:4:2] for step in seen] == (
        [(epoch, 0) for epoch in range(3)] if parallel else [(epoch, step) for epoch in range(3) for step in (0, 1)]
    )
    assert trainer.test(digits, ["image", "label"]) < untrained
    assert sorted(os.listdir(tmp_path)) == ["model_0", "model_1", "model_2"]
    assert {"fc_0.w_0", "fc_2.b_0"} <= set(os.listdir(tmp_path / "model_2"))


def test_the_arguments_and_their_defaults() -> None:
    def defaults(function: Any) -> dict[str, Any]:
        return {name: p.default for name, p in inspect.signature(function).parameters.items() if name != "self"}

    empty = inspect.Parameter.empty
    assert defaults(Trainer.__init__) == {
        "train_func": empty,
        "optimizer_func": empty,
        "param_path": None,
        "place": None,
        "parallel": False,
        "checkpoint_config": None,
    }
    assert defaults(Trainer.train) == {
        "num_epochs": empty,
        "event_handler": empty,
        "reader": None,
        "feed_order": None,
    }
    assert list(defaults(Trainer.test)) == ["reader", "feed_order"] and list(defaults(Trainer.stop)) == []
    assert list(defaults(Trainer.save_params)) == ["param_path"]
    assert list(defaults(fluid.Inferencer.__init__)) == ["infer_func", "param_path", "place", "parallel"]
    assert defaults(fluid.Inferencer.infer) == {"inputs": empty, "return_numpy": True}
    assert defaults(fluid.CheckpointConfig.__init__) == {
        "checkpoint_dir": None,
        "max_num_checkpoints": 3,
        "epoch_interval": 1,
        "step_interval": 10,
    }


def trainer_of(**options: Any) -> Trainer:
    return Trainer(train_mnist_mlp, lambda: fluid.optimizer.SGD(0.5), place=fluid.CPUPlace(), **options)


def test_without_feed_order_fields_go_to_the_variables_as_they_were_defined() -> None:
    trainer = trainer_of()
    trainer.train(1, lambda event: None, digits)
    assert trainer.test(digits, feed_order=None) == trainer.test(digits, ["image", "label"])


def test_the_loss_must_be_a_scalar() -> None:
    def no_scalar() -> Any:
        img = fluid.layers.data(name="image", shape=[784])
        label = fluid.layers.data(name="label", shape=[1], dtype="int64")
        return fluid.layers.cross_entropy(mlp(img), label)

    with pytest.raises(ValueError, match=r"The loss.shape should be"):
        Trainer(no_scalar, lambda: fluid.optimizer.SGD(0.1), place=fluid.CPUPlace())


def test_stop_ends_the_training() -> None:
    trainer, steps = trainer_of(), []

    def handler(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            steps.append(event.step)
            trainer.stop()

    trainer.train(5, handler, digits)
    assert steps == [0]


def test_the_metrics_are_in_the_order_of_train_func() -> None:
    def two() -> Any:
        loss = train_mnist_mlp()
        return [loss, fluid.layers.scale(loss, 2.0)]

    metrics: list[Any] = []

    def handler(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            metrics.extend(event.metrics)

    Trainer(two, lambda: fluid.optimizer.SGD(0.1), place=fluid.CPUPlace()).train(1, handler, digits)
    np.testing.assert_allclose(metrics[1], metrics[0] * 2, rtol=1e-6)


def test_a_trainer_starts_from_saved_parameters(tmp_path: Path) -> None:
    first = trainer_of()
    first.train(2, lambda event: None, digits)
    first.save_params(param_path=str(tmp_path / "saved"))
    second = trainer_of(param_path=str(tmp_path / "saved"))
    assert second.test(digits, ["image", "label"]) == first.test(digits, ["image", "label"])


# ---------------------------------------------------------------- events
def test_the_events() -> None:
    assert fluid.BeginEpochEvent(epoch_id=3).epoch == 3 and fluid.EndEpochEvent(epoch_id=4).epoch == 4
    begin = fluid.BeginStepEvent(epoch_id=1, step_id=2)
    assert (begin.epoch, begin.step, begin.fetch_metrics) == (1, 2, True)
    end = fluid.EndStepEvent(epoch_id=1, step_id=2, metrics=[0.5])
    assert (end.epoch, end.step, end.metrics) == (1, 2, [0.5])


def test_fetch_metrics_false_leaves_the_metrics_out() -> None:
    metrics = []

    def handler(event: Any) -> None:
        if isinstance(event, fluid.BeginStepEvent):
            event.fetch_metrics = event.step == 0
        if isinstance(event, fluid.EndStepEvent):
            metrics.append(len(event.metrics))

    trainer_of().train(1, handler, digits)
    assert metrics == [1, 0]


# ---------------------------------------------------------------- checkpoints
def test_the_example_of_checkpoints(tmp_path: Path) -> None:
    config = fluid.CheckpointConfig(str(tmp_path / "checkpoints"))
    trainer = fluid.Trainer(
        train_func=train_mnist_mlp,
        place=fluid.CPUPlace(),
        optimizer_func=lambda: fluid.optimizer.SGD(0.1),
        checkpoint_config=config,
    )
    found: list[list[str]] = []

    def handler(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            found.append(sorted(os.listdir(tmp_path / "checkpoints")))

    trainer.train(1, handler, digits)
    assert found[0] == ["checkpoint_0"] and os.listdir(tmp_path / "checkpoints") == []


def test_the_numbers_of_a_checkpoint_config(tmp_path: Path) -> None:
    config = fluid.CheckpointConfig(
        checkpoint_dir=str(tmp_path), max_num_checkpoints=2, epoch_interval=2, step_interval=1
    )
    found: list[list[str]] = []

    def handler(event: Any) -> None:
        if isinstance(event, fluid.EndStepEvent):
            found.append(sorted(os.listdir(tmp_path)))

    trainer_of(checkpoint_config=config).train(3, handler, digits)
    zero, one = ["checkpoint_0"], ["checkpoint_0", "checkpoint_1"]
    assert found == [zero, one, one, one, ["checkpoint_1", "checkpoint_2"], ["checkpoint_2", "checkpoint_3"]]


def test_checkpoints_go_to_the_current_directory_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fluid.CheckpointConfig().checkpoint_dir == str(tmp_path)


# ---------------------------------------------------------------- Inferencer
def test_the_example_of_the_inferencer(tmp_path: Path) -> None:
    def inference_program() -> Any:
        x = fluid.layers.data(name="x", shape=[13], dtype="float32")
        y_predict = fluid.layers.fc(input=x, size=1, act=None)
        return y_predict

    def train_program() -> Any:
        y = fluid.layers.data(name="y", shape=[1], dtype="float32")
        return fluid.layers.mean(fluid.layers.square_error_cost(inference_program(), y))

    Trainer(train_program, lambda: fluid.optimizer.SGD(0.01), place=fluid.CPUPlace()).save_params(str(tmp_path))

    place = fluid.CPUPlace()
    inferencer = fluid.Inferencer(infer_func=inference_program, param_path=str(tmp_path), place=place)
    batch_size = 10
    tensor_x = numpy.random.uniform(0, 10, [batch_size, 13]).astype("float32")
    results = inferencer.infer({"x": tensor_x})
    assert len(results) == 1 and results[0].shape == (10, 1)
    (tensor,) = inferencer.infer(inputs={"x": tensor_x}, return_numpy=False)
    assert isinstance(tensor, fluid.LoDTensor)
    np.testing.assert_array_equal(np.array(tensor), results[0])


def test_an_inferencer_in_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    trainer_of().save_params(str(tmp_path))

    def infer() -> Any:
        return mlp(fluid.layers.data(name="image", shape=[784]))

    images = np.random.default_rng(0).random((6, 784), dtype="float32")
    both = [
        fluid.Inferencer(infer, str(tmp_path), place=fluid.CPUPlace(), parallel=parallel).infer({"image": images})[0]
        for parallel in (False, True)
    ]
    np.testing.assert_allclose(both[1], both[0], rtol=3e-6)


def test_inputs_are_a_map(tmp_path: Path) -> None:
    trainer_of().save_params(str(tmp_path))
    inferencer = fluid.Inferencer(lambda: mlp(fluid.layers.data("image", [784])), str(tmp_path), place=fluid.CPUPlace())
    with pytest.raises(ValueError, match="inputs should be a map"):
        inferencer.infer([1])  # type: ignore[arg-type]
