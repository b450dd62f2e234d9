"""A server looks for cyclic garbage seldom, and leaves the collector as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fluidtool.distribute.pserver.garbage import THRESHOLDS, seldom_collected
from tests.distribute.pserver.support import line, running, server_role, start, until


@pytest.fixture(autouse=True)
def thresholds_of_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_thresholds_are_raised_while_a_server_serves_and_restored_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.set_threshold(700, 10, 10)
    role = server_role(line())
    with running(role.main, start(role), monkeypatch) as server:
        until(lambda: gc.get_threshold() == THRESHOLDS)
        server.handler.stop()
        server.wait()
    assert gc.get_threshold() == (700, 10, 10)


def test_they_are_restored_when_a_server_fails() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ValueError, match="broken"), seldom_collected():
        raise ValueError("broken")
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (100_000, 5, 5)])
def test_a_collector_that_is_off_or_looks_more_seldom_stays_as_it_is(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    with seldom_collected():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen
