"""Trainings that are killed three times save the bits of an unbroken run (FLUIDTOOL_KILLS asks for more kills)."""

from __future__ import annotations

import os

import pytest

from tests.faults.kills import SUBJECTS, kill_and_compare

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("FLUIDTOOL_KILLS", "3"))


@pytest.mark.parametrize("subject", list(SUBJECTS))
def test_killed_training_resumes_to_the_bits_of_an_unbroken_run(subject: str) -> None:
    outcome = kill_and_compare(SUBJECTS[subject], KILLS, seed=1)
    assert (outcome.kills, outcome.different) == (KILLS, ())
    assert outcome.files > 0
