"""`fluid.contrib.utils`: files on Hadoop, here a script that does the same in a folder, and spread tables in one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import ArgumentTypeError, AssertedError, UsageError
from fluidtool.fluid.contrib.utils import HDFSClient, multi_download, multi_upload
from fluidtool.fluid.contrib.utils.lookup_table_utils import (
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
)
from tests.support.hadoop import hadoop


@pytest.fixture
def client(tmp_path: Path) -> HDFSClient:
    return HDFSClient(str(hadoop(tmp_path / "hadoop")), {"fs.default.name": "hdfs://nowhere"})


def test_a_file_goes_there_and_back(client: HDFSClient, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("here")
    remote = tmp_path / "remote"
    assert client.upload(str(remote), str(tmp_path / "a"))
    assert not client.upload(str(remote), str(tmp_path / "a"))
    (tmp_path / "a").write_text("new")
    assert client.upload(str(remote), str(tmp_path / "a"), overwrite=True)
    assert client.download(str(remote / "a"), str(tmp_path / "local"))
    assert not client.download(str(remote / "a"), str(tmp_path / "local"))
    assert (tmp_path / "local" / "a").read_text() == "new"
    assert client.ls(str(remote)) == [str(remote / "a")]


def test_files_are_moved_and_removed(client: HDFSClient, tmp_path: Path) -> None:
    folder, file = tmp_path / "one", tmp_path / "one" / "a"
    assert client.makedirs(str(folder))
    assert client.makedirs(str(folder)) is None
    file.write_text("")
    assert client.is_dir(str(folder))
    assert not client.is_dir(str(file))
    assert client.rename(str(file), str(tmp_path / "b"))
    assert client.delete(str(tmp_path / "b"))
    assert client.delete(str(tmp_path / "b"))
    assert client.delete(str(folder))
    assert not client.is_exist(str(folder))
    assert client.ls(str(folder)) == client.lsr(str(folder)) == []


def test_each_trainer_gets_its_share(client: HDFSClient, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "below/d"):
        (tmp_path / "remote" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "remote" / name).write_text(name)
    found = [multi_download(client, str(tmp_path / "remote"), str(tmp_path / f"local{i}"), i, 2) for i in range(2)]
    assert [len(paths) for paths in found] == [2, 2]
    texts = [Path(path).read_text() for paths in found for path in paths]
    assert sorted(texts) == ["a", "b", "below/d", "c"]
    assert any(path.endswith("below/d") for paths in found for path in paths)


def test_a_folder_is_uploaded_as_it_is(client: HDFSClient, tmp_path: Path) -> None:
    (tmp_path / "local" / "below").mkdir(parents=True)
    (tmp_path / "local" / "a").write_text("a")
    (tmp_path / "local" / "below" / "b").write_text("b")
    multi_upload(client, str(tmp_path / "remote"), str(tmp_path / "local"))
    assert (tmp_path / "remote" / "a").read_text() == "a"
    assert (tmp_path / "remote" / "below" / "b").read_text() == "b"


def test_without_hadoop_commands_fail_and_say_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = HDFSClient(str(tmp_path), {})
    assert client.is_exist("/nowhere") is False
    assert client.ls("/nowhere") == []
    assert "hadoop_home must be the folder of Hadoop" in caplog.text


def test_wrong_arguments_are_refused(client: HDFSClient, tmp_path: Path) -> None:
    with pytest.raises(AssertedError, match="there is no file"):
        client.upload("/x", str(tmp_path / "nosuch"))
    assert client.upload("/x", str(tmp_path)) is False
    with pytest.raises(ArgumentTypeError, match="expected an HDFSClient, found str"):
        multi_download("client", "/x", str(tmp_path), 0, 1)  # type: ignore[arg-type]


# ---------------------------------------------------------------- tables
@pytest.fixture
def trainer() -> fluid.Program:
    """The program of the only trainer of a job whose table is spread over two servers."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        rows = fluid.layers.embedding(ids, [10, 3], is_sparse=True, is_distributed=True, param_attr="table")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(rows, 2, param_attr="w", bias_attr=False)))
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, program=main, startup_program=startup, pservers="127.0.0.1:1,127.0.0.1:2", trainers=1)
        return transpiler.get_trainer_program(wait_port=False)


def test_rows_are_looked_up_here_instead_of_on_servers(trainer: fluid.Program) -> None:
    program = convert_dist_to_sparse_program(trainer)
    assert program is trainer
    block = trainer.global_block()
    types = [op.type for op in block.ops]
    assert "prefetch" not in types
    lookup = block.ops[types.index("lookup_sparse_table")]
    assert (lookup.input("W"), lookup.input("Ids")) == (["table"], ["ids"])
    assert block.var("table").type == fluid.core.VarDesc.VarType.SELECTED_ROWS
    assert block.has_var("table.origin")


