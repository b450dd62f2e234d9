"""What `--replicas` takes and refuses, what roles find, and who is started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.launch.blueprint import draw
from fluidtool.distribute.launch.plans import Elastic, Role, other_copy, with_copies
from fluidtool.distribute.launch.recovery import NothingSaved, Recovery, SavedIn
from fluidtool.distribute.pserver.replicas.making import Replication
from fluidtool.errors import EXIT_SUPERSEDED, UsageError
from fluidtool.workflows.launch import LaunchOptions, launch
from tests.cli.support import call, error_of
from tests.distribute.launch.jobs import transpile, write_programs

ENDS = ("127.0.0.1:6174", "127.0.0.1:6175")
OTHERS = ("127.0.0.1:7174", "127.0.0.1:7175")
SERVER, TRAINER = Role("pserver_0", "pserver", ("run", "job/pserver_0")), Role("trainer_0", "trainer", ())
SECOND = Role("pserver_0_replica", "pserver", ())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    return transpile(write_programs(folder), "--pservers", ",".join(ENDS), "--trainers", "2")


# ---------------------------------------------------------------- roles
def test_each_server_is_started_twice_and_finds_which_copy_it_is(job: Path, tmp_path: Path) -> None:
    roles = draw(job, replicas=2).roles(ENDS, tmp_path, OTHERS)
    names = ["pserver_0", "pserver_0_replica", "pserver_1", "pserver_1_replica", "trainer_0", "trainer_1"]
    assert [role.name for role in roles] == names
    assert [role.environment.get("FLUIDTOOL_REPLICA") for role in roles] == ["0", "1", "0", "1", None, None]
    both = ",".join(f"{one}={other}" for one, other in zip(ENDS, OTHERS, strict=True))
    assert {role.environment["FLUIDTOOL_REPLICAS"] for role in roles} == {both}


def test_both_copies_run_the_same_program() -> None:
    first, second, _ = with_copies((SERVER, TRAINER), dict(zip(ENDS, OTHERS, strict=True)), Path("/who-serves"))
    assert first.words == second.words == SERVER.words
    assert first.environment["FLUIDTOOL_REPLICAS_DIR"] == second.environment["FLUIDTOOL_REPLICAS_DIR"] == "/who-serves"


def test_roles_of_a_job_without_replicas_find_nothing_of_them(job: Path, tmp_path: Path) -> None:
    for role in draw(job).roles(ENDS, tmp_path):
        assert not [name for name in role.environment if "REPLICA" in name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 3}, "replicas must be 1 or 2, found 3"),
        ({"replicas": 0}, "replicas must be 1 or 2, found 0"),
        ({"elastic": Elastic(None, "report")}, "stragglers are looked for only in elastic jobs"),
    ],
)
def test_what_cannot_be_replicated_is_refused(job: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(job, **{"replicas": 2, **options})


def test_a_job_of_one_server_has_no_place_for_its_second_copy(tmp_path: Path) -> None:
    alone = transpile(write_programs(tmp_path), "--pservers", ENDS[0], "--trainers", "2")
    with pytest.raises(
        UsageError, match="are for one server, so there is no other server's machine for its second copy"
    ):
        draw(alone, replicas=2)


def test_a_script_cannot_be_replicated(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    with pytest.raises(UsageError, match="only servers of jobs of programs can have replicas"):
        draw(script, servers="2", replicas=2)


def test_trainers_without_servers_have_nothing_to_replicate(tmp_path: Path) -> None:
    ends = "127.0.0.1:6174,127.0.0.1:6175"
    collective = transpile(write_programs(tmp_path), "--mode", "collective", "--trainers", ends)
    with pytest.raises(UsageError, match="work without servers: each has all parameters"):
        draw(collective, replicas=2)


@pytest.mark.parametrize("engine", ["ray", "mpi"])
def test_an_engine_that_ends_all_roles_with_one_has_no_replicas(job: Path, engine: str) -> None:
    with pytest.raises(UsageError, match=f"the engine {engine} starts and ends all roles together"):
        launch(draw(job, replicas=2), LaunchOptions(engine=engine))


@pytest.mark.parametrize(
    ("places", "folder"),
    [("", "/shared"), (f"{ENDS[0]}=127.0.0.1:1", "/shared"), (f"{ENDS[0]}=127.0.0.1:1,{ENDS[1]}=127.0.0.1:2", "")],
    ids=["no places", "the place of one server", "no folder"],
)
def test_a_role_that_is_started_alone_must_know_where_the_copies_are(
    places: str, folder: str, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_REPLICAS", places)
    monkeypatch.setenv("FLUIDTOOL_REPLICAS_DIR", folder)
    with pytest.raises(UsageError, match=r"needs FLUIDTOOL_REPLICAS, .* and FLUIDTOOL_REPLICAS_DIR, a folder"):
        launch(draw(job, replicas=2), LaunchOptions(role="pserver_0_replica"))


def test_a_second_copy_is_no_role_of_a_job_without_replicas(job: Path) -> None:
    with pytest.raises(UsageError, match="the job has no role 'pserver_0_replica'"):
        launch(draw(job), LaunchOptions(role="pserver_0_replica"))


def test_the_command_line_says_how_to_make_a_job_that_can_be_replicated(tmp_path: Path) -> None:
    alone = transpile(write_programs(tmp_path), "--pservers", ENDS[0], "--trainers", "2")
    assert "transpile --pservers HOST:PORT,HOST:PORT" in error_of(call("launch", "--replicas", "2", str(alone)))


# ---------------------------------------------------------------- who is started again
def test_a_copy_that_was_killed_starts_alone_while_the_other_one_is_well() -> None:
    recovery = Recovery(1, replicas=True)
    assert recovery.survives(SERVER, 137, {SECOND.name, "trainer_0"})
    restart = recovery.replacement(SERVER, 0)
    assert restart is not None
    assert (restart.roles, dict(restart.steps)) == ((SERVER,), {})


def test_a_copy_that_was_replaced_starts_alone() -> None:
    assert Recovery(1, replicas=True).survives(SECOND, EXIT_SUPERSEDED, {SERVER.name})


@pytest.mark.parametrize(
    ("recovery", "failed", "code", "running"),
    [
        (Recovery(1, replicas=True), SERVER, 137, {"trainer_0"}),
        (Recovery(1, replicas=True), SERVER, 3, {SECOND.name}),
        (Recovery(1, replicas=True), TRAINER, 137, {SECOND.name}),
        (Recovery(1), SERVER, 137, {SECOND.name}),
    ],
    ids=["the other one is lost too", "it gave up", "a trainer", "no replicas"],
)
def test_otherwise_the_job_restarts(recovery: Recovery, failed: Role, code: int, running: set[str]) -> None:
    assert not recovery.survives(failed, code, running)


def test_no_copy_is_replaced_when_all_restarts_are_used_up() -> None:
    assert Recovery(2, replicas=True).replacement(SERVER, 2) is None


def test_both_copies_resume_from_the_checkpoints_of_their_server(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    class Saved(NothingSaved):
        def newest(self, roles: Any) -> int | None:
            asked.append(list(roles))
            return 4

    found = Recovery(1, saved=Saved(), replicas=True).newest((SERVER, SECOND, TRAINER))
    assert asked == [["pserver_0", "trainer_0"]]
    assert found == {"pserver_0": 4, "pserver_0_replica": 4, "trainer_0": 4}
    assert Recovery(1, saved=SavedIn(tmp_path), replicas=True).newest((SERVER, SECOND))[SECOND.name] is None


def test_copies_know_each_other_by_name() -> None:
    assert other_copy("pserver_3") == "pserver_3_replica"
    assert other_copy("pserver_3_replica") == "pserver_3"


# ---------------------------------------------------------------- servers
def description(**config: Any) -> Any:
    """What `listen_and_serv` of a small job says."""
    from fluidtool.distribute.pserver.description import describe_server

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [2]), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    chosen = fluid.DistributeTranspilerConfig()
    for name, value in config.items():
        setattr(chosen, name, value)
    transpiler = fluid.DistributeTranspiler(chosen)
    sync = not config.get("enable_dc_asgd")
    transpiler.transpile(0, main, ENDS[0], 2, sync_mode=sync, startup_program=startup)
    program = transpiler.get_pserver_program(ENDS[0])
    return describe_server(next(op for op in program.global_block().ops if op.type == "listen_and_serv"))


WHERE = {"FLUIDTOOL_REPLICAS": f"{ENDS[0]}={OTHERS[0]}", "FLUIDTOOL_REPLICA": "1", "FLUIDTOOL_REPLICAS_DIR": "/who"}


def test_a_server_listens_where_its_copy_does() -> None:
    found = Replication.from_environment(WHERE, description())
    assert found is not None
    assert found.endpoint == OTHERS[0]


def test_a_server_of_a_job_without_replicas_has_one_copy() -> None:
    assert Replication.from_environment({}, description()) is None


@pytest.mark.parametrize("missing", ["FLUIDTOOL_REPLICA", "FLUIDTOOL_REPLICAS_DIR"])
def test_a_server_must_know_which_copy_it_is_and_where_to_find_out_who_serves(missing: str) -> None:
    with pytest.raises(UsageError, match="FLUIDTOOL_REPLICA must be 0 or 1, FLUIDTOOL_REPLICAS_DIR a folder"):
        Replication.from_environment({**WHERE, missing: ""}, description())


def test_servers_that_remember_what_trainers_have_read_are_refused() -> None:
    with pytest.raises(UsageError, match=r"servers of delay compensation \(DC-ASGD\) remember"):
        Replication.from_environment(WHERE, description(enable_dc_asgd=True))
