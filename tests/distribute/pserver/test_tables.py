"""Rows of tables by ids, tables over several servers, saving them when a trainer asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.rpc.handler import Call, Message, NotFound, Refused
from fluidtool.errors import PolicyError
from fluidtool.tensor import LoDTensor
from fluidtool.tensor.streams import read_selected_rows
from tests.distribute.pserver.support import Trainer, rows, running, server_role, start, table, together

Patch = pytest.MonkeyPatch


def serving(monkeypatch: Patch, *, is_distributed: bool = False, **options: Any) -> Any:
    role = server_role(table(is_distributed=is_distributed), **options)
    return running(role.main, start(role), monkeypatch)


def ids(*numbers: int) -> LoDTensor:
    return LoDTensor(np.array(numbers, np.int64).reshape(-1, 1))


def look_up(server: Any, *numbers: int, table_name: str = "emb") -> Any:
    request = Message("prefetch_send@127.0.0.1:6174", ids(*numbers), "prefetch_recv@127.0.0.1:6174", table_name)
    return server.handler.prefetch(request, Call(0, 0)).array


@pytest.mark.parametrize("sync", [True, False])
def test_rows_of_a_slice_come_in_the_order_of_the_ids(monkeypatch: Patch, sync: bool) -> None:
    with serving(monkeypatch, sync=sync) as server:
        server.scope.find_var("emb").get_tensor().set(np.arange(40, dtype=np.float32).reshape(10, 4))
        found = look_up(server, 7, 3, 7)
        np.testing.assert_array_equal(found, [[28, 29, 30, 31], [12, 13, 14, 15], [28, 29, 30, 31]])
        assert look_up(server).shape == (0, 4)


@pytest.mark.parametrize("number", [-1, 10])
def test_an_id_outside_the_slice_is_refused(monkeypatch: Patch, number: int) -> None:
    with serving(monkeypatch) as server, pytest.raises(Refused, match=f"id {number} is not a row of emb, which has 10"):
        look_up(server, 1, number)


def test_a_table_need_not_be_declared_by_the_program(monkeypatch: Patch) -> None:
    with serving(monkeypatch) as server:
        server.scope.var("loose").get_tensor().set(np.arange(6, dtype=np.float32).reshape(3, 2))
        np.testing.assert_array_equal(look_up(server, 2, table_name="loose"), [[4, 5]])


def test_an_unknown_table_is_not_found(monkeypatch: Patch) -> None:
    with serving(monkeypatch) as server:
        with pytest.raises(NotFound, match="keeps no variable other"):
            look_up(server, 1, table_name="other")
        with pytest.raises(NotFound, match="does not look up rows of"):
            look_up(server, 1, table_name="")


def test_ids_must_be_integers(monkeypatch: Patch) -> None:
    request = Message("prefetch_send", LoDTensor(np.ones((2, 1), np.float32)), "out", "emb")
    with serving(monkeypatch) as server, pytest.raises(Refused, match="must contain ids"):
        server.handler.prefetch(request, Call())


def test_rows_of_a_whole_table_are_looked_up_by_its_block_and_trained(monkeypatch: Patch) -> None:
    with serving(monkeypatch, is_distributed=True) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        for trainer in (a, b):
            trainer.get("w")
            trainer.fetched()
        request = Message("prefetch_compress_in_tmp_0", ids(3, 7), "prefetch_compress_out_tmp_0")
        first = server.handler.prefetch(request, a.call).array
        np.testing.assert_array_equal(first, np.ones((2, 4)))
        for trainer in (a, b):
            trainer.send(f"emb@GRAD.trainer_{trainer.number}.pserver_0", rows([7], np.ones((1, 4))))
        together(a.barrier, b.barrier)
        a.get("w")
        second = server.handler.prefetch(request, a.call).array
        np.testing.assert_allclose(second, [[1.0] * 4, [0.8] * 4], rtol=1e-6)
        np.testing.assert_array_equal(first, np.ones((2, 4)))  # what was handed out does not change


def test_a_table_is_saved_where_the_trainer_says(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(monkeypatch, is_distributed=True) as server:
        request = Message("prefetch_compress_in_tmp_0", ids(3, 7), "prefetch_compress_out_tmp_0")
        server.handler.prefetch(request, Call())
        server.handler.checkpoint(Message("SAVE@CHECKPOINTNOTIFY", None, "saved/emb_0"), Call())
    found, _ = read_selected_rows((tmp_path / "saved" / "emb_0").read_bytes())
    assert found.value.shape == (10, 4)


def test_a_trainer_cannot_have_files_written_elsewhere(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with serving(monkeypatch, is_distributed=True) as server, pytest.raises(PolicyError, match="not in an allowed"):
        server.handler.checkpoint(Message("SAVE@CHECKPOINTNOTIFY", None, "../emb_0"), Call())
    assert not (tmp_path / "emb_0").exists()


def test_without_a_table_there_is_nothing_to_save(monkeypatch: Patch) -> None:
    with serving(monkeypatch) as server, pytest.raises(Refused, match="its program has none"):
        server.handler.checkpoint(Message("SAVE@CHECKPOINTNOTIFY", None, "folder"), Call())
