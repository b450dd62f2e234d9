"""Locks that a fork leaves open in the child."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable

import pytest

from fluidtool import locks

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def child_says(ask: Callable[[], bool]) -> bool:
    """What `ask` finds in the child of a fork."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if ask() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def held_elsewhere(lock: threading.Lock) -> threading.Event:
    """Have another thread hold the lock until the event is set."""
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            free.wait()

    threading.Thread(target=hold, daemon=True).start()
    taken.wait()
    return free


@needs_fork
def test_a_child_can_take_a_lock_that_another_thread_of_its_parent_holds() -> None:
    lock = locks.lock()
    free = held_elsewhere(lock)
    try:
        assert child_says(lambda: lock.acquire(blocking=False))
        assert lock.locked()
    finally:
        free.set()


@needs_fork
def test_in_the_child_too_only_one_thread_has_a_lock() -> None:
    lock = locks.lock()
    free = held_elsewhere(lock)
    try:
        assert child_says(lambda: lock.acquire(blocking=False) and not lock.acquire(blocking=False))
    finally:
        free.set()


@needs_fork
def test_a_lock_of_threading_itself_stays_locked_in_the_child() -> None:
    """What these locks are for."""
    lock = threading.Lock()
    free = held_elsewhere(lock)
    try:
        assert not child_says(lambda: lock.acquire(blocking=False))
    finally:
        free.set()


def test_a_lock_that_nobody_holds_any_more_is_not_remembered() -> None:
    lock = locks.lock()
    gone = weakref.ref(lock)
    del lock
    gc.collect()
    assert gone() is None