def test_a_program_without_a_spread_table_is_left_alone() -> None:
    assert convert_dist_to_sparse_program(fluid.Program()) is None
    program = fluid.Program()
    program._distributed_lookup_table = "table"
    with pytest.raises(UsageError, match="does not ask servers for rows of 'table'"):
        convert_dist_to_sparse_program(program)


def save_rows(path: Path, rows: list[int], values: object) -> None:
    """A server's file of a table."""
    program = fluid.Program()
    kind = fluid.core.VarDesc.VarType.SELECTED_ROWS
    name = path.name
    var = program.global_block().create_var(name=name, shape=[10, 2], dtype="float32", type=kind, persistable=True)
    held = fluid.global_scope().var(name).get_selected_rows()
    held.set_rows(rows)
    held.set_height(10)
    held.get_tensor().set(np.array(values, np.float32), fluid.CPUPlace())
    fluid.io.save_vars(fluid.Executor(fluid.CPUPlace()), str(path.parent), program, vars=[var])


@pytest.fixture
def model(tmp_path: Path) -> fluid.Program:
    """A program with a table and a parameter, and a folder with their files."""
    program = fluid.Program()
    with fluid.scope_guard(fluid.Scope()):
        (tmp_path / "__lookup_table__").mkdir()
        save_rows(tmp_path / "__lookup_table__" / "table_0", [0, 2], [[0, 0], [2, 2]])
        save_rows(tmp_path / "__lookup_table__" / "table_1", [1, 3], [[1, 1], [3, 3]])
        block = program.global_block()
        weight = block.create_var(name="w", shape=[2], dtype="float32", persistable=True)
        fluid.global_scope().var("w").get_tensor().set(np.array([5, 6], np.float32), fluid.CPUPlace())
        fluid.io.save_vars(fluid.Executor(fluid.CPUPlace()), str(tmp_path), program, vars=[weight])
        block.create_var(name="table", shape=[10, 2], dtype="float32", persistable=True)
    return program


def test_the_servers_parts_become_one_table(model: fluid.Program, tmp_path: Path) -> None:
    with fluid.scope_guard(fluid.Scope()):
        assert load_persistables_for_inference(str(tmp_path), fluid.Executor(), model, "table") is model
        held = fluid.global_scope().var("table").get_selected_rows()
        assert held.rows() == [0, 2, 1, 3]
        np.testing.assert_array_equal(held.value, [[0, 0], [2, 2], [1, 1], [3, 3]])
        np.testing.assert_array_equal(np.array(fluid.global_scope().var("w").get_tensor()), [5, 6])
    assert (tmp_path / "__lookup_table__" / "table").is_file()


def test_missing_files_are_named(model: fluid.Program, tmp_path: Path) -> None:
    exe = fluid.Executor()
    with pytest.raises(UsageError, match="There is no directory named"):
        load_persistables_for_inference(str(tmp_path / "nosuch"), exe, model, "table")
    with pytest.raises(UsageError, match="There is no file named"):
        load_persistables_for_increment(str(tmp_path), exe, model, "table", str(tmp_path / "nosuch"))
    with pytest.raises(ArgumentTypeError, match=r"must be an instance of fluid\.Program"):
        load_persistables_for_inference(str(tmp_path), exe, "program", "table")  # type: ignore[arg-type]


def test_a_server_continues_with_its_part(tmp_path: Path) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        rows = fluid.layers.embedding(ids, [10, 2], is_sparse=True, is_distributed=True, param_attr="table")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(rows, 2, param_attr="w", bias_attr=False)))
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, program=main, startup_program=startup, pservers="127.0.0.1:1", trainers=1)
        server = transpiler.get_pserver_program("127.0.0.1:1")
        save_rows(tmp_path / "part", [4], [[7, 8]])
        values = {"w": np.ones((2, 2), np.float32), "learning_rate_0": np.ones(1, np.float32)}
        for name, value in values.items():
            fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())
        wanted = [main.global_block().var(name) for name in values]
        fluid.io.save_vars(fluid.Executor(), str(tmp_path), main, vars=wanted)
        load_persistables_for_increment(str(tmp_path), fluid.Executor(), server, "table", str(tmp_path / "part"))
        held = fluid.global_scope().var("table").get_selected_rows()
        assert held.rows() == [4]
        np.testing.assert_array_equal(held.value, [[7, 8]])
