"""Job folders: what is read, refused, and written anew with other endpoints; blueprints of jobs and scripts."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

import fluidtool.fluid as fluid
from fluidtool.cli.app import run_command
from fluidtool.distribute.launch.blueprint import Blueprint, draw
from fluidtool.distribute.launch.jobs import endpoints_of, read_job
from fluidtool.distribute.launch.plans import Checkpoints, base_environment
from fluidtool.distribute.launch.ports import check_free, free_endpoints, held, loopback_endpoints
from fluidtool.errors import UnreadableError, UsageError
from fluidtool.ir import Program

A, B, C, D = (f"127.0.0.1:617{i}" for i in range(4))


def make_job(folder: Path, *options: str) -> Path:
    """A small training program, transpiled."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = fluid.layers.fc(fluid.layers.data("x", [4]), 8, act="tanh")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(hidden, 1)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in (("main", main), ("startup", startup)):
        (folder / f"{name}.pb").write_bytes(program.serialize_to_string())
    words = ["transpile", str(folder / "main.pb"), "--startup", str(folder / "startup.pb"), "--distribute", *options]
    assert run_command([*words, "-o", str(folder / "job")]) == 0
    return folder / "job"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path, "--pservers", f"{A},{B}", "--trainers", "2")


def change(job: Path, **changes: object) -> None:
    manifest = json.loads((job / "manifest.json").read_text())
    (job / "manifest.json").write_text(json.dumps(manifest | changes))


# ---------------------------------------------------------------- reading
def test_a_manifest_says_who_takes_part(job: Path) -> None:
    found = read_job(job)
    assert (found.mode, found.sync, found.cluster.servers, found.cluster.trainers) == ("pserver", True, (A, B), 2)
    assert {member.name for member in found.roles} == {"pserver_0", "pserver_1", "trainer_0", "trainer_1"}


def test_asynchronous_jobs_say_so(tmp_path: Path) -> None:
    assert read_job(make_job(tmp_path, "--pservers", A, "--trainers", "1", "--async")).sync is False


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_jobs_without_servers_have_endpoints_for_trainers(mode: str, tmp_path: Path) -> None:
    found = read_job(make_job(tmp_path, "--mode", mode, "--trainers", f"{A},{B}"))
    assert (found.cluster.mode, found.cluster.trainer_endpoints, found.sync) == ("collective", (A, B), True)


def test_a_folder_without_manifest_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"not the manifest of a job.*fluidtool.make_job"):
        read_job(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "mode": "pserver"}'])
def test_a_manifest_that_is_none_is_refused(text: str, job: Path) -> None:
    (job / "manifest.json").write_text(text)
    with pytest.raises(UnreadableError, match="manifest"):
        read_job(job)


def test_an_unknown_mode_is_refused(job: Path) -> None:
    change(job, mode="gossip")
    with pytest.raises(UnreadableError, match="mode 'gossip' is not one of pserver, nccl2, collective"):
        read_job(job)


def test_a_program_that_was_changed_is_refused(job: Path) -> None:
    with (job / "trainer_1" / "main.pb").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(UnreadableError, match=r"trainer_1/main.pb is not the file that the manifest lists"):
        read_job(job)


def test_a_program_that_is_missing_is_refused(job: Path) -> None:
    (job / "pserver_0" / "startup.pb").unlink()
    with pytest.raises(UnreadableError, match=r"pserver_0/startup.pb, which the manifest lists, cannot be read"):
        read_job(job)


def test_files_outside_the_folder_are_refused(job: Path) -> None:
    manifest = json.loads((job / "manifest.json").read_text())
    manifest["roles"][0]["main"]["file"] = "../main.pb"
    change(job, roles=manifest["roles"])
    with pytest.raises(UnreadableError, match="not below its folder"):
        read_job(job)


def test_a_job_of_one_trainer_s_programs_is_not_whole(tmp_path: Path) -> None:
    job = make_job(tmp_path, "--pservers", A, "--trainers", "2", "--trainer-id", "1")
    with pytest.raises(UsageError, match=r"has no programs for pserver_0, trainer_0; write those of all roles"):
        read_job(job)
    assert [member.name for member in read_job(job, whole=False).roles] == ["trainer_1"]


# ---------------------------------------------------------------- other endpoints
def test_a_job_is_moved_to_other_endpoints(job: Path, tmp_path: Path) -> None:
    roles = draw(job).roles((C, D), tmp_path / "moved")
    moved = read_job(tmp_path / "moved" / "job")
    assert moved.cluster.servers == (C, D)
    assert [member.endpoint for member in moved.roles if member.kind == "pserver"] == [C, D]
    for member in moved.roles:
        for kind in ("main", "startup"):
            program = Program.parse_from_string((moved.folder(member) / f"{kind}.pb").read_bytes())
            assert {A, B}.isdisjoint(endpoints_of(program))
    assert roles[0].words[:2] == ("run", str(tmp_path / "moved" / "job" / "pserver_0"))


def test_a_job_without_servers_is_moved(tmp_path: Path) -> None:
    job = make_job(tmp_path, "--mode", "collective", "--trainers", f"{A},{B}")
    draw(job).roles((D, C), tmp_path / "moved")
    startup = Program.parse_from_string((tmp_path / "moved" / "job" / "trainer_1" / "startup.pb").read_bytes())
    assert set(endpoints_of(startup)) == {C, D}


