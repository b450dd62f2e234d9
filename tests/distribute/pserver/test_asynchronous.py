"""Asynchronous, half-asynchronous and geo servers, driven by calls as a transport makes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute import checkpoints
from fluidtool.distribute.pserver.ledger import ledger_of
from fluidtool.distribute.pserver.updated_rows import UpdatedRows
from fluidtool.distribute.rpc.handler import NUMBERED, Call, Gone, Message, NotFound, Refused
from fluidtool.distribute.rpc.methods import POSITION
from fluidtool.errors import UnreadableError
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.distribute.pserver.support import Trainer, line, rows, running, server_role, start, table, together, until

Patch = pytest.MonkeyPatch
MODES: dict[str, dict[str, Any]] = {"async": {"runtime_split": True}, "half-async": {}}
EVERY_MODE = pytest.mark.parametrize("mode", MODES)


def asynchronous(monkeypatch: Patch, programs: Any = None, trainers: int = 2, **options: Any) -> Any:
    role = server_role(programs or line(), trainers, sync=False, **options)
    return running(role.main, start(role), monkeypatch)


def ones(value: float) -> Any:
    return np.full((4, 1), value)


@EVERY_MODE
def test_a_gradient_is_applied_as_it_comes(monkeypatch: Patch, mode: str) -> None:
    with asynchronous(monkeypatch, **MODES[mode]) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        a.send("w@GRAD", ones(1.0))
        assert a.get("w")[0, 0] == pytest.approx(0.4)
        b.send("w@GRAD", ones(2.0))
        assert a.get("w")[0, 0] == b.get("w")[0, 0] == pytest.approx(0.2)
        assert a.get("b")[0] == 0.25


@pytest.mark.parametrize("name", ["w@GRAD@PIECE@0", "w@GRAD@PIECE@11"])
def test_a_shard_is_applied_like_the_whole(monkeypatch: Patch, name: str) -> None:
    with asynchronous(monkeypatch) as server:
        Trainer(server.handler, 0).send(name, ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.4)


def test_no_update_is_lost_when_many_come_at_once(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch, trainers=4) as server:

        def train(number: int) -> None:
            trainer = Trainer(server.handler, number)
            for _ in range(50):
                trainer.send("w@GRAD", ones(0.01))
                trainer.get("w")

        together(*(lambda number=number: train(number) for number in range(4)))
        np.testing.assert_allclose(server.value("w"), 0.5 - 0.1 * 0.01 * 200, rtol=1e-4)
        assert server.handler.step == 100  # w alone was sent, b was not


def test_accumulators_move_with_every_gradient(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch, line(lambda: fluid.optimizer.Adam(0.1))) as server:
        trainer = Trainer(server.handler, 0)
        for _ in range(3):
            trainer.send("w@GRAD", ones(1.0))
        np.testing.assert_allclose(server.value("w"), 0.5 - 0.3, rtol=1e-4)
        (power,) = [name for name in server.scope.local_var_names() if "beta1_pow" in name and name.startswith("w")]
        assert server.value(power)[0] == pytest.approx(0.9**4)


def test_the_server_leaves_when_the_last_trainer_completes(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        a.complete()
        a.complete()  # a repetition
        assert server.thread.is_alive()
        b.complete()
        server.wait()


@pytest.mark.parametrize("own", [True, False])
def test_fetch_barriers_mean_nothing_and_send_barriers_are_an_error(monkeypatch: Patch, own: bool) -> None:
    with asynchronous(monkeypatch) as server:
        trainer = Trainer(server.handler, 0, own)
        trainer.fetched()
        with pytest.raises(Refused, match=r"asynchronous and takes no barriers.*same sync_mode"):
            trainer.barrier()


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("w", ones(1.0), NotFound),
        ("w@GRAD.trainer_0", ones(1.0), NotFound),
        ("w@GRAD", np.ones((4, 2)), Refused),
        ("w@GRAD", LoDTensor(np.ones((4, 1), np.int64)), Refused),
    ],
)
def test_what_was_not_declared_is_refused_and_the_server_goes_on(
    monkeypatch: Patch, name: str, value: Any, kind: Any
) -> None:
    with asynchronous(monkeypatch) as server:
        trainer = Trainer(server.handler, 0)
        with pytest.raises(kind):
            trainer.send(name, value)
        trainer.send("w@GRAD", ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.4)


def test_a_silent_trainer_ends_the_run(monkeypatch: Patch) -> None:
    monkeypatch.setenv("FLAGS_worker_update_interval_secs", "1")
    with asynchronous(monkeypatch) as server:
        Trainer(server.handler, 0).complete()
        Trainer(server.handler, 1).send("w@GRAD", ones(1.0))
        with pytest.raises(Gone, match=r"trainer 1 .*has been silent.*FLAGS_worker_update_interval_secs"):
            server.wait()


def test_a_trainer_that_was_restarted_comes_back(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fluidtool.distribute.pserver.limits.VANISHED", 0.1)
    with asynchronous(monkeypatch) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        b.step = NUMBERED + 1
        for _ in range(5):
            b.send("w@GRAD", ones(0.1))
            b.fetched()
        server.handler.lost(1)
        time.sleep(0.6)
        again = Trainer(server.handler, 1, step=NUMBERED + 6)
        assert again.get("w")[0, 0] == pytest.approx(0.45)
        again.send("w@GRAD", ones(0.1))
        a.complete()
        again.complete()
        server.wait()


# ---------------------------------------------------------------- exactly once
@contextmanager
def saved_after(monkeypatch: Patch, folder: Path, count: int, programs: Any = None) -> Iterator[Any]:
    """A server that saves a checkpoint after so many steps."""
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", str(count))
    with asynchronous(monkeypatch, programs) as server:
        yield server
        until(lambda: checkpoints.steps(folder, "pserver_0") == [0, count])


def position(trainer: Trainer) -> int:
    found = trainer.handler.get_without_barrier(Message(POSITION), trainer.call)
    assert isinstance(found, LoDTensor)
    return int(found.numpy()[0])


def test_an_update_of_a_numbered_step_counts_once(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch) as server:
        first = Trainer(server.handler, 0, step=NUMBERED + 1)
        first.send("w@GRAD", ones(1.0))
        again = Trainer(server.handler, 0, step=NUMBERED + 1)  # it was restarted, and computes the step again
        again.send("w@GRAD", ones(1.0))
        again.send("b@GRAD", [1.0])
        assert server.value("w")[0, 0] == pytest.approx(0.4) and server.value("b")[0] == pytest.approx(0.15)
        again.fetched()
        again.send("w@GRAD", ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.3) and position(again) == 1


def test_each_trainer_has_its_own_steps(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch) as server:
        for number in range(2):
            Trainer(server.handler, number, step=NUMBERED + 1).send("w@GRAD", ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.3)


def test_steps_that_nobody_numbers_count_as_often_as_they_come(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch) as server:
        for trainer in (Trainer(server.handler, 0, own=False), Trainer(server.handler, 0)):
            trainer.send("w@GRAD", ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.3)


def test_an_update_that_failed_may_come_again(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch) as server:
        trainer = Trainer(server.handler, 0, step=NUMBERED + 1)
        with pytest.raises(Refused):
            trainer.send("w@GRAD", np.ones((4, 2)))
        trainer.send("w@GRAD", ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.4)


def test_a_restored_server_knows_what_its_values_contain(monkeypatch: Patch, tmp_path: Path) -> None:
    with saved_after(monkeypatch, tmp_path, 2) as server:
        trainer = Trainer(server.handler, 0, step=NUMBERED + 1)
        for name, value in (("w@GRAD", ones(1.0)), ("b@GRAD", [1.0])):
            trainer.send(name, value)
        trainer.fetched()
        trainer.send("w@GRAD", ones(1.0))
        trainer.send("w@GRAD", ones(1.0))
        Trainer(server.handler, 1, step=NUMBERED + 1).send("b@GRAD", [1.0])
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", "2")
    with asynchronous(monkeypatch) as server:
        again = Trainer(server.handler, 0, step=NUMBERED + 2)
        assert position(again) == 1 and position(Trainer(server.handler, 1)) == 0
        again.send("w@GRAD", ones(1.0))
        Trainer(server.handler, 1, step=NUMBERED + 1).send("b@GRAD", [1.0])
        assert server.value("w")[0, 0] == pytest.approx(0.3) and server.value("b")[0] == pytest.approx(0.05)
        again.send("b@GRAD", [1.0])
        assert server.value("b")[0] == pytest.approx(-0.05)


def test_when_the_last_trainer_is_done_the_values_are_saved(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "100")
    with asynchronous(monkeypatch, trainers=1) as server:
        trainer = Trainer(server.handler, 0, step=NUMBERED + 1)
        for _ in range(3):
            trainer.send("w@GRAD", ones(1.0))
            trainer.fetched()
        trainer.complete()
        server.wait()
    _, step = checkpoints.steps(tmp_path, "pserver_0")
    found = checkpoints.load(tmp_path, "pserver_0", step)
    assert found.values["w"].numpy()[0, 0] == pytest.approx(0.2)  # type: ignore[union-attr]
    assert found.state == {"ledger": {"0": {"whole": 3, "names": []}}}


def test_a_server_that_is_restarted_before_its_first_checkpoint_begins_with_the_same_values(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("FLUIDTOOL_CHECKPOINT_EVERY", "100")
    with asynchronous(monkeypatch) as server:
        begun = server.value("w")
        Trainer(server.handler, 0, step=NUMBERED + 1).send("w@GRAD", ones(1.0))
        assert (server.value("w") != begun).any()
    assert checkpoints.steps(tmp_path, "pserver_0") == [0]
    checkpoint = checkpoints.load(tmp_path, "pserver_0", 0)
    other = {name: LoDTensor(value.numpy() + 3) for name, value in checkpoint.values.items()}  # as if it were random
    checkpoints.save(tmp_path, "pserver_0", 0, other, checkpoint.state)
    monkeypatch.setenv("FLUIDTOOL_RESUME_STEP", "0")
    with asynchronous(monkeypatch) as server:
        np.testing.assert_array_equal(server.value("w"), begun + 3)


def test_a_trainer_that_is_ahead_of_a_restored_server_is_refused(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch) as server:
        ahead = Trainer(server.handler, 0, step=NUMBERED + 7)
        for call in (lambda: ahead.send("w@GRAD", ones(1.0)), ahead.fetched):
            with pytest.raises(Refused, match=r"trainer 0 is in step 7, .* only up to step 0.*restart the trainer"):
                call()
        assert server.value("w")[0, 0] == pytest.approx(0.5)


def test_counted_steps_count_once(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch, line(decayed)) as server:
        trainer = Trainer(server.handler, 0, step=NUMBERED + 1)
        message = Message("@LR_DECAY_COUNTER@.trainer_0", LoDTensor(np.array([1], np.int64)))
        for _ in range(2):
            server.handler.notify(message, trainer.call)
        assert server.value("@LR_DECAY_COUNTER@.trainer_0")[0] == 2  # Paddle starts it at 1


@pytest.mark.parametrize("state", [{"x": {}}, {"0": {"whole": 1}}, {"0": 3}, []])
def test_a_damaged_ledger_is_an_error(state: Any) -> None:
    with pytest.raises(UnreadableError, match="ledger of a checkpoint is damaged"):
        ledger_of(state)


# ---------------------------------------------------------------- learning rates
def decayed() -> Any:
    rate = fluid.layers.exponential_decay(0.1, 1, 0.5, staircase=True)
    return fluid.optimizer.SGD(rate)


def test_learning_rates_follow_the_steps_that_trainers_count(monkeypatch: Patch) -> None:
    """Paddle starts the counter of each trainer at 1."""
    with asynchronous(monkeypatch, line(decayed)) as server:
        trainers = Trainer(server.handler, 0), Trainer(server.handler, 1)
        counter = "@LR_DECAY_COUNTER@.trainer_"
        trainers[0].send("w@GRAD", ones(1.0))
        moved = [float(server.value("w")[0, 0])]
        for trainer in trainers:
            steps = LoDTensor(np.array([1], np.int64))
            server.handler.notify(Message(counter + str(trainer.number), steps), trainer.call)
            trainer.send("w@GRAD", ones(1.0))
            moved.append(float(server.value("w")[0, 0]))
        np.testing.assert_allclose(-np.diff([0.5, *moved]), [0.025, 0.0125, 0.00625], rtol=1e-5)


@pytest.mark.parametrize("name", ["w", "@LR_DECAY_COUNTER@.trainer_9", "@LR_DECAY_COUNTER@.trainer_0"])
def test_counts_that_nobody_keeps_are_refused(monkeypatch: Patch, name: str) -> None:
    value = LoDTensor(np.array([1], np.float32))
    with asynchronous(monkeypatch, line(decayed)) as server, pytest.raises((NotFound, Refused)):
        server.handler.notify(Message(name, value), Call())


def test_counts_are_refused_where_no_rate_decays(monkeypatch: Patch) -> None:
    message = Message("@LR_DECAY_COUNTER@.trainer_0", LoDTensor(np.array([1], np.int64)))
    with asynchronous(monkeypatch) as server, pytest.raises(Refused, match="no decaying learning rate"):
        server.handler.notify(message, Call())


# ---------------------------------------------------------------- delay compensation
@pytest.mark.parametrize("own", [True, False])
def test_late_gradients_are_compensated_by_what_the_trainer_was_given(monkeypatch: Patch, own: bool) -> None:
    with asynchronous(monkeypatch, dc_asgd=True) as server:
        a, b = Trainer(server.handler, 0, own), Trainer(server.handler, 1, own)
        given = a.get("w")[0, 0]
        b.get("w")
        b.send("w@GRAD", ones(2.0))
        now = b.get("w")[0, 0]
        assert now == pytest.approx(0.3)
        a.send("w@GRAD", ones(1.0))
        assert b.get("w")[0, 0] == pytest.approx(now - 0.1 * (1.0 + 1.0 * 1.0 * (now - given)), rel=1e-5)


def test_before_a_trainer_was_given_anything_there_is_nothing_to_compensate(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch, dc_asgd=True) as server:
        a = Trainer(server.handler, 0)
        a.send("w@GRAD", ones(1.0))
        assert server.value("w")[0, 0] == pytest.approx(0.4)


# ---------------------------------------------------------------- geo
def test_changes_of_parameters_are_added(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch, geo=True) as server:
        a = Trainer(server.handler, 0)
        a.send("w.delta", ones(0.25))
        a.send("w.delta@PIECE@1", ones(0.25))
        assert a.get("w")[0, 0] == pytest.approx(1.0)


def test_a_trainer_gets_the_rows_that_changed_since_it_asked(monkeypatch: Patch) -> None:
    with asynchronous(monkeypatch, table(), geo=True) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        a.send("emb.delta", rows([3, 7], np.ones((2, 4))))
        found = b.get("emb", table_name="emb")
        assert isinstance(found, SelectedRows) and found.rows() == [3, 7] and found.height() == 10
        np.testing.assert_array_equal(found.value, np.full((2, 4), 2.0))
        b.send("emb.delta", rows([7, 9], np.ones((2, 4))))
        assert b.get("emb", table_name="emb").rows() == [7, 9]
        found = a.get("emb", table_name="emb")
        assert found.rows() == [3, 7, 9]
        np.testing.assert_array_equal(found.value[:, 0], [2.0, 3.0, 2.0])
        assert a.get("emb", table_name="emb").rows() == []
        assert a.get("emb").shape == (10, 4)


def test_after_a_restart_every_row_is_news() -> None:
    assert UpdatedRows(4, 2, all_new=True).take(1).tolist() == [0, 1, 2, 3]
    assert UpdatedRows(4, 2).take(1).tolist() == []
