"""Rounds of a synchronous server, driven by calls as a transport makes them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.pserver.rounds import Phase
from fluidtool.distribute.rpc.handler import Call, Gone, Late, Message, NotFound, Refused
from fluidtool.errors import FluidError
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.streams import read_selected_rows
from tests.distribute.pserver.support import (
    Running,
    Several,
    Trainer,
    line,
    rows,
    running,
    server_role,
    start,
    table,
    together,
    until,
)

Patch = pytest.MonkeyPatch
OWN = pytest.mark.parametrize("own", [True, False], ids=["fluidtool's trainers", "Paddle's trainers"])


def sync(monkeypatch: Patch, programs: Any = None, trainers: int = 2, **options: Any) -> Any:
    role = server_role(programs or line(), trainers, **options)
    return running(role.main, start(role), monkeypatch)


def pair(server: Running, own: bool = True) -> tuple[Trainer, Trainer]:
    return Trainer(server.handler, 0, own), Trainer(server.handler, 1, own)


def begin(*trainers: Trainer) -> None:
    """The fetch of the startup programs."""
    for trainer in trainers:
        trainer.get("w")
        trainer.fetched()


def send(trainer: Trainer, weight: float, bias: float = 0.0) -> None:
    """Send gradients of one number."""
    suffix = f".trainer_{trainer.number}" if trainer.handler.roster.trainers > 1 else ""
    trainer.send(f"w@GRAD{suffix}", np.full((4, 1), weight))
    trainer.send(f"b@GRAD{suffix}", [bias])


def step(trainer: Trainer, weight: float) -> Any:
    """A whole step; the weight afterwards."""
    send(trainer, weight)
    trainer.barrier()
    found = trainer.get("w")
    trainer.fetched()
    return found.ravel()[0]


# ---------------------------------------------------------------- rounds
@OWN
def test_the_mean_of_all_gradients_updates_a_parameter(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server, own)
        begin(a, b)
        found: dict[int, Any] = {}
        together(lambda: found.update({0: step(a, 1.0)}), lambda: found.update({1: step(b, 3.0)}))
        assert found[0] == found[1] == pytest.approx(0.5 - 0.1 * 2.0)


@OWN
def test_the_server_leaves_when_the_last_trainer_completes(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server, own)
        begin(a, b)
        a.complete()
        assert server.thread.is_alive()
        b.complete()
        server.wait()


@OWN
def test_what_a_completed_trainer_sent_counts_no_more_and_the_factor_stays(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server, own)
        begin(a, b)
        together(lambda: step(a, 4.5), lambda: (step(b, 17.0), b.complete()))
        assert server.value("w")[0, 0] == pytest.approx(-0.575)
        assert step(a, -5.4) == pytest.approx(-0.305)  # half of the one gradient: the factor is that of two trainers
        assert step(a, 0.0) == pytest.approx(-0.305)
        a.complete()
        server.wait()


@OWN
def test_a_trainer_may_complete_before_the_first_step(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server, own)
        begin(a, b)
        b.complete()
        assert step(a, 2.0) == pytest.approx(0.5 - 0.1)
        a.complete()
        server.wait()


def test_gradients_of_a_trainer_that_completes_within_a_step_are_dropped(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        send(b, 100.0)
        b.complete()
        assert step(a, 2.0) == pytest.approx(0.5 - 0.1)


def test_gradients_of_a_trainer_that_completes_after_its_barrier_count(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        send(b, 4.0)
        b.barrier()
        b.complete()
        assert step(a, 2.0) == pytest.approx(0.5 - 0.3)


@OWN
def test_one_trainer_alone_works(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch, trainers=1) as server:
        trainer = Trainer(server.handler, 0, own)
        begin(trainer)
        assert step(trainer, 1.0) == pytest.approx(0.4)
        assert step(trainer, 1.0) == pytest.approx(0.3)
        trainer.complete()
        server.wait()


def test_a_gradient_that_nobody_sent_moves_nothing(monkeypatch: Patch) -> None:
    with sync(monkeypatch, line(lambda: fluid.optimizer.Momentum(0.1, 0.9))) as server:
        a, b = pair(server)
        begin(a, b)
        together(lambda: step(a, 1.0), lambda: step(b, 1.0))
        before = server.value("b")
        a.send("w@GRAD.trainer_0", np.ones((4, 1)))
        together(a.barrier, b.barrier)
        assert a.get("w").ravel()[0] < 0.4
        np.testing.assert_array_equal(a.get("b"), before)


# ---------------------------------------------------------------- who waits for whom
def test_nobody_gets_parameters_before_all_have_sent(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        send(a, 1.0)
        a.barrier()
        found: list[Any] = []
        waiting = Several(lambda: found.append(a.get("w")))
        until(lambda: bool(server.handler._waiting))
        assert not found
        send(b, 1.0)
        b.barrier()
        waiting.join()
        assert found[0].ravel()[0] == pytest.approx(0.4)


def test_a_gradient_that_comes_early_counts_in_the_next_round(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        a.get("w")
        a.fetched()
        send(a, 1.0)  # b has not fetched what it starts from
        barrier = Several(a.barrier)
        until(lambda: bool(server.handler._waiting))
        begin(b)
        barrier.join()
        assert step(b, 3.0) == pytest.approx(0.5 - 0.2)


def test_a_fast_trainer_may_be_in_the_next_step_before_a_slow_one_has_fetched(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        together(lambda: (send(a, 1.0), a.barrier()), lambda: (send(b, 1.0), b.barrier()))
        a.get("w")
        a.fetched()
        send(a, 1.0)
        next_barrier = Several(a.barrier)
        assert b.get("w").ravel()[0] == pytest.approx(0.4)  # still that of the first round
        b.fetched()
        next_barrier.join()
        assert step(b, 1.0) == pytest.approx(0.3)


def test_barriers_of_paddle_are_counted_one_by_one(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, _ = pair(server, own=False)
        begin(a, a)
        send(a, 2.0)
        together(a.barrier, a.barrier)
        assert a.get("w").ravel()[0] == pytest.approx(0.4)


def test_a_barrier_that_a_trainer_of_ours_repeats_counts_once(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        send(a, 2.0)
        together(a.barrier, a.barrier)
        assert server.handler.rounds.phase is Phase.SEND
        assert step(b, 2.0) == pytest.approx(0.3)


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("name", "value", "kind", "reason"),
    [
        ("u@GRAD.trainer_0", np.ones((4, 1)), NotFound, "takes no variable u@GRAD.trainer_0; it takes"),
        ("w", np.ones((4, 1)), NotFound, "takes no variable w"),
        ("w@GRAD", np.ones((4, 1)), NotFound, "takes no variable w@GRAD"),
        ("learning_rate_0", np.ones(1), NotFound, "takes no variable"),
        ("w@GRAD.trainer_0", np.ones((4, 2)), Refused, r"expects shape \(4, 1\), found \(4, 2\)"),
        ("w@GRAD.trainer_0", np.ones(4), Refused, r"expects shape \(4, 1\), found \(4,\)"),
        ("w@GRAD.trainer_0", LoDTensor(np.ones((4, 1), np.float64)), Refused, "float32 numbers, found float64"),
        ("w@GRAD.trainer_0", rows([1], [[1.0]], 4), Refused, "expects a LoDTensor, found SelectedRows"),
        ("w@GRAD.trainer_0", LoDTensor(), Refused, "expects a LoDTensor"),
    ],
)
def test_what_was_not_declared_is_refused_and_the_server_goes_on(
    monkeypatch: Patch, name: str, value: Any, kind: type[FluidError], reason: str
) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        with pytest.raises(kind, match=reason):
            a.send(name, value)
        together(lambda: step(a, 1.0), lambda: step(b, 3.0))
        assert server.value("w")[0, 0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (rows([1], [[1.0, 1.0]]), "rows of shape"),
        (rows([10], [[1.0] * 4]), "rows of a table of 10, found rows 10 to 10"),
        (rows([-1], [[1.0] * 4]), "rows of a table of 10"),
        (rows([1], [[1.0] * 4], height=11), "rows of a table of 10"),
        (rows([1, 2], [[1.0] * 4]), "2 rows of shape"),
        (LoDTensor(np.ones((10, 4), np.float32)), "expects SelectedRows, found LoDTensor"),
    ],
)
def test_rows_that_do_not_fit_are_refused(monkeypatch: Patch, value: Any, reason: str) -> None:
    with sync(monkeypatch, table()) as server, pytest.raises(Refused, match=reason):
        Trainer(server.handler, 0).send("emb@GRAD.trainer_0", value)


def test_an_unknown_parameter_is_not_found_at_once(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        with pytest.raises(NotFound, match="keeps no variable u; it keeps"):
            a.get("u")
        with pytest.raises(NotFound, match="keeps no variable u"):
            server.handler.get_without_barrier(Message("u"), Call())


@pytest.mark.parametrize("offset", [-1, 1, 10])
def test_a_trainer_of_another_step_is_refused(monkeypatch: Patch, offset: int) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        a.step += offset
        for act in (lambda: send(a, 1.0), a.barrier):
            with pytest.raises(Refused, match=rf"trainer 0 .* is in step {a.step}, .* expects step"):
                act()
        a.step -= offset
        together(lambda: step(a, 1.0), lambda: step(b, 3.0))


def test_a_trainer_that_cannot_be_is_refused(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server, pytest.raises(Refused, match="trainers 0 to 1"):
        Trainer(server.handler, 2).fetched()


def test_a_value_is_given_at_any_time_without_a_barrier(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        send(a, 1.0)
        found = server.handler.get_without_barrier(Message("w"), Call())
        assert found.array[0, 0] == 0.5


# ---------------------------------------------------------------- the dead
def slow(monkeypatch: Patch, **flags: str) -> None:
    for name, value in flags.items():
        monkeypatch.setenv(f"FLAGS_{name}", value)


@OWN
def test_a_trainer_that_does_not_send_ends_the_run_with_its_name_and_round(monkeypatch: Patch, own: bool) -> None:
    slow(monkeypatch, rpc_deadline="2000")
    with sync(monkeypatch) as server:
        a, b = pair(server, own)
        begin(a, b)
        together(lambda: step(a, 1.0), lambda: step(b, 1.0))
        send(a, 1.0)
        a.barrier()
        with pytest.raises(Gone, match=r"trainer 1 .*has not sent the gradients of round 2"):
            a.get("w")
        with pytest.raises(Late, match=r"trainer 1 .*has not sent the gradients of round 2.*FLAGS_rpc_deadline"):
            server.wait()


def test_a_trainer_that_never_comes_ends_the_run(monkeypatch: Patch) -> None:
    slow(monkeypatch, rpc_deadline="2000")
    with sync(monkeypatch) as server:
        a, _ = pair(server)
        begin(a)
        with pytest.raises(Gone):
            step(a, 1.0)
        with pytest.raises(Late, match="trainer 1 has not fetched the parameters of round 0"):
            server.wait()


def test_silence_while_nobody_waits_ends_the_run_too(monkeypatch: Patch) -> None:
    slow(monkeypatch, worker_update_interval_secs="1")
    with sync(monkeypatch) as server:
        begin(*pair(server))
        with pytest.raises(Gone, match=r"trainer \d .*has been silent for \d+ s .*round \d"):
            server.wait()


def test_a_peer_that_stops_waiting_frees_its_thread(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        a.active = lambda: False
        with pytest.raises(Gone, match="no longer waits"):
            a.get("w")
        assert not server.handler._waiting


def test_a_trainer_that_vanished_while_it_waited_ends_the_run_soon(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fluidtool.distribute.pserver.limits.VANISHED", 0.3)
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        a.active = lambda: False
        with pytest.raises(Gone):
            a.get("w")
        with pytest.raises(Gone, match=r"trainer 0 .*has been silent"):
            server.wait()


def test_a_trainer_whose_connection_broke_and_that_stays_away_ends_the_run_soon(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fluidtool.distribute.pserver.limits.VANISHED", 0.3)
    with sync(monkeypatch) as server:
        begin(*pair(server))
        server.handler.lost(1)
        with pytest.raises(Gone, match=r"trainer 1 .*silent for \d+ s since its connection broke; .*round \d"):
            server.wait()


def test_a_trainer_that_comes_back_over_a_new_connection_may_wait_as_long_as_it_takes(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fluidtool.distribute.pserver.limits.VANISHED", 0.3)
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        send(a, 1.0)
        a.barrier()
        waiting = Several(lambda: a.get("w"))
        until(lambda: bool(server.handler._waiting))
        server.handler.lost(0)  # the end of the old connection is noticed after the new one has asked
        time.sleep(0.8)
        send(b, 1.0)
        b.barrier()
        waiting.join()


def test_a_completed_trainer_may_close_its_connection(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fluidtool.distribute.pserver.limits.VANISHED", 0.3)
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        b.complete()
        server.handler.lost(1)
        time.sleep(0.8)
        assert step(a, 2.0) == pytest.approx(0.4)


def test_whoever_waits_is_told_when_the_server_stops(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        waiting = Several(lambda: a.get("w"))
        until(lambda: bool(server.handler._waiting))
        server.handler.stop()
        with pytest.raises(Gone, match="has stopped"):
            waiting.join()
        server.wait()
        with pytest.raises(Gone, match="has stopped"):
            b.get("w")


def test_an_update_that_fails_ends_the_run_and_tells_everybody(monkeypatch: Patch) -> None:
    with sync(monkeypatch) as server:
        a, b = pair(server)
        begin(a, b)
        server.scope.var("learning_rate_0").value = None
        with pytest.raises(Gone, match="LearningRate"):
            together(lambda: step(a, 1.0), lambda: step(b, 1.0))
        with pytest.raises(FluidError, match="LearningRate"):
            server.wait()


# ---------------------------------------------------------------- sparse rows
def test_rows_of_all_trainers_are_merged(monkeypatch: Patch) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server)
        begin(a, b)
        a.send("emb@GRAD.trainer_0", rows([3, 7, 3], np.ones((3, 4))))
        b.send("emb@GRAD.trainer_1", rows([7], np.full((1, 4), 3.0)))
        together(a.barrier, b.barrier)
        a.get("w")
        expected = np.ones((10, 4), np.float32)
        expected[3] -= 0.1 * 2 / 2
        expected[7] -= 0.1 * 4 / 2
        np.testing.assert_allclose(server.value("emb"), expected, rtol=1e-6)


def test_rows_of_one_round_do_not_count_in_the_next(monkeypatch: Patch) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server)
        begin(a, b)
        for _ in range(2):
            a.send("emb@GRAD.trainer_0", rows([3], np.ones((1, 4))))
            together(a.barrier, b.barrier)
            together(lambda: (a.get("w"), a.fetched()), lambda: (b.get("w"), b.fetched()))
        assert server.value("emb")[3, 0] == pytest.approx(0.9)
        assert (server.value("emb")[[0, 1, 2, 4]] == 1.0).all()


def test_no_rows_at_all_are_fine(monkeypatch: Patch) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server)
        begin(a, b)
        a.send("emb@GRAD.trainer_0", rows([], np.zeros((0, 4))))
        b.send("emb@GRAD.trainer_1", rows([], np.zeros((0, 4))))
        together(a.barrier, b.barrier)
        a.get("w")
        assert (server.value("emb") == 1.0).all()


# ---------------------------------------------------------------- servers of tables alone
def slowed(server: Running, seconds: float = 0.05) -> None:
    """Have every update take longer."""
    update = server.handler._update
    server.handler._update = lambda received: (time.sleep(seconds), update(received))


def look_up(trainer: Trainer, *ids: int) -> Any:
    """Rows of the table."""
    value = LoDTensor(np.array(ids, np.int64).reshape(-1, 1))
    return trainer.handler.prefetch(Message("rows", value, "out", "emb", trainer.number), trainer.call).array


def table_step(trainer: Trainer) -> float:
    """A whole step that fetches no parameter: what row 7 was before it."""
    found = look_up(trainer, 7)[0, 0]
    trainer.send(f"emb@GRAD.trainer_{trainer.number}", rows([7], np.full((1, 4), 10.0)))
    trainer.barrier()
    trainer.fetched()
    return float(found)


@OWN
def test_rows_are_read_after_the_update_of_the_step_before(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server, own)
        begin(a, b)
        slowed(server)
        found: dict[int, list[float]] = {0: [], 1: []}
        together(*(lambda t=t: found[t.number].extend(table_step(t) for _ in range(4)) for t in (a, b)))
        assert found[0] == found[1] == [1.0, 0.0, -1.0, -2.0]


def test_rows_that_are_read_before_the_own_barrier_are_those_of_the_step_before(monkeypatch: Patch) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server)
        begin(a, b)
        b.send("emb@GRAD.trainer_1", rows([7], np.full((1, 4), 20.0)))
        b.barrier()
        assert look_up(a, 7)[0, 0] == 1.0
        after: list[float] = []
        waiting = Several(lambda: after.append(look_up(b, 7)[0, 0]))  # it has sent all of this step
        until(lambda: bool(server.handler._waiting))
        assert after == []
        a.barrier()
        waiting.join()
        assert after == [0.0]


@OWN
def test_a_fetch_barrier_counts_after_the_update(monkeypatch: Patch, own: bool) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server, own)
        begin(a, b)
        a.barrier()
        done = Several(a.fetched)
        until(lambda: bool(server.handler._waiting))
        assert len(server.handler.rounds.fetched) == 0
        b.barrier()
        done.join()
        assert server.handler.rounds.updated == 1


def test_a_table_is_saved_with_the_update_of_the_step_before(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with sync(monkeypatch, table(is_distributed=True)) as server:
        a, b = pair(server)
        begin(a, b)
        slowed(server)
        row_7 = LoDTensor(np.array([[7]], np.int64))
        server.handler.prefetch(Message("prefetch_compress_in_tmp_0", row_7, "prefetch_compress_out_tmp_0"), a.call)
        for trainer in (a, b):
            trainer.send(f"emb@GRAD.trainer_{trainer.number}.pserver_0", rows([7], np.full((1, 4), 10.0)))
        together(a.barrier, b.barrier)
        together(a.fetched, b.fetched)
        server.handler.checkpoint(Message("SAVE@CHECKPOINTNOTIFY", None, "saved/emb_0"), a.call)
    saved, _ = read_selected_rows((tmp_path / "saved" / "emb_0").read_bytes())
    assert np.asarray(saved.value)[list(saved.row_ids).index(7), 0] == -1.0  # the sum: a distributed table has no mean


def test_rows_for_a_trainer_of_another_step_are_refused(monkeypatch: Patch) -> None:
    with sync(monkeypatch, table()) as server:
        a, b = pair(server)
        begin(a, b)
        a.step += 1
        with pytest.raises(Refused, match=r"is in step 2, .* expects step"):
            look_up(a, 7)


# ---------------------------------------------------------------- learning rates
def test_the_learning_rate_decays_once_a_round(monkeypatch: Patch) -> None:
    programs = line(lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 1, 0.5, staircase=True)))
    with sync(monkeypatch, programs) as server:
        a, b = pair(server)
        begin(a, b)
        weights = [0.5]
        for _ in range(3):
            together(lambda: step(a, 1.0), lambda: step(b, 1.0))
            weights.append(float(server.value("w")[0, 0]))
        np.testing.assert_allclose(-np.diff(weights), [0.1, 0.05, 0.025], rtol=1e-5)
