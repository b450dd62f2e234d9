"""`fluidtool.make_job`: the programs of every role of a distributed job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fluidtool
from fluidtool.distribute.launch.jobs import check_endpoints, read_job
from fluidtool.errors import OutputExistsError, UsageError
from fluidtool.workflows.job import plan_job

A, B = "127.0.0.1:6170", "127.0.0.1:6171"
DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"


@pytest.fixture
def programs(digits_training: Path) -> tuple[Path, Path]:
    return digits_training / "main.pb", digits_training / "startup.pb"


def make(programs: tuple[Path, Path], output: Path, environment: dict[str, str] | None = None, **asked: Any) -> Any:
    return fluidtool.make_job(*programs, output, fluidtool.JobRequest(**asked), environment=environment or {})


def test_every_role_is_written_and_the_folder_is_a_job(programs: tuple[Path, Path], tmp_path: Path) -> None:
    made = make(programs, tmp_path / "job", pservers=f"{A},{B}", trainers="2")
    assert [role.name for role in made.roles] == ["trainer_0", "trainer_1", "pserver_0", "pserver_1"]
    job = read_job(tmp_path / "job")
    check_endpoints(job)
    assert job.manifest == made.manifest and [member.name for member in job.roles] == [r.name for r in made.roles]


@pytest.mark.parametrize("mode", ["nccl2", "collective"])
def test_trainers_without_servers(programs: tuple[Path, Path], tmp_path: Path, mode: str) -> None:
    make(programs, tmp_path / "job", mode=mode, trainers=f"{A},{B}")
    assert read_job(tmp_path / "job").cluster.trainer_endpoints == (A, B)


def test_the_environment_says_what_is_left_out(programs: tuple[Path, Path], tmp_path: Path) -> None:
    environment = {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_PSERVERS_IP_PORT_LIST": A,
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "1",
    }
    assert [role.name for role in make(programs, tmp_path / "job", environment).roles] == ["trainer_1"]
    everybody = make(programs, tmp_path / "all", environment, all_roles=True)
    assert [role.name for role in everybody.roles] == ["trainer_0", "trainer_1", "pserver_0"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"trainers": "2"}, "no parameter servers; give pservers="),
        ({"pservers": A}, "nothing says the number of the trainers; give trainers="),
        ({"pservers": A, "trainers": "two"}, "trainers must be a number, found"),
        ({"pservers": A, "trainers": "2", "mode": "ring"}, "there is no mode 'ring'"),
        ({"pservers": A, "trainers": "2", "split_method": "alphabet"}, "expected RoundRobin or HashName"),
        ({"pservers": A, "trainers": "2", "all_roles": True, "trainer_id": 0}, "contradict each other"),
    ],
)
def test_what_cannot_work_writes_nothing(
    programs: tuple[Path, Path], tmp_path: Path, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make(programs, tmp_path / "job", **asked)
    assert not (tmp_path / "job").exists()


def test_a_startup_program_of_another_program_is_refused(programs: tuple[Path, Path], tmp_path: Path) -> None:
    main, _ = programs
    request = fluidtool.JobRequest(pservers=A, trainers="2")
    with pytest.raises(UsageError, match="initializes none of the parameters"):
        fluidtool.make_job(main, DIGITS, tmp_path / "job", request, environment={})
    with pytest.raises(UsageError, match="initializes none of the parameters"):
        plan_job(main, DIGITS, request, environment={})
    assert not (tmp_path / "job").exists()


def test_a_job_is_replaced_only_when_asked(programs: tuple[Path, Path], tmp_path: Path) -> None:
    make(programs, tmp_path / "job", pservers=A, trainers="1")
    with pytest.raises(OutputExistsError):
        make(programs, tmp_path / "job", pservers=A, trainers="2")
    request = fluidtool.JobRequest(pservers=A, trainers="2")
    fluidtool.make_job(*programs, tmp_path / "job", request, overwrite=True, environment={})
    assert read_job(tmp_path / "job").cluster.trainers == 2


def test_a_plan_says_what_lives_on_which_server(programs: tuple[Path, Path]) -> None:
    plan = plan_job(*programs, fluidtool.JobRequest(pservers=f"{A},{B}", trainers="2"), environment={})
    assert plan.settings.servers == (A, B)
    with pytest.raises(UsageError, match="collective mode has none"):
        plan_job(*programs, fluidtool.JobRequest(mode="collective", trainers=f"{A},{B}"), environment={})
