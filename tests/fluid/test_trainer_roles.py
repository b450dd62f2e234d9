"""Trainer as one process of several: roles by environment, programs, parameters to start from, refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.launch.contract import ROLE_VARIABLES, Cluster, Member, role_environment
from fluidtool.distribute.launch.ports import free_endpoints
from fluidtool.errors import UsageError
from fluidtool.fluid.trainer import Trainer
from fluidtool.fluid.training_events import CheckpointConfig, EndStepEvent

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
BATCHES = 4


@pytest.fixture(autouse=True)
def no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ROLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def play(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def network() -> list[Any]:
    x = fluid.layers.data(name="x", shape=[3], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.5))
    predicted = fluid.layers.fc(x, size=1, param_attr=attr)
    return [fluid.layers.mean(fluid.layers.square_error_cost(predicted, y)), predicted]


def reader() -> Iterator[list[tuple[list[float], list[float]]]]:
    numbers = np.random.default_rng(3).standard_normal((BATCHES, 5, 3))
    for batch in numbers:
        yield [(list(row), [float(row.sum())]) for row in batch]


def make(**options: Any) -> Trainer:
    return Trainer(network, lambda: fluid.optimizer.SGD(0.05), place=fluid.CPUPlace(), **options)


def weight(trainer: Trainer) -> Any:
    return np.array(trainer.scope.find_var("w").get_tensor())  # type: ignore[union-attr]


def alone() -> tuple[list[float], Any]:
    losses: list[float] = []
    trainer = make()
    trainer.train(2, lambda event: note(event, losses), reader, ["x", "y"])
    return losses, weight(trainer)


def note(event: Any, losses: list[float]) -> None:
    if isinstance(event, EndStepEvent):
        losses.append(float(np.ravel(event.metrics[0])[0]))


# ---------------------------------------------------------------- a server and a trainer
def test_a_server_and_a_trainer_learn_what_one_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, learnt = alone()
    cluster = Cluster(free_endpoints(1), 1)
    play(monkeypatch, role_environment(cluster, Member("pserver", 0, cluster.servers[0])))
    server = make()
    assert [op.type for op in server.train_program.global_block().ops] == ["listen_and_serv"]
    serving = threading.Thread(target=lambda: server.train(1, print), daemon=True)
    serving.start()
    play(monkeypatch, role_environment(cluster, Member("trainer", 0)))
    losses: list[float] = []
    trainer = make()
    trainer.train(2, lambda event: note(event, losses), reader, ["x", "y"])
    serving.join(30)
    assert not serving.is_alive()
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(weight(trainer), learnt, rtol=0, atol=1e-6)
    with pytest.raises(UsageError, match="has already trained"):
        trainer.train(1, print, reader, ["x", "y"])
    assert len(trainer.test(reader, ["x", "y"])) == 2


def test_a_server_starts_from_saved_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trainer = make()
    trainer.train(1, lambda event: None, reader, ["x", "y"])
    trainer.save_params(str(tmp_path))
    endpoint = "127.0.0.1:6174"
    play(monkeypatch, role_environment(Cluster((endpoint,), 1), Member("pserver", 0, endpoint)))
    assert (weight(make(param_path=str(tmp_path))) == weight(trainer)).all()


def test_a_trainer_of_the_2018_examples_is_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"PADDLE_PSERVER_IPS": "127.0.0.1", "PADDLE_PSERVER_PORT": "6174", "PADDLE_TRAINERS": "2"}
    play(monkeypatch, {**names, "PADDLE_CURRENT_IP": "127.0.0.1", "PADDLE_TRAINING_ROLE": "PSERVER"})
    serving = make().train_program.global_block().ops[0]
    assert (serving.attr("endpoint"), serving.attr("Fanin")) == ("127.0.0.1:6174", 2)


# ---------------------------------------------------------------- refusals
def test_an_unknown_role_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, {"PADDLE_TRAINING_ROLE": "MASTER"})
    with pytest.raises(UsageError, match="TRAINER or PSERVER"):
        make()


def test_a_role_without_a_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, {"PADDLE_TRAINING_ROLE": "TRAINER"})
    with pytest.raises(UsageError, match="its job is not known"):
        make()


def test_a_checkpoint_config_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endpoint = "127.0.0.1:6174"
    play(monkeypatch, role_environment(Cluster((endpoint,), 1), Member("pserver", 0, endpoint)))
    with pytest.warns(UserWarning, match="launch --checkpoint"):
        make(checkpoint_config=CheckpointConfig(str(tmp_path)))
