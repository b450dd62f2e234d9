"""`fluidtool.launch`: all roles of a job, until it is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fluidtool
from fluidtool.distribute.launch.blueprint import Blueprint, draw
from fluidtool.distribute.launch.plans import Checkpoints
from fluidtool.distribute.launch.status import RoleStatus, View
from fluidtool.errors import OutputExistsError, UsageError


class Lines:
    """A view that remembers what roles wrote."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []

    def line(self, role: str, text: str, is_error: bool) -> None:
        self.written.append((role, text))

    def event(self, text: str, **fields: Any) -> None: ...
    def status(self, roles: Sequence[RoleStatus]) -> None: ...


@pytest.fixture
def script(tmp_path: Path) -> Blueprint:
    """A job of two trainers that say their number and leave with it."""
    path = tmp_path / "script.py"
    path.write_text("import os, sys\nprint('I am', os.environ['PADDLE_TRAINER_ID'])\nsys.exit(int(sys.argv[1]))\n")
    return draw(path, mode="collective", trainers="2", arguments=["0"])


@pytest.mark.slow
def test_a_job_runs_until_all_trainers_are_done(script: Blueprint) -> None:
    lines = Lines()

    @contextmanager
    def show(roles: Sequence[str]) -> Iterator[View]:
        assert roles == ["trainer_0", "trainer_1"]
        yield lines

    result = fluidtool.launch(script, fluidtool.LaunchOptions(any_ports=True), show=show)
    assert result.exit_code == 0 and result.outcome is not None and result.outcome.restarts == 0
    assert sorted(lines.written) == [("trainer_0", "I am 0"), ("trainer_1", "I am 1")]


@pytest.mark.slow
def test_a_role_that_fails_ends_the_job_with_its_exit_code(script: Blueprint) -> None:
    result = fluidtool.launch(replace(script, arguments=("7",)), fluidtool.LaunchOptions(any_ports=True))
    assert result.exit_code == 7 and result.outcome is not None and "trainer_" in result.outcome.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "slurm"}, "expected one of local, ray, mpi"),
        ({"ray_address": "auto"}, "give engine='ray'"),
        ({"resume": True}, "checkpoints="),
        ({"engine": "mpi", "restarts": 1}, "MPI ends a whole job"),
        ({"engine": "mpi"}, "give play= to run it"),
    ],
)
def test_what_cannot_work_is_refused(script: Blueprint, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fluidtool.launch(script, fluidtool.LaunchOptions(**options))


def test_checkpoints_of_another_run_are_not_mixed_in(script: Blueprint, tmp_path: Path) -> None:
    (tmp_path / "saved" / "trainer_1").mkdir(parents=True)
    with pytest.raises(OutputExistsError, match="checkpoints of trainer_1"):
        fluidtool.launch(replace(script, checkpoints=Checkpoints(tmp_path / "saved")))
