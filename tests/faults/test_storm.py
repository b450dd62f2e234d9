"""A distributed job in synchronous mode that is disturbed learns the same bits (`python -m tests.faults.storm` does more)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")

from tests.faults.proxy import WAYS
from tests.faults.storm import prepare, storm_of_kills, storm_of_network

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job; what it learns in peace is learnt once."""
    made = tmp_path_factory.mktemp("storm")
    prepare(made)
    return made


def test_roles_that_are_killed_and_halted(folder: Path) -> None:
    outcome = storm_of_kills(folder, folder / "job", faults=2, seed=2, epochs=20)
    assert (outcome.faults, outcome.wrong) == ({"killed": 1, "halted for a while": 1}, [])


@pytest.mark.parametrize("way", list(WAYS))
def test_a_network_that_delays_drops_and_repeats(folder: Path, way: str) -> None:
    outcome = storm_of_network(folder, folder / "job", faults=3, seed=21 + list(WAYS).index(way), way=way)
    assert outcome.wrong == []
    assert outcome.faults.total() > 0
