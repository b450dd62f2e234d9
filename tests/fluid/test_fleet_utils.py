"""`fluid.incubate.fleet.utils`: programs in files, Hadoop's files, trainers that wait for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluidtool import fluid
from fluidtool.errors import UnreadableError
from fluidtool.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from fluidtool.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from fluidtool.fluid.incubate.fleet.utils import fleet_barrier_util, utils
from fluidtool.fluid.incubate.fleet.utils.hdfs import HDFSClient
from fluidtool.ir import Program
from tests.support.hadoop import hadoop


def network(size: int = 2) -> Program:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        fluid.layers.fc(x, size, act="relu")
    return program


# ---------------------------------------------------------------- programs in files
@pytest.mark.parametrize("is_text", [False, True])
def test_a_saved_program_is_loaded(tmp_path: Path, is_text: bool) -> None:
    path = str(tmp_path / "program")
    program = network()
    utils.save_program(program, path, is_text)
    assert str(utils.load_program(path, is_text)) == str(program)


def test_a_program_becomes_text_and_a_program_again(tmp_path: Path) -> None:
    utils.save_program(network(), str(tmp_path / "p"))
    assert utils.program_type_trans(str(tmp_path), "p", False) == "p.pbtxt"
    assert utils.program_type_trans(str(tmp_path), "p.pbtxt", True) == "p.pbtxt.bin"
    assert (tmp_path / "p.pbtxt.bin").read_bytes() == (tmp_path / "p").read_bytes()


def test_what_is_not_the_text_of_a_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.pbtxt").write_text("blocks { nonsense: 1 }")
    with pytest.raises(UnreadableError, match=r"p.pbtxt is not the text of a Fluid program: .*nonsense"):
        utils.load_program(str(tmp_path / "p.pbtxt"), is_text=True)


def test_a_pruned_program_has_the_parameters_of_the_whole_one() -> None:
    assert utils.check_pruned_program_vars(network(), network())
    assert not utils.check_pruned_program_vars(network(), network(size=4))


def test_a_parameter_that_the_whole_program_lacks_is_logged_alone(caplog: pytest.LogCaptureFixture) -> None:
    utils.logger.propagate = True
    assert utils.check_pruned_program_vars(fluid.Program(), network())
    assert "not find variable 'fc_0.w_0' in train program" in caplog.text


def test_what_a_program_has_is_written_line_by_line(tmp_path: Path) -> None:
    utils.parse_program(network(), str(tmp_path))
    lines = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert [len(lines[name]) for name in ("vars_persistable.log", "vars_all.log", "ops.log")] == [3, 7, 4]
    assert lines["vars_persistable.log"][0] == "persistable vars:"
    assert "'name': 'fc_0.w_0', 'shape': '(3, 2)', 'lod_level': 0" in "".join(lines["vars_persistable.log"])


def test_a_block_is_drawn(tmp_path: Path) -> None:
    utils.graphviz(network().global_block(), str(tmp_path), "network")
    assert "relu" in (tmp_path / "network.dot").read_text()


# ---------------------------------------------------------------- Hadoop
@pytest.fixture
def client(tmp_path: Path) -> HDFSClient:
    return HDFSClient(str(hadoop(tmp_path / "hadoop")), {"fs.default.name": "hdfs://nowhere"})


def test_a_file_is_read(client: HDFSClient, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(" here\n")
    assert client.cat(str(tmp_path / "a")) == "here"
    assert [client.cat(str(tmp_path)), client.cat(str(tmp_path / "b"))] == ["", ""]


def test_files_below_a_folder_without_some(client: HDFSClient, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "remote" / name).mkdir(parents=True)
        (tmp_path / "remote" / name / "part").write_text(name)
    excluded = str(tmp_path / "remote" / "b" / "part")
    found = client.lsr(str(tmp_path / "remote"), excludes=[excluded])
    assert found == [str(tmp_path / "remote" / name / "part") for name in ("a", "c")]


def test_a_folder_is_put_in_place_of_one_of_its_name(client: HDFSClient, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w").write_text("new")
    (tmp_path / "remote" / "model").mkdir(parents=True)
    (tmp_path / "remote" / "model" / "old").write_text("old")
    assert client.upload_dir(str(tmp_path / "remote"), str(tmp_path / "model"), overwrite=True)
    assert [path.name for path in (tmp_path / "remote" / "model").iterdir()] == ["w"]


def test_the_first_trainers_get_one_file_more() -> None:
    shares = [HDFSClient.split_files(list("abcdefg"), trainer, 3) for trainer in range(3)]
    assert shares == [["a", "b", "c"], ["d", "e"], ["f", "g"]]


# ---------------------------------------------------------------- waiting
def test_trainers_wait_until_each_has_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HADOOP_HOME", str(hadoop(tmp_path / "hadoop")))
    monkeypatch.setattr(fleet_barrier_util, "fleet", fleet_of(trainers=2))
    ready = tmp_path / "ready"
    pauses = []

    def other_trainer(seconds: float) -> None:
        pauses.append(seconds)
        (ready / "ready.5.1.done").write_text("")

    monkeypatch.setattr("time.sleep", other_trainer)
    fleet_barrier_util.check_all_trainers_ready(str(ready), 5)
    assert sorted(path.name for path in ready.iterdir()) == ["ready.5.0.done", "ready.5.1.done"]
    assert pauses == [fleet_barrier_util.PAUSE]


def fleet_of(trainers: int) -> object:
    """The fleet of the first of so many trainers."""
    made = type(fleet)()
    made.init(UserDefinedRoleMaker(0, Role.WORKER, trainers, ["127.0.0.1:6170"]))
    return made
