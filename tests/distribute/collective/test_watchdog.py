"""The watchdog of calls that cannot be interrupted."""

from __future__ import annotations

import threading
import time

from fluidtool.distribute.collective.watchdog import Watchdog


def test_it_barks_at_what_takes_too_long() -> None:
    barked = threading.Event()
    heard: list[object] = []
    dog = Watchdog(0.05, lambda what: (heard.append(what), barked.set()))
    dog.start("all_reduce")
    assert barked.wait(10)
    dog.stop()
    assert heard == ["all_reduce"]


def test_it_is_quiet_about_what_ends_in_time() -> None:
    heard: list[object] = []
    dog = Watchdog(0.2, heard.append)
    for _ in range(3):
        dog.start("all_reduce")
        dog.finish()
    time.sleep(0.5)
    dog.stop()
    assert heard == []
