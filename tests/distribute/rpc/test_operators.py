"""Trainer-side operators of a program talk to servers: what they say, and what they make of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.rpc.handler import NotFound, Refused
from fluidtool.distribute.rpc.service import Server
from fluidtool.errors import OperatorError, OutputExistsError, PolicyError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.remote import Connections, Servers
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.streams import read_tensor
from tests.distribute.rpc.support import Keeper, served, tensor


class Trainer:
    """Runs operators against two servers."""

    def __init__(self, keepers: Sequence[Keeper], servers: Sequence[Server]) -> None:
        self.keepers = list(keepers)
        self.endpoints = [server.endpoint for server in servers]
        policy = Policy(endpoints=None)
        self.executor = Executor(policy=policy, servers=Servers(policy, Connections()))
        self.scope = Scope()

    def program(self, *ops: tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]) -> Program:
        """A program of (type, inputs, outputs, attrs); every variable is persistable."""
        program = Program()
        block = program.global_block()
        for kind, inputs, outputs, attrs in ops:
            for name in [name for names in (*inputs.values(), *outputs.values()) for name in names]:
                if name not in block.vars:
                    held = self.scope.find_var(name)
                    sparse = held is not None and isinstance(held.value, SelectedRows)
                    variable = block.create_var(name=name, type=VarType.SELECTED_ROWS if sparse else VarType.LOD_TENSOR)
                    variable.persistable = True
            block.append_op(type=kind, inputs=dict(inputs), outputs=dict(outputs), attrs=dict(attrs))
        return program

    def run(self, *ops: Any, fetch: Sequence[str] = (), **values: Any) -> list[Any]:
        """Run operators over these variables and fetch."""
        for name, value in values.items():
            self.scope.var(name).value = value if isinstance(value, (LoDTensor, SelectedRows)) else LoDTensor(value)
        return self.executor.run(self.program(*ops), {}, list(fetch), self.scope)

    def heard(self) -> list[list[Any]]:
        """What each server heard: (what, name)."""
        self.executor.servers.settle()
        return [[heard[:2] for heard in keeper.heard] for keeper in self.keepers]


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    first, second = Keeper(), Keeper()
    with served(first) as one, served(second) as two:
        trainer = Trainer([first, second], [one, two])
        yield trainer
        trainer.executor.servers.drop()


class TestSend:
    def test_each_variable_goes_to_its_server_under_its_name(self, trainer: Trainer) -> None:
        trainer.run(("send", {"X": ["a", "b"]}, {}, {"epmap": trainer.endpoints}), a=np.ones(2), b=np.zeros(3))
        assert trainer.heard() == [[("send", "a")], [("send", "b")]]
        assert trainer.keepers[0].received["a"].numpy().tolist() == [1, 1]

    def test_what_has_no_value_is_left_out(self, trainer: Trainer) -> None:
        empty = SelectedRows([], 10, np.zeros((0, 3), np.float32))
        op = ("send", {"X": ["none", "empty", "a"]}, {}, {"epmap": [trainer.endpoints[0]] * 3})
        trainer.run(op, a=np.ones(1), empty=empty)
        assert trainer.heard() == [[("send", "a")], []]

    def test_names_and_endpoints_must_be_as_many(self, trainer: Trainer) -> None:
        with pytest.raises(
            OperatorError, match=r"operator send: it names 1 variables \(a\), but attribute epmap has 2"
        ):
            trainer.run(("send", {"X": ["a"]}, {}, {"epmap": trainer.endpoints}), a=np.ones(1))

    def test_chunks_of_an_array_go_to_their_servers(self, trainer: Trainer) -> None:
        attrs = {"epmap": trainer.endpoints, "send_varnames": ["a.block0", "a.block1"], "sections": [1, 2]}
        trainer.run(("send", {"X": ["a"]}, {}, attrs), a=np.arange(6.0).reshape(3, 2))
        assert trainer.heard() == [[("send", "a.block0")], [("send", "a.block1")]]
        assert trainer.keepers[1].received["a.block1"].numpy().tolist() == [[2, 3], [4, 5]]

    def test_chunks_of_rows_are_numbered_from_their_start(self, trainer: Trainer) -> None:
        rows = SelectedRows([3, 0, 3], 5, np.arange(6, dtype=np.float32).reshape(3, 2))
        attrs = {"epmap": trainer.endpoints, "send_varnames": ["t.block0", "t.block1"], "sections": [2, 3]}
        trainer.run(("send", {"X": ["t"]}, {}, attrs), t=rows)
        assert trainer.heard() == [[("send", "t.block0")], [("send", "t.block1")]]
        second = trainer.keepers[1].received["t.block1"]
        assert (second.rows(), second.height(), second.value.tolist()) == ([1, 1], 3, [[0, 1], [4, 5]])

    def test_sections_must_cover_the_variable(self, trainer: Trainer) -> None:
        attrs = {"epmap": trainer.endpoints, "send_varnames": ["a.block0", "a.block1"], "sections": [1, 1]}
        with pytest.raises(OperatorError, match=r"the sections \[1, 1\] cover 2 rows, but X has 3"):
            trainer.run(("send", {"X": ["a"]}, {}, attrs), a=np.ones((3, 2)))

    def test_steps_are_told_to_every_server(self, trainer: Trainer) -> None:
        attrs = {"epmap": trainer.endpoints, "send_varnames": ["@LR_DECAY_COUNTER@"], "use_send_handler": False}
        trainer.run(("send", {"X": ["@LR_DECAY_COUNTER@"]}, {}, attrs), **{"@LR_DECAY_COUNTER@": np.array([1])})
        assert trainer.heard() == [[("notify", "@LR_DECAY_COUNTER@")]] * 2

    def test_a_refusal_comes_with_the_barrier_at_the_latest(self, trainer: Trainer) -> None:
        with pytest.raises(Refused, match="takes no variable called refused"):
            trainer.run(
                ("send", {"X": ["refused"]}, {}, {"epmap": trainer.endpoints[:1]}),
                ("send_barrier", {}, {}, {"endpoints": trainer.endpoints}),
                ("recv", {}, {"Out": ["w"]}, {"epmap": trainer.endpoints[:1]}),
                refused=np.ones(1),
            )


class TestRecv:
    def test_variables_come_with_their_lod(self, trainer: Trainer) -> None:
        trainer.keepers[0].variables["w"] = LoDTensor(np.ones((3, 1), np.float32), [[0, 3]])
        (w,) = trainer.run(("recv", {}, {"Out": ["w"]}, {"epmap": trainer.endpoints[:1]}), fetch=["w"])
        assert w.lod() == [[0, 3]] and w.numpy().tolist() == [[1], [1], [1]]

    def test_rows_of_a_table_come_as_rows(self, trainer: Trainer) -> None:
        trainer.keepers[0].variables["w"] = SelectedRows([4], 9, np.ones((1, 2), np.float32))
        (w,) = trainer.run(("recv", {}, {"Out": ["w"]}, {"epmap": trainer.endpoints[:1]}), fetch=["w"])
        assert isinstance(w, SelectedRows) and w.rows() == [4] and w.height() == 9

    def test_servers_may_know_them_by_other_names(self, trainer: Trainer) -> None:
        trainer.keepers[0].variables["moment"] = tensor(2)
        attrs = {"epmap": trainer.endpoints[:1], "varnames": ["moment"], "with_barrier": False}
        (found,) = trainer.run(("recv", {}, {"Out": ["moment@here"]}, attrs), fetch=["moment@here"])
        assert found.numpy().tolist() == [0, 1] and trainer.heard()[0] == [("get now", "moment")]

    def test_chunks_are_put_together(self, trainer: Trainer) -> None:
        for keeper, rows in zip(trainer.keepers, (1, 2), strict=True):
            keeper.variables[f"w.block{rows - 1}"] = tensor(rows, 2)
        attrs = {"epmap": trainer.endpoints, "recv_varnames": ["w.block0", "w.block1"]}
        (w,) = trainer.run(("recv", {}, {"Out": ["w"]}, attrs), fetch=["w"])
        assert w.numpy().tolist() == [[0, 1], [0, 1], [2, 3]]

    def test_it_can_be_switched_off(self, trainer: Trainer) -> None:
        trainer.run(("recv", {}, {"Out": ["w"]}, {"epmap": trainer.endpoints[:1], "do_not_run": 1}))
        assert trainer.heard() == [[], []]

    def test_what_no_server_keeps_is_an_error_that_names_it(self, trainer: Trainer) -> None:
        with pytest.raises(NotFound, match=r"'w' failed: this server keeps no variable w \[block 0"):
            trainer.run(("recv", {}, {"Out": ["w"]}, {"epmap": trainer.endpoints[:1]}))


class TestARound:
    def ops(self, trainer: Trainer) -> list[Any]:
        first, second = trainer.endpoints
        return [
            ("send", {"X": ["a@GRAD"]}, {}, {"epmap": [first]}),
            ("send", {"X": ["b@GRAD"]}, {}, {"epmap": [second]}),
            ("send_barrier", {}, {}, {"endpoints": trainer.endpoints}),
            ("recv", {}, {"Out": ["a"]}, {"epmap": [first]}),
            ("recv", {}, {"Out": ["b"]}, {"epmap": [second]}),
            ("fetch_barrier", {}, {}, {"endpoints": trainer.endpoints}),
        ]

    def test_each_server_hears_it_in_order(self, trainer: Trainer) -> None:
        for keeper, name in zip(trainer.keepers, "ab", strict=True):
            keeper.variables[name] = tensor(2)
        gradients = {"a@GRAD": np.ones(2), "b@GRAD": np.ones(2)}
        for _ in range(2):
            trainer.run(*self.ops(trainer), fetch=["a", "b"], **gradients)
        for heard, name in zip(trainer.heard(), "ab", strict=True):
            step = [("send", f"{name}@GRAD"), ("barrier", "SEND"), ("get", name), ("barrier", "FETCH")]
            assert heard == step * 2
        assert [heard[3] for heard in trainer.keepers[0].heard] == [0] * 4 + [1] * 4

    def test_nobody_is_told_where_rounds_are_half_asynchronous(self, trainer: Trainer) -> None:
        trainer.run(("send_barrier", {}, {}, {"endpoints": trainer.endpoints, "half_async": True}))
        assert trainer.heard() == [[], []]

    def test_closing_says_once_that_the_trainer_is_finished(self, trainer: Trainer) -> None:
        trainer.run(("send_barrier", {}, {}, {"endpoints": trainer.endpoints}))
        trainer.executor.close()
        trainer.executor.close()
        assert [keeper.heard[-1][:2] for keeper in trainer.keepers] == [("complete", 0)] * 2
        assert all(len(keeper.heard) == 2 for keeper in trainer.keepers)

    def test_executors_of_one_trainer_share_its_connections(self, trainer: Trainer) -> None:
        connections, policy = Connections(), Policy(endpoints=None)
        barrier = trainer.program(("send_barrier", {}, {}, {"endpoints": trainer.endpoints[:1]}))
        executors = [Executor(policy=policy, servers=Servers(policy, connections)) for _ in range(2)]
        for executor in executors:
            executor.run(barrier, {}, [], Scope())
        for executor in executors:
            executor.close()
        assert [heard[0] for heard in trainer.keepers[0].heard] == ["barrier", "barrier", "complete"]


TABLE = np.arange(20, dtype=np.float32).reshape(10, 2)


@pytest.fixture
def tables(trainer: Trainer) -> dict[str, Any]:
    """A table in two chunks, of 4 and 6 rows; attributes that name them."""
    trainer.keepers[0].variables["t.block0"] = LoDTensor(TABLE[:4])
    trainer.keepers[1].variables["t.block1"] = LoDTensor(TABLE[4:])
    return {"table_names": ["t.block0", "t.block1"], "height_sections": [4, 6]}


def without_memory() -> LoDTensor:
    """A table that has dimensions and lives elsewhere."""
    table = LoDTensor()
    table.set_dims((10, 2))
    return table


class TestTables:
    IDS = np.array([[3], [7], [3], [0]])

    def test_rows_come_in_order_and_with_the_lod_of_the_ids(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        attrs = {**tables, "endpoints": trainer.endpoints}
        op = ("distributed_lookup_table", {"Ids": ["i", "j"], "W": ["t"]}, {"Outputs": ["x", "y"]}, attrs)
        ids = LoDTensor(self.IDS, [[0, 1, 4]])
        x, y = trainer.run(op, fetch=["x", "y"], i=ids, j=np.array([[9]]), t=without_memory())
        np.testing.assert_array_equal(x.numpy(), TABLE[self.IDS[:, 0]])
        np.testing.assert_array_equal(y.numpy(), TABLE[[9]])
        assert x.lod() == [[0, 1, 4]] and y.lod() == []

    def test_each_server_is_asked_once_for_what_it_has(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        asked: list[Any] = []
        for keeper in trainer.keepers:
            plain = keeper.prefetch
            keeper.prefetch = lambda request, call, plain=plain: (asked.append(request), plain(request, call))[1]  # type: ignore[method-assign,misc]
        attrs = {**tables, "endpoints": trainer.endpoints}
        op = ("distributed_lookup_table", {"Ids": ["i"], "W": ["t"]}, {"Outputs": ["x"]}, attrs)
        trainer.run(op, i=self.IDS, t=without_memory())
        first = next(request for request in asked if request.table_name == "t.block0")
        second = next(request for request in asked if request.table_name == "t.block1")
        assert len(asked) == 2
        assert first.value.numpy().tolist() == [[0], [3]] and second.value.numpy().tolist() == [[3]]
        assert first.name == f"prefetch_send@{trainer.endpoints[0]}"

    def test_a_server_that_has_none_of_them_is_not_asked(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        attrs = {**tables, "endpoints": trainer.endpoints}
        op = ("distributed_lookup_table", {"Ids": ["i"], "W": ["t"]}, {"Outputs": ["x"]}, attrs)
        trainer.run(op, i=np.array([[1], [2]]), t=without_memory())
        assert trainer.heard() == [[("prefetch", "t.block0")], []]

    def test_padding_is_zeros(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        attrs = {**tables, "endpoints": trainer.endpoints, "padding_idx": 3}
        op = ("distributed_lookup_table", {"Ids": ["i"], "W": ["t"]}, {"Outputs": ["x"]}, attrs)
        (x,) = trainer.run(op, fetch=["x"], i=self.IDS, t=without_memory())
        np.testing.assert_array_equal(x.numpy(), [[0, 0], TABLE[7], [0, 0], TABLE[0]])

    def test_all_padding_asks_nobody(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        attrs = {**tables, "endpoints": trainer.endpoints, "padding_idx": 3}
        op = ("distributed_lookup_table", {"Ids": ["i"], "W": ["t"]}, {"Outputs": ["x"]}, attrs)
        (x,) = trainer.run(op, fetch=["x"], i=np.array([[3], [3]]), t=without_memory())
        assert x.numpy().tolist() == [[0, 0], [0, 0]] and trainer.heard() == [[], []]

    @pytest.mark.parametrize("bad", [-2, 10])
    def test_ids_must_be_rows(self, trainer: Trainer, tables: dict[str, Any], bad: int) -> None:
        attrs = {**tables, "endpoints": trainer.endpoints}
        op = ("distributed_lookup_table", {"Ids": ["i"], "W": ["t"]}, {"Outputs": ["x"]}, attrs)
        with pytest.raises(OperatorError, match=f"input Ids holds {bad}, expected 0 to 9"):
            trainer.run(op, i=np.array([[bad]]), t=without_memory())

    def test_a_wrong_answer_is_said(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        trainer.keepers[0].prefetch = lambda request, call: tensor(5, 2)  # type: ignore[method-assign]
        attrs = {**tables, "endpoints": trainer.endpoints}
        op = ("distributed_lookup_table", {"Ids": ["i"], "W": ["t"]}, {"Outputs": ["x"]}, attrs)
        with pytest.raises(OperatorError, match=r"must return 1 rows of t.block0, found"):
            trainer.run(op, i=np.array([[1]]), t=without_memory())

    @pytest.mark.parametrize("kind", ["lookup_table", "lookup_table_v2"])
    def test_lookups_ask_servers_themselves(self, trainer: Trainer, tables: dict[str, Any], kind: str) -> None:
        ids = self.IDS if kind == "lookup_table" else self.IDS[:, 0]
        attrs = {**tables, "epmap": trainer.endpoints, "remote_prefetch": True, "is_sparse": True}
        op = (kind, {"Ids": ["i"], "W": ["t"]}, {"Out": ["x"]}, attrs)
        (x,) = trainer.run(op, fetch=["x"], i=ids, t=without_memory())
        np.testing.assert_array_equal(x.numpy(), TABLE[self.IDS[:, 0]])

    def test_the_gradient_of_a_lookup_needs_no_table(self, trainer: Trainer, tables: dict[str, Any]) -> None:
        attrs = {**tables, "epmap": trainer.endpoints, "remote_prefetch": True, "is_sparse": True}
        op = ("lookup_table_grad", {"Ids": ["i"], "W": ["t"], "Out@GRAD": ["g"]}, {"W@GRAD": ["r"]}, attrs)
        (rows,) = trainer.run(op, fetch=["r"], i=self.IDS, g=np.ones((4, 2), np.float32), t=without_memory())
        assert isinstance(rows, SelectedRows) and rows.rows() == [3, 7, 3, 0] and rows.height() == 10

    def test_prefetch_sends_ids_and_stores_what_comes(self, trainer: Trainer) -> None:
        trainer.keepers[0].variables["ids0"] = LoDTensor(TABLE)
        op = ("prefetch", {"X": ["ids0", "none"]}, {"Out": ["rows0", "rows1"]}, {"epmap": trainer.endpoints})
        (rows,) = trainer.run(op, fetch=["rows0"], ids0=np.array([[2], [5]]))
        np.testing.assert_array_equal(rows.numpy(), TABLE[[2, 5]])
        assert trainer.heard()[1] == []


class TestSampledLosses:
    """nce and hierarchical_sigmoid get the rows they need from servers, and so do their gradients."""

    CASES: Mapping[str, Any] = {
        "nce": (
            {"Input": np.ones((3, 2), np.float32), "Label": np.array([[1], [8], [4]])},
            "Weight",
            {"num_total_classes": 10, "custom_neg_classes": [0, 9], "num_neg_samples": 2},
            ("Cost", "SampleLogits", "SampleLabels"),
            "Cost",
        ),
        "hierarchical_sigmoid": (
            {
                "X": np.ones((2, 2), np.float32),
                "Label": np.array([[0], [1]]),
                "PathTable": np.array([[0, 7, -1], [0, 3, 9]]),
                "PathCode": np.array([[1, 0, 0], [0, 1, 1]]),
            },
            "W",
            {"num_classes": 11},
            ("Out", "PreOut"),
            "Out",
        ),
    }

    @pytest.mark.parametrize("kind", CASES)
    def test_as_if_the_table_were_here(self, trainer: Trainer, tables: dict[str, Any], kind: str) -> None:
        inputs, table, attrs, outputs, loss = self.CASES[kind]
        grad_outputs = {f"{table}@GRAD": ["dw"], f"{next(iter(inputs))}@GRAD": ["dx"]}
        results = []
        for remote in (False, True):
            own = {**attrs, "is_sparse": True}
            if remote:
                own |= {**tables, "epmap": trainer.endpoints, "remote_prefetch": True}
            names = {slot: [slot] for slot in (*inputs, table)}
            made = {slot: [slot] for slot in outputs}
            forward = (kind, names, made, own)
            backward = (kind + "_grad", {**names, **made, f"{loss}@GRAD": ["d"]}, grad_outputs, own)
            values = {**inputs, table: without_memory() if remote else LoDTensor(TABLE / 10)}
            if remote:
                trainer.keepers[0].variables["t.block0"] = LoDTensor(TABLE[:4] / 10)
                trainer.keepers[1].variables["t.block1"] = LoDTensor(TABLE[4:] / 10)
            size = len(next(iter(inputs.values())))
            values["d"] = np.ones((size, 1), np.float32)
            results.append(trainer.run(forward, backward, fetch=[loss, "dx", "dw"], **values))
        for here, there in zip(*results, strict=True):
            if isinstance(here, SelectedRows):
                assert here.rows() == there.rows() and here.height() == there.height()
                here, there = here.tensor, there.tensor
            np.testing.assert_array_equal(here.numpy(), there.numpy())


class TestSaving:
    def test_each_server_is_told_its_folder(self, trainer: Trainer) -> None:
        attrs = {"epmap": trainer.endpoints, "dir": "checkpoint", "lookup_table": "emb"}
        trainer.run(("checkpoint_notify", {}, {}, attrs))
        assert trainer.heard() == [[("checkpoint", "checkpoint/emb_0")], [("checkpoint", "checkpoint/emb_1")]]

    def slices(self, trainer: Trainer, path: Path, **more: Any) -> Any:
        trainer.keepers[0].variables["w.block0"] = tensor(1, 3)
        trainer.keepers[1].variables["w.block1"] = tensor(2, 3)
        attrs = {
            "file_path": str(path),
            "shape": [3, 3],
            "slice_varnames": ["w.block0", "w.block1"],
            "remote_varnames": ["w.block0", "w.block1"],
            "slice_shapes": ["1,3", "2,3"],
            "endpoints": trainer.endpoints,
        }
        return ("recv_save", {}, {}, attrs | more)

    def allow(self, trainer: Trainer, folder: Path) -> None:
        policy = Policy(file_roots=(folder,), endpoints=None)
        trainer.executor = Executor(policy=policy, servers=Servers(policy, Connections()))

    def test_slices_are_saved_as_one_variable(self, trainer: Trainer, tmp_path: Path) -> None:
        self.allow(trainer, tmp_path)
        trainer.run(self.slices(trainer, tmp_path / "new" / "w"))
        saved, _ = read_tensor((tmp_path / "new" / "w").read_bytes())
        assert saved.numpy().tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]

    def test_a_file_stays_where_it_is_not_to_be_overwritten(self, trainer: Trainer, tmp_path: Path) -> None:
        self.allow(trainer, tmp_path)
        (tmp_path / "w").write_text("mine")
        with pytest.raises(OutputExistsError):
            trainer.run(self.slices(trainer, tmp_path / "w", overwrite=False))
        assert (tmp_path / "w").read_text() == "mine"

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"slice_shapes": ["1,3", "3,3"]}, r"slice w.block1 must be float32 of shape 3,3"),
            ({"dtype": 3}, "slice w.block0 must be int64"),
            ({"shape": [4, 3]}, r"the slices have 9 elements, but attribute shape is \(4, 3\)"),
            ({"remote_varnames": ["w.block0"]}, "must be equally many, found 2, 1, 2, 2"),
            ({"slice_shapes": ["1,x", "2,3"]}, "takes sizes such as '50,8'"),
        ],
    )
    def test_what_does_not_fit_is_not_saved(
        self, trainer: Trainer, tmp_path: Path, more: dict[str, Any], reason: str
    ) -> None:
        self.allow(trainer, tmp_path)
        with pytest.raises(OperatorError, match=reason):
            trainer.run(self.slices(trainer, tmp_path / "w", **more))
        assert not list(tmp_path.iterdir())

    def test_files_must_be_allowed(self, trainer: Trainer, tmp_path: Path) -> None:
        with pytest.raises(PolicyError, match="file_roots="):
            trainer.run(self.slices(trainer, tmp_path / "w"))


def test_a_script_may_talk_to_anybody(trainer: Trainer) -> None:
    program = trainer.program(("send_barrier", {}, {}, {"endpoints": trainer.endpoints[:1]}))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(program, scope=fluid.Scope())
    executor.close()
    assert trainer.heard()[0] == [("barrier", "SEND"), ("complete", 0)]


def test_an_address_that_was_not_allowed_hears_nothing(trainer: Trainer) -> None:
    program = trainer.program(("send_barrier", {}, {}, {"endpoints": trainer.endpoints}))
    policy = Policy(endpoints=frozenset(trainer.endpoints[:1]))
    with pytest.raises(PolicyError, match=f"asks to connect to '{trainer.endpoints[1]}'"):
        Executor(policy=policy, servers=Servers(policy, Connections())).run(program, {}, [], Scope())
    assert [keeper.heard for keeper in trainer.keepers] == [[], []]
