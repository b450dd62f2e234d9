"""Every update of a job that is disturbed counts once (`python -m tests.faults.exactly` does more)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.faults.exactly import faults_of, prepare, storm

ROWS = 3000


class TestTheCheck:
    """Row r is the example of trainer r mod 2 in step r // 2; it has moved by as many steps as updates came since."""

    def test_any_serial_order_passes(self) -> None:
        assert faults_of(np.array([6.0, 4, 5, 2, 3, 1]), sync=False) == []
        assert faults_of(np.array([6.0, 3, 5, 2, 4, 1]), sync=False) == []

    @pytest.mark.parametrize("moved", [[6, 3, 5, 2, 4, 0], [6, 3, 5, 2, 4, 3], [7, 3, 6, 2, 5, 1], [7, 4, 6, 2, 5, 5]])
    def test_an_update_that_is_lost_or_repeated_does_not(self, moved: list[float]) -> None:
        assert "no serial order" in faults_of(np.array(moved, float), sync=False)[0]

    def test_a_trainer_s_updates_are_in_the_order_of_its_steps(self) -> None:
        found = faults_of(np.array([5.0, 4, 6, 2, 3, 1]), sync=False)
        assert found == ["the updates of trainer 0 are not in the order of its steps"]

    def test_the_rounds_of_a_synchronous_job_are_known(self) -> None:
        assert faults_of(np.array([3.0, 3, 2, 2, 1, 1]), sync=True) == []
        assert faults_of(np.array([4.0, 3, 2, 2, 1, 1]), sync=True) == ["1 rows are not as known"]


@pytest.mark.campaign
@pytest.mark.parametrize("sync", [False, True], ids=["asynchronous", "synchronous"])
def test_roles_that_are_killed_and_halted(sync: bool, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
    outcome = storm(tmp_path, prepare(tmp_path, sync, ROWS), faults=3, seed=3, sync=sync, often=50)
    assert outcome.wrong == []
    assert outcome.faults.total() > 0
