"""One launcher at a time for a folder of checkpoints: two would restart roles from steps of each other's runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fluidtool.errors import Hint, Location, OutputExistsError

CLAIM = ".launched"


@contextmanager
def claimed(folder: Path | None, *, alone: bool = True) -> Iterator[None]:
    """Within the block the folder belongs to this process. alone: no other may share it; roles that are launched one by one
    share theirs. The system gives the claim up when the process ends, however it ends.

    Raises OutputExistsError for a folder that a job uses. Where files cannot be locked nothing is claimed.
    """
    file = None if folder is None else _opened(folder)
    if file is None:
        yield
        return
    with file:
        if not _locked(file, alone):
            file.seek(0)
            owner = file.read(200).strip() or "another process"
            raise OutputExistsError(
                f"the checkpoints in {folder} belong to a job that is running ({owner} launched it)",
                hint=Hint("end that job, or choose another folder", "end that job, or choose another --checkpoint"),
                location=Location(str(folder)),
            )
        if alone:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        yield


def _opened(folder: Path) -> IO[str] | None:
    """The file that is locked; None where it cannot be made, which saving will tell."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / CLAIM).open("a+")
    except OSError:
        return None


def _locked(file: IO[str], alone: bool) -> bool:
    """Whether the file is locked now, or can never be."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # such as a file system without locks
        return True
    return True