def test_a_job_at_its_own_endpoints_is_used_as_it_is(job: Path, tmp_path: Path) -> None:
    roles = draw(job, arguments=["--data", "x.npz"]).roles((A, B), tmp_path / "moved")
    assert [role.words for role in roles if role.name in ("pserver_1", "trainer_0")] == [
        ("run", str(job / "pserver_1"), "--allow-network"),
        ("run", str(job / "trainer_0"), "--allow-network", "--data", "x.npz"),
    ]
    assert not (tmp_path / "moved").exists()


def test_programs_talk_to_no_machine_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    job = make_job(tmp_path, "--pservers", f"10.0.0.1:6174,{B}", "--trainers", "2")
    change(job, pservers=[A, B])
    with pytest.raises(UnreadableError, match=r"connects to 10.0.0.1:6174, which .*manifest.json does not name"):
        draw(job).roles((A, B), tmp_path)


def test_a_device_is_no_endpoint() -> None:
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="x", shape=[1], dtype="float32")
    block.append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]}, attrs={"op_device": "gpu:0"})
    assert endpoints_of(program) == ()


# ---------------------------------------------------------------- blueprints
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text("")
    return tmp_path / "script.py"


def test_a_script_is_run_by_every_role(tmp_path: Path) -> None:
    found = draw(script(tmp_path), servers="2", trainers="3", arguments=["--epochs", "2"])
    roles = found.roles((A, B), tmp_path)
    assert [role.name for role in roles] == ["pserver_0", "pserver_1", "trainer_0", "trainer_1", "trainer_2"]
    assert {role.words for role in roles} == {("exec", str(tmp_path / "script.py"), "--epochs", "2")}
    assert roles[1].environment["PADDLE_PORT"] == "6171"


def test_endpoints_may_be_named(tmp_path: Path) -> None:
    assert draw(script(tmp_path), servers=f"{A},{B}").endpoints == (A, B)
    found = draw(script(tmp_path), mode="collective", trainers=f"{A},{B}")
    assert (found.servers, found.trainers, found.endpoints) == (0, 2, (A, B))


def test_checkpoints_stand_in_the_environment_of_every_role(tmp_path: Path) -> None:
    found = draw(script(tmp_path), checkpoints=Checkpoints(tmp_path / "kept", 5, 3))
    for role in found.roles((A,), tmp_path):
        own = {name: value for name, value in role.environment.items() if name.startswith("FLUIDTOOL_CHECKPOINT")}
        assert own == {
            "FLUIDTOOL_CHECKPOINT_DIR": str(tmp_path / "kept"),
            "FLUIDTOOL_CHECKPOINT_EVERY": "5",
            "FLUIDTOOL_CHECKPOINT_KEEP": "3",
        }


def test_what_is_said_again_must_not_contradict_the_folder(job: Path) -> None:
    assert isinstance(draw(job, mode="pserver", servers=f"{A},{B}", trainers="2"), Blueprint)
    with pytest.raises(UsageError, match=r"the programs in .* are for pserver mode, not collective"):
        draw(job, mode="collective")
    with pytest.raises(UsageError, match=r"the programs in .* are for the trainers 2, not 3"):
        draw(job, trainers="3")
    with pytest.raises(UsageError, match=f"the programs in .* are for the pservers {A}, {B}, not {A}"):
        draw(job, servers=A)


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no mode 'ring'"):
        draw(script(tmp_path), mode="ring")
    with pytest.raises(UsageError, match="is not a job: neither a folder"):
        draw(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="pservers must be at least 1, found 0"):
        draw(script(tmp_path), servers="0")
    with pytest.raises(UsageError, match="with servers, trainers must be a number"):
        draw(script(tmp_path), trainers=f"{A},{B}")
    with pytest.raises(UsageError, match="has no servers; omit servers="):
        draw(script(tmp_path), mode="collective", servers="2")
    with pytest.raises(UsageError, match="pservers must list host:port"):
        draw(script(tmp_path), servers="a,b")


# ---------------------------------------------------------------- ports
def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=rf"{endpoint} is taken: .*any_ports=True"):
            check_free([endpoint])


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(UsageError, match=r"203.0.113.9:6174 is not an address of this machine .*any_ports=True"):
        check_free(["203.0.113.9:6174"])


def test_free_endpoints_are_free_and_differ() -> None:
    found = free_endpoints(3)
    check_free(found)
    assert len(set(found)) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_held_port_is_taken_for_the_system_and_free_for_a_role() -> None:
    """Linux gives a port to those who ask for any where one could be bound that does not share its address."""
    (endpoint,) = free_endpoints(1)
    address = "127.0.0.1", int(endpoint.rpartition(":")[2])
    with held([endpoint]):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        check_free([endpoint])
        with socket.create_server(address), pytest.raises(UsageError, match=f"{endpoint} is taken"):
            check_free([endpoint])
    with socket.socket() as other:
        other.bind(address)


def test_endpoints_of_scripts_share_a_port_where_the_system_has_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert loopback_endpoints(2, 6174) == ("127.0.0.1:6174", "127.0.0.2:6174")
    monkeypatch.setattr("sys.platform", "darwin")
    assert loopback_endpoints(2, 6174) == ("127.0.0.1:6174", "127.0.0.1:6175")


def test_roles_share_the_processors_unless_the_user_decides() -> None:
    found = base_environment(1000, {"OMP_NUM_THREADS": "3", "PADDLE_TRAINER_ID": "7"})
    assert (found["OMP_NUM_THREADS"], found["FLUIDTOOL_THREADS"]) == ("3", "1")
    assert "PADDLE_TRAINER_ID" not in found
