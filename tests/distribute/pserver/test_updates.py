"""Updates in place give the bits of the operators, and leave alone what was handed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.pserver import blocks, in_place
from fluidtool.distribute.rpc.handler import Call, Message
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.distribute.pserver.support import Trainer, line, running, server_role, start, table, together

Patch = pytest.MonkeyPatch
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "nesterov": lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "lazy adam": lambda: fluid.optimizer.Adam(0.01, lazy_mode=True),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "l2": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
}
WAYS = {"small chunks": 3, "one chunk": 1 << 14}


@pytest.fixture(autouse=True)
def operators_of_numpy(monkeypatch: Patch) -> None:
    """Native bodies of optimizers multiply and add in one rounding."""
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")


def gradients(handler: Any, seed: int) -> dict[str, Any]:
    """One value for each thing that trainers send; rows come twice and in no order."""
    random, found = np.random.RandomState(seed), {}
    for name, expected in handler._expected.items():
        if expected.is_sparse:
            ids = random.randint(0, expected.shape[0], 7)
            values = random.uniform(-1, 1, (7, *expected.shape[1:])).astype(expected.dtype)
            found[name] = SelectedRows(ids, expected.shape[0], values)
        else:
            found[name] = LoDTensor(random.uniform(-1, 1, expected.shape).astype(expected.dtype))
    return found


def trained(monkeypatch: Patch, programs: Any, trainers: int = 2) -> dict[str, Any]:
    """Everything that lasts after four updates."""
    role = server_role(programs, trainers)
    with running(role.main, start(role), monkeypatch) as server:
        for step in range(4):
            server.handler._update(gradients(server.handler, step))
        kept = server.handler.store.kept()
    return {name: np.array(value.array) for name, value in kept.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trainers", [1, 2, 3])
@pytest.mark.parametrize("network", [line, table], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_bits_are_those_of_the_operators(
    monkeypatch: Patch, name: str, network: Any, trainers: int, way: str
) -> None:
    found = {}
    for mode in ("in place", "operators"):
        with monkeypatch.context() as patch, fluid.unique_name.guard():
            patch.setattr(in_place, "CHUNK", WAYS[way])
            if mode == "operators":
                patch.setattr(blocks, "update_in_place", lambda block: None)
            found[mode] = trained(patch, network(OPTIMIZERS[name]), trainers)
    assert found["in place"].keys() == found["operators"].keys()
    for variable, array in found["operators"].items():
        np.testing.assert_array_equal(found["in place"][variable], array, err_msg=variable)


@pytest.mark.parametrize("network", [line, table], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "lazy adam"])
def test_what_was_handed_out_does_not_change(monkeypatch: Patch, name: str, network: Any) -> None:
    role = server_role(network(OPTIMIZERS[name]))
    with running(role.main, start(role), monkeypatch) as server:
        server.handler._update(gradients(server.handler, 0))
        held = server.handler.store.kept()
        before = {each: np.array(value.array) for each, value in held.items()}
        server.handler._update(gradients(server.handler, 1))
        moved = server.handler.store.kept()
        for each, value in held.items():
            np.testing.assert_array_equal(value.array, before[each], err_msg=each)
        assert any((np.array(moved[each].array) != before[each]).any() for each in before)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_what_nobody_holds_stays_where_it_is(monkeypatch: Patch, name: str) -> None:
    role = server_role(table(OPTIMIZERS[name]))
    with running(role.main, start(role), monkeypatch) as server:
        places = []
        for step in range(3):
            server.handler._update(gradients(server.handler, step))
            places.append(server.scope.find_var("emb").value.array.ctypes.data)
        assert places[1] == places[2]


def test_what_a_trainer_sent_is_not_written_into(monkeypatch: Patch) -> None:
    role = server_role(line())
    with running(role.main, start(role), monkeypatch) as server:
        a, b = Trainer(server.handler, 0), Trainer(server.handler, 1)
        a.fetched()
        b.fetched()
        sent = [LoDTensor(np.full((4, 1), number, np.float32)) for number in (1.0, 3.0)]
        for trainer, value in zip((a, b), sent, strict=True):
            trainer.send(f"w@GRAD.trainer_{trainer.number}", value)
        together(a.barrier, b.barrier)
        a.get("w")
        assert [float(value.array[0, 0]) for value in sent] == [1.0, 3.0]


def test_a_reader_never_sees_half_an_update(monkeypatch: Patch) -> None:
    """Every element moves by the same step, so all are equal whenever anybody looks."""
    monkeypatch.setattr(in_place, "CHUNK", 1)
    role = server_role(line(), sync=False)
    with running(role.main, start(role), monkeypatch) as server:

        def train(number: int) -> None:
            trainer = Trainer(server.handler, number)
            for _ in range(100):
                trainer.send("w@GRAD", np.full((4, 1), 0.01))

        def read() -> None:
            for _ in range(300):
                found = server.handler.get_without_barrier(Message("w"), Call())
                assert len(set(np.array(found.array).ravel().tolist())) == 1

        together(lambda: train(0), lambda: train(1), read)
        np.testing.assert_allclose(server.value("w"), 0.5 - 0.1 * 0.01 * 200, rtol=1e-4)
