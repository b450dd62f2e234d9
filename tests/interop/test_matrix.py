"""What the table of roles says of jobs that fail, and of those that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interop.matrix import MIXTURES, TRIES, Mode, Processes, Roles, cells


class Jobs:
    """Stands for jobs: those in which all roles are real fail so many times, the others never."""

    def __init__(self, failures: int) -> None:
        self.failures, self.folders = failures, list[Path]()

    def play(self, paddle: str, processes: Processes, folder: Path, roles: Roles) -> list[dict[str, Any]]:
        self.folders.append(folder)
        is_control = roles == MIXTURES["all real"]
        if is_control and self.failures:
            self.failures -= 1
            raise AssertionError("Paddle aborted")
        return [{"losses": np.array([3.0 if is_control else 2.0])}]


def said(jobs: Jobs, folder: Path) -> dict[str, str]:
    return cells(Mode("a mode", jobs.play), "python", folder)


def others(cells: dict[str, str]) -> Sequence[str]:
    return [cells[name] for name in MIXTURES if name != "all real"]


def test_jobs_are_compared_with_the_one_that_is_all_real(tmp_path: Path) -> None:
    found = said(Jobs(0), tmp_path)
    assert found["all real"] == "loss 3"
    assert others(found) == ["1.0e+00"] * 5


@pytest.mark.parametrize("failures", range(1, TRIES))
def test_a_job_that_is_all_real_and_fails_is_played_again(tmp_path: Path, failures: int) -> None:
    jobs = Jobs(failures)
    assert said(jobs, tmp_path)["all real"] == "loss 3"
    assert len({*jobs.folders}) == len(jobs.folders) == len(MIXTURES) + failures


def test_without_a_job_that_is_all_real_nothing_is_compared(tmp_path: Path) -> None:
    found = said(Jobs(TRIES), tmp_path)
    assert found["all real"] == "FAILED: Paddle aborted"
    assert others(found) == ["nothing to compare with"] * 5


def test_other_jobs_are_played_once(tmp_path: Path) -> None:
    def play(paddle: str, processes: Processes, folder: Path, roles: Roles) -> list[dict[str, Any]]:
        if roles == MIXTURES["all ours"]:
            raise AssertionError("it failed")
        return [{"losses": np.array([1.0])}]

    found = cells(Mode("a mode", play), "python", tmp_path)
    assert found["all ours"] == "FAILED: it failed"
    assert found["our servers, real trainers"] == "0.0e+00"
