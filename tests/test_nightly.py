"""Every campaign runs each night, for hours and with other cases than the night before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fuzz.__main__ import targets

WORKFLOW = Path(__file__).parents[1] / ".github/workflows/nightly.yml"


@pytest.fixture
def jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return jobs


def test_every_target_has_a_job(jobs: dict[str, Any]) -> None:
    assert jobs["campaign"]["strategy"]["matrix"]["target"] == targets()


def test_the_seed_is_another_one_each_night(jobs: dict[str, Any]) -> None:
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "tests.fuzz" in step.get("run", "")]
    assert len(commands) == len(jobs)
    assert all("--seed ${{ github.run_number }}" in command for command in commands)
