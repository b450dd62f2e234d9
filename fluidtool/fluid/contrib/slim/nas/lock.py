"""A lock on a file, between processes (Paddle 1.8.5 contrib/slim/nas/lock.py)."""

from __future__ import annotations

from typing import IO, Any

__all__ = ["lock", "unlock"]


def lock(file: IO[Any]) -> None:
    """Wait for the lock and take it."""
    from fcntl import LOCK_EX, flock

    flock(file.fileno(), LOCK_EX)


def unlock(file: IO[Any]) -> None:
    """Give the lock back."""
    from fcntl import LOCK_UN, flock

    flock(file.fileno(), LOCK_UN)
