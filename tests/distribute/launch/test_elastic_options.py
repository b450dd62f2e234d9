"""What `--elastic` and `--stragglers` take and refuse, what roles find, and who is started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.checkpoints import save
from fluidtool.distribute.launch.blueprint import Blueprint, draw
from fluidtool.distribute.launch.plans import Elastic, Role
from fluidtool.distribute.launch.progress import Note, ProgressFile, Report, Reporter
from fluidtool.distribute.launch.recovery import NothingSaved, Recovery, SavedByServers, SavedIn
from fluidtool.distribute.metrics.exposition import rendered
from fluidtool.distribute.metrics.roles import of_trainers
from fluidtool.errors import UsageError
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.launch import LaunchOptions, launch
from tests.cli.support import call, error_of
from tests.distribute.launch.jobs import transpile, write_data, write_programs
from tests.distribute.launch.support import run, toy

ROLES = tuple(Role(name, name.rpartition("_")[0], ()) for name in ("pserver_0", "pserver_1", "trainer_0", "trainer_1"))
SERVER, OTHER, FIRST, SECOND = ROLES


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    return transpile(write_programs(folder), "--pservers", "127.0.0.1:6174", "--trainers", "3")


def drawn(path: Path, least: int | None = 1, stragglers: str = "", **options: Any) -> Blueprint:
    return draw(path, elastic=Elastic(least, stragglers), **options)


# ---------------------------------------------------------------- the job
def test_roles_find_how_many_trainers_are_needed_and_are_started(job: Path, tmp_path: Path) -> None:
    roles = drawn(job, 1, "drop:3", trainers="2").roles(("127.0.0.1:6174",), tmp_path)
    assert [role.name for role in roles] == ["pserver_0", "trainer_0", "trainer_1"]
    for role in roles:
        found = {name: text for name, text in role.environment.items() if name.startswith("FLUIDTOOL_")}
        assert found == {
            "FLUIDTOOL_ELASTIC": "1",
            "FLUIDTOOL_ELASTIC_TRAINERS": "2",
            "FLUIDTOOL_STRAGGLERS": "drop:3",
        }


def test_roles_of_a_job_that_is_not_elastic_find_nothing_of_it(job: Path, tmp_path: Path) -> None:
    for role in draw(job).roles(("127.0.0.1:6174",), tmp_path):
        assert not [name for name in role.environment if "ELASTIC" in name or "STRAGGLERS" in name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"least": 4}, "at least 4 trainers is started with 3; expected 1 to 3"),
        ({"least": 2, "trainers": "1"}, "at least 2 trainers is started with 1; expected 1 to 1"),
        ({"trainers": "4"}, "are for the trainers 3, not 4"),
        ({"least": None, "trainers": "2"}, "are for the trainers 3, not 2"),
        ({"least": None, "stragglers": "drop"}, "can be left out only where trainers may leave"),
        ({"stragglers": "sometimes"}, "--stragglers must be report or drop"),
        ({"sync": False, "stragglers": "report"}, "only synchronous jobs with parameter servers have rounds"),
    ],
)
def test_what_cannot_be_elastic_is_refused(job: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        drawn(job, **options)


def test_a_script_cannot_be_elastic(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError, match="is a script, which decides itself what each trainer learns"):
        drawn(tmp_path / "train.py", trainers="2")


def test_trainers_without_servers_cannot_be_elastic(tmp_path: Path) -> None:
    ends = "127.0.0.1:6174,127.0.0.1:6175"
    path = transpile(write_programs(tmp_path), "--mode", "collective", "--trainers", ends)
    with pytest.raises(UsageError, match="work without servers and sum their gradients in rings of a fixed size"):
        drawn(path)


def test_a_job_for_one_trainer_cannot_be_elastic(tmp_path: Path) -> None:
    path = transpile(write_programs(tmp_path), "--pservers", "127.0.0.1:6174", "--trainers", "1")
    with pytest.raises(UsageError, match="are for one trainer, so none can join or leave"):
        drawn(path)


@pytest.mark.parametrize("engine", ["ray", "mpi"])
def test_engines_that_end_all_roles_together_refuse_elastic_jobs(job: Path, engine: str) -> None:
    with pytest.raises(UsageError, match=f"the engine {engine} starts and ends all roles together"):
        launch(drawn(job), LaunchOptions(engine))


def test_options_of_launch_behind_the_job_are_refused(job: Path) -> None:
    done = call("launch", job, "--elastic", "1")
    assert "put options of launch before it" in error_of(done)


@pytest.mark.parametrize("kind", ["stream", "fixed"])
def test_data_that_cannot_be_shared_anew_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = write_programs(tmp_path)
    path = transpile(programs, "--pservers", "127.0.0.1:6174", "--trainers", "2")
    monkeypatch.setenv("FLUIDTOOL_ELASTIC", "1")
    data = write_data(tmp_path)
    if kind == "stream":
        sizes = [(step, feed, width) for step in range(4) for feed, width in enumerate((40, 1))]
        arrays: dict[str, Any] = {
            f"step{step}_feed{feed}": np.ones((4, width), np.float32) for step, feed, width in sizes
        }
        np.savez(data, **arrays)
    else:
        monkeypatch.setattr("fluidtool.training.programs.TrainingPrograms.batch_size", property(lambda self: 4))
    done = call("run", path / "trainer_0", "--data", data)
    wanted = "cannot be shared by a number of trainers" if kind == "stream" else "declared for batches of 4"
    assert wanted in error_of(done)


# ---------------------------------------------------------------- who starts again
def test_a_trainer_of_an_elastic_job_starts_again_alone(tmp_path: Path) -> None:
    save(tmp_path, "trainer_0", 30, {"x": LoDTensor(np.ones(1, np.float32))})
    found = Recovery(1, True, SavedIn(tmp_path), least=1).after(FIRST, ROLES, 0)
    assert (
        found is not None and [role.name for role in found.roles] == ["trainer_0"] and found.steps == {"trainer_0": 30}
    )


def test_all_roles_start_again_with_a_server_from_what_the_servers_have(tmp_path: Path) -> None:
    for name, step in (("pserver_0", 20), ("pserver_1", 20), ("pserver_0", 30), ("trainer_1", 10)):
        save(tmp_path, name, step, {"x": LoDTensor(np.ones(1, np.float32))})
    found = Recovery(1, True, SavedIn(tmp_path), least=1).after(SERVER, ROLES, 0)
    assert found is not None and found.roles == ROLES
    assert found.steps == {"pserver_0": 20, "pserver_1": 20, "trainer_0": None, "trainer_1": 10}


def test_a_role_that_is_started_alone_looks_at_what_all_servers_have(tmp_path: Path) -> None:
    for name, step in (("pserver_0", 20), ("pserver_1", 20), ("pserver_0", 30), ("trainer_1", 10)):
        save(tmp_path, name, step, {"x": LoDTensor(np.ones(1, np.float32))})
    saved = SavedByServers(tmp_path, ("pserver_0", "pserver_1"))
    assert (saved.newest(["pserver_0"]), saved.newest(["trainer_1"])) == (20, 10)


@pytest.mark.parametrize(
    ("least", "failed", "running", "done", "expected"),
    [
        (2, FIRST, 2, 0, True),
        (2, FIRST, 1, 0, False),
        (2, FIRST, 1, 1, False),
        (2, FIRST, 0, 1, True),
        (1, FIRST, 0, 0, False),
        (1, SERVER, 5, 0, False),
        (None, FIRST, 5, 0, False),
    ],
)
def test_a_job_continues_without_a_trainer_while_enough_are_left(
    least: int | None, failed: Role, running: int, done: int, expected: bool
) -> None:
    assert Recovery(0, True, NothingSaved(), least=least).goes_on_without(failed, running, done) is expected


def test_the_supervisor_does_without_a_trainer_and_ends_well(tmp_path: Path) -> None:
    roles = [toy("trainer_0", "time.sleep(1); report(1)"), toy("trainer_1", "sys.exit(3)")]
    outcome, view = run(roles, tmp_path, recovery=Recovery(least=1))
    assert outcome.exit_code == 0
    assert [event["event"] for event in view.events] == ["start", "without", "done"]
    assert "trainer_1 failed with exit code 3; the job continues without it" in view.texts


def test_the_supervisor_ends_a_job_that_is_left_with_too_few(tmp_path: Path) -> None:
    roles = [toy("trainer_0", "time.sleep(30)"), toy("trainer_1", "sys.exit(3)")]
    outcome, _ = run(roles, tmp_path, recovery=Recovery(least=2))
    assert outcome.exit_code == 3


# ---------------------------------------------------------------- what servers say of trainers
def test_the_supervisor_shows_what_a_server_says_of_trainers(tmp_path: Path) -> None:
    notes = [{"event": "join", "text": "it joins", "trainer": 0, "round": 4}]
    notes += [{"event": "late", "text": f"late {n}", "trainer": 0, "round": n, "times": n} for n in (1, 2, 3)]
    write = f'file = open(os.environ["FLUIDTOOL_PROGRESS"], "a"); file.write({"".join(json.dumps(n) + chr(10) for n in notes)!r})'
    roles = [toy("pserver_0", f"{write}; file.close()"), toy("trainer_0", "time.sleep(1); report(1)")]
    outcome, view = run(roles, tmp_path)
    shown = [(event["event"], event["role"], event["round"]) for event in view.events if "round" in event]
    assert shown == [("join", "trainer_0", 4), ("late", "trainer_0", 1), ("late", "trainer_0", 2)]
    assert {role.name: role.late for role in outcome.roles} == {"pserver_0": 0, "trainer_0": 3}


def test_notes_come_back_as_they_were_written(tmp_path: Path) -> None:
    reporter, notes = Reporter(tmp_path / "notes"), [Note("late", "t", 1, 7, 2), Note("leave", "u", 0, 0)]
    for note in notes:
        reporter.tell(note)
    reporter.report(Report(3))
    reporter.close()
    assert ProgressFile(tmp_path / "notes").read() == [*notes, Report(3)]


@pytest.mark.parametrize(
    "line",
    [
        {"event": "late", "text": "t", "trainer": -1, "round": 1},
        {"event": "late", "text": 5, "trainer": 1, "round": 1},
        {"event": "late", "text": "t", "trainer": "1", "round": 1},
        {"event": "burnt", "text": "t", "trainer": 1, "round": 1},
    ],
)
def test_what_is_no_note_is_left_out(tmp_path: Path, line: dict[str, Any]) -> None:
    (tmp_path / "notes").write_text(json.dumps(line) + "\n")
    file = ProgressFile(tmp_path / "notes")
    assert file.read() == [] and file.faults == 1


def test_metrics_say_who_was_late_and_who_came_and_went() -> None:
    text = rendered(of_trainers({1: 0.5}, {0: 3}, {"join": 2, "late": 9}))
    assert 'fluidtool_arrival_seconds{trainer="1"} 0.5' in text
    assert 'fluidtool_late_rounds_total{trainer="0"} 3' in text
    assert 'fluidtool_membership_changes_total{kind="join"} 2' in text
    assert 'fluidtool_membership_changes_total{kind="left_out"} 0' in text and 'kind="late"' not in text
