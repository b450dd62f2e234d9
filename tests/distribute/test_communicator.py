"""The communicator of a trainer: what it sends and fetches beside the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.rpc.handler import Call, Message, Refused
from fluidtool.distribute.settings import DistributedMode
from fluidtool.errors import ArgumentTypeError, OperatorError, ProgramError, UsageError
from fluidtool.runtime.remote import PROCESS
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.distribute.rpc.support import Keeper, eventually, served, tensor

RATE = 0.5


class Updater(Keeper):
    """Takes RATE * gradient off a parameter; adds `<name>.delta` to it, and remembers which rows that changed."""

    def send(self, message: Message, call: Call) -> None:
        super().send(message, call)
        value: Any = message.value
        if message.name.endswith(".delta"):
            name = message.name.removesuffix(".delta")
            self._add(name, value, 1.0)
        else:
            self._add(message.name.removesuffix("@GRAD"), value, -RATE)

    def _add(self, name: str, value: Any, factor: float) -> None:
        array = np.array(self.variables[name].array)
        if isinstance(value, SelectedRows):
            np.add.at(array, value.row_ids, factor * value.value)
        else:
            array = array + factor * value.array
        self.variables[name] = LoDTensor(array.astype("float32"))


@pytest.fixture
def server() -> Iterator[tuple[Updater, str]]:
    keeper = Updater(w=tensor(2, 2))
    with served(keeper) as running, fluid.scope_guard(fluid.Scope()):
        yield keeper, running.endpoint
        PROCESS.communicator = None
        PROCESS.drop({(running.endpoint, 0)})


def trainer_program(endpoint: str, merge_add: bool = False, half_async: bool = False) -> fluid.Program:
    """send g -> w@GRAD, (barrier,) recv w: what runtime_split_send_recv makes."""
    program = fluid.Program()
    block = program.global_block()
    for name in ("g", "w", "out"):
        block.create_var(name=name, shape=[2, 2], dtype="float32", persistable=True)
    attrs = {"epmap": [endpoint], "send_varnames": ["w@GRAD"], "sections": [2], "merge_add": merge_add}
    block.append_op(type="send", inputs={"X": ["g"]}, outputs={"Out": ["out"]}, attrs=attrs)
    if half_async:
        barrier = {"endpoints": [endpoint], "half_async": True}
        block.append_op(type="send_barrier", inputs={"X": ["out"]}, outputs={"Out": ["out"]}, attrs=barrier)
    attrs = {"epmap": [endpoint], "recv_varnames": ["w"]}
    block.append_op(type="recv", inputs={"X": ["out"]}, outputs={"Out": ["w"]}, attrs=attrs)
    return program


def hold(**values: Any) -> None:
    for name, value in values.items():
        fluid.global_scope().var(name).value = value if isinstance(value, LoDTensor) else LoDTensor(np.array(value))


def held(name: str) -> Any:
    return fluid.global_scope().find_var(name).get_tensor().numpy()


ONES = np.ones((2, 2), np.float32)


class TestAsync:
    def test_gradients_arrive_and_parameters_come_back(self, server: tuple[Updater, str]) -> None:
        keeper, endpoint = server
        hold(g=ONES, w=np.zeros((2, 2), np.float32))
        program = trainer_program(endpoint, merge_add=True)
        communicator = fluid.communicator.Communicator(program, DistributedMode.ASYNC)
        communicator.start()
        executor = fluid.Executor(fluid.CPUPlace())
        for _ in range(5):
            executor.run(program)
        communicator.stop()
        expected = tensor(2, 2).numpy() - 5 * RATE
        np.testing.assert_allclose(keeper.variables["w"].numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(held("w"), expected, rtol=1e-6)

    def test_what_waits_is_merged(self, server: tuple[Updater, str]) -> None:
        from fluidtool.distribute.communicator import merged

        one, three = LoDTensor(ONES), LoDTensor(3 * ONES)
        np.testing.assert_array_equal(merged([one, three], True).array, 4 * ONES)
        np.testing.assert_array_equal(merged([one, three], False).array, 2 * ONES)
        rows = merged([SelectedRows([1], 9, ONES[:1]), SelectedRows([1, 4], 9, ONES)], False)
        assert rows.rows() == [1, 1, 4] and rows.value.tolist() == [[0.5, 0.5]] * 3

    def test_steps_do_not_wait(self, server: tuple[Updater, str]) -> None:
        keeper, endpoint = server
        hold(g=ONES, w=ONES)
        keeper.opened.clear()
        program = trainer_program(endpoint)
        communicator = fluid.communicator.Communicator(program, DistributedMode.ASYNC)
        communicator.start()
        executor = fluid.Executor(fluid.CPUPlace())
        for _ in range(3):
            executor.run(program)
        assert communicator.is_running()
        keeper.opened.set()
        communicator.stop()
        assert not communicator.is_running()

    def test_a_refusal_comes_to_light(self, server: tuple[Updater, str]) -> None:
        keeper, endpoint = server

        def refuse(what: str, call: Call) -> None:
            raise Refused("full")

        keeper.before = refuse
        hold(g=ONES, w=ONES)
        program = trainer_program(endpoint)
        communicator = fluid.communicator.Communicator(program, DistributedMode.ASYNC)
        communicator.start()
        fluid.Executor(fluid.CPUPlace()).run(program)
        with pytest.raises(Refused, match="full"):
            communicator.stop()

    def test_without_a_communicator_gradients_go_at_once(self, server: tuple[Updater, str]) -> None:
        keeper, endpoint = server
        hold(g=ONES, w=ONES)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(trainer_program(endpoint))
        np.testing.assert_array_equal(held("w"), tensor(2, 2).numpy() - RATE)
        executor.close()
        assert keeper.heard[-1][0] == "complete"


class TestHalfAsync:
    def test_each_step_has_what_its_gradient_made(self, server: tuple[Updater, str]) -> None:
        keeper, endpoint = server
        hold(g=ONES, w=ONES)
        program = trainer_program(endpoint, half_async=True)
        communicator = fluid.communicator.Communicator(program, DistributedMode.HALF_ASYNC)
        communicator.start()
        executor = fluid.Executor(fluid.CPUPlace())
        for step in range(1, 4):
            executor.run(program)
            np.testing.assert_allclose(held("w"), tensor(2, 2).numpy() - step * RATE)
        communicator.stop()
        assert "barrier" not in {heard[0] for heard in keeper.heard}

    def test_synchronous_rounds_are_ended(self, server: tuple[Updater, str]) -> None:
        keeper, endpoint = server
        hold(g=ONES, w=ONES)
        program = trainer_program(endpoint, half_async=True)
        given = {"pserver_endpoints": [endpoint], "trainer_id": 0}
        communicator = fluid.communicator.Communicator(program, DistributedMode.SYNC, given)
        communicator.start()
        fluid.Executor(fluid.CPUPlace()).run(program)
        communicator.stop()
        assert [heard[:2] for heard in keeper.heard] == [
            ("send", "w@GRAD"),
            ("barrier", "SEND"),
            ("get", "w"),
            ("barrier", "FETCH"),
        ]


class GeoServer(Updater):
    """Answers a table's name with the rows that changed since, as geo servers do."""

    def get(self, request: Message, call: Call) -> Any:
        value = super().get(request, call)
        if not request.table_name:
            return value
        rows = np.arange(2) if "t" not in self.received else np.unique(self.received["t"].row_ids)
        assert isinstance(value, LoDTensor)
        return SelectedRows(rows, len(value.array), value.array[rows])


class TestGeo:
    @pytest.fixture
    def geo(self) -> Iterator[tuple[GeoServer, str]]:
        keeper = GeoServer(**{"w.block0": tensor(1, 2), "w.block1": tensor(1, 2), "t": tensor(4, 2)})
        with served(keeper) as running, fluid.scope_guard(fluid.Scope()):
            yield keeper, running.endpoint
            PROCESS.communicator = None
            PROCESS.drop({(running.endpoint, 0)})

    def communicator(self, endpoint: str, every: int = 2, **given: Any) -> tuple[Any, Any]:
        program = fluid.Program()
        block = program.global_block()
        block.create_var(name="ids", shape=[-1, 1], dtype="int64", persistable=True)
        block.create_var(name="out", persistable=True)
        block.append_op(type="send", inputs={"X": ["ids"]}, outputs={"Out": ["out"]}, attrs={"send_varnames": ["t"]})
        push_vars = {
            "w": {
                "var_names": ["w.block0", "w.block1"],
                "sections": ["1", "1"],
                "epmap": [endpoint] * 2,
                "is_sparse": ["False"],
            },
            "t": {"var_names": ["t"], "sections": ["4"], "epmap": [endpoint], "is_sparse": ["True"]},
        }
        kwargs = {"push_vars": push_vars, "trainers": 2, "push_nums": every, **given}
        return program, fluid.communicator.Communicator(program, DistributedMode.GEO, kwargs)

    def test_changes_are_shared_every_so_many_steps(self, geo: tuple[GeoServer, str]) -> None:
        keeper, endpoint = geo
        hold(w=np.array([[0.0, 1], [0, 1]], np.float32), t=tensor(4, 2), ids=np.array([[1], [3], [1]]))
        program, communicator = self.communicator(endpoint)
        communicator.start()
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(program)
        assert keeper.heard == []
        changed = tensor(4, 2).numpy() + np.array([[0], [4], [0], [2]], np.float32)
        hold(w=np.array([[2.0, 1], [0, 5]], np.float32), t=changed)
        executor.run(program)
        np.testing.assert_array_equal(keeper.variables["w.block0"].numpy(), [[1, 1]])
        np.testing.assert_array_equal(keeper.variables["w.block1"].numpy(), [[0, 3]])
        np.testing.assert_array_equal(held("w"), [[2, 1], [0, 5]])
        sent = keeper.received["t.delta"]
        assert sent.rows() == [1, 3] and sent.value.tolist() == [[2, 2], [1, 1]] and sent.height() == 4
        communicator.stop()

    def test_what_others_did_is_added(self, geo: tuple[GeoServer, str]) -> None:
        keeper, endpoint = geo
        hold(w=np.array([[0.0, 1], [0, 1]], np.float32), t=tensor(4, 2), ids=np.array([[1]]))
        program, communicator = self.communicator(endpoint, every=1)
        communicator.start()
        keeper.variables["w.block0"] = LoDTensor(np.array([[10.0, 1]], np.float32))
        keeper.variables["t"] = LoDTensor(tensor(4, 2).numpy() + 7)
        hold(w=np.array([[2.0, 1], [0, 1]], np.float32))
        fluid.Executor(fluid.CPUPlace()).run(program)
        np.testing.assert_array_equal(held("w"), [[12, 1], [0, 1]])
        np.testing.assert_array_equal(held("t")[:2], tensor(4, 2).numpy()[:2] + 7)
        np.testing.assert_array_equal(held("t")[2:], tensor(4, 2).numpy()[2:])
        communicator.stop()

    def test_the_last_steps_are_shared_at_the_end(self, geo: tuple[GeoServer, str]) -> None:
        keeper, endpoint = geo
        hold(w=np.array([[0.0, 1], [0, 1]], np.float32), t=tensor(4, 2), ids=np.array([[1]]))
        program, communicator = self.communicator(endpoint, every=10)
        communicator.start()
        fluid.Executor(fluid.CPUPlace()).run(program)
        assert keeper.heard == []
        communicator.stop()
        assert eventually(lambda: "w.block0.delta" in keeper.received)

    def test_a_program_without_communicator_says_what_it_lacks(self, geo: tuple[GeoServer, str]) -> None:
        hold(ids=np.array([[1]]))
        program, _ = self.communicator(geo[1])
        with pytest.raises(
            OperatorError,
            match=r"geo_sgd_mode, but no communicator is running; start a fluid\.communicator\.Communicator",
        ):
            fluid.Executor(fluid.CPUPlace()).run(program)

    def test_it_starts_and_stops_before_the_startup_program(self, geo: tuple[GeoServer, str]) -> None:
        keeper, endpoint = geo
        _, communicator = self.communicator(endpoint)
        communicator.start()
        communicator.stop()
        assert keeper.heard == []

    def test_parameters_must_be_there_at_the_first_exchange(self, geo: tuple[GeoServer, str]) -> None:
        program, communicator = self.communicator(geo[1], every=10)
        communicator.start()
        hold(w=np.array([[0.0, 1], [0, 1]], np.float32), t=tensor(4, 2), ids=np.array([[1]]))
        fluid.Executor(fluid.CPUPlace()).run(program)
        with pytest.raises(
            ProgramError, match="parameter w, which held no value when it started; run the startup program first"
        ):
            communicator.stop()


class TestArguments:
    def test_it_takes_a_program(self) -> None:
        with pytest.raises(ArgumentTypeError, match="found str"):
            fluid.communicator.Communicator("program", DistributedMode.ASYNC)  # type: ignore[arg-type]

    def test_the_mode_must_be_one(self) -> None:
        with pytest.raises(UsageError, match=r"mode must be .*, found 9"):
            fluid.communicator.Communicator(fluid.Program(), 9)

    def test_geo_needs_to_know_what_to_push(self) -> None:
        with pytest.raises(UsageError, match=r"needs kwargs\['push_vars'\]"):
            fluid.communicator.Communicator(fluid.Program(), DistributedMode.GEO)
