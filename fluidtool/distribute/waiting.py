"""Waiting until other processes listen."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable

from fluidtool.distribute.endpoints import host_and_port

PAUSE = 3.0


def wait_until_ready(endpoints: Iterable[str], *, pause: float = PAUSE) -> None:
    """Return when every endpoint takes a connection; says on stderr which do not while it waits."""
    waiting = list(endpoints)
    while True:
        waiting = [endpoint for endpoint in waiting if not listens(endpoint)]
        if not waiting:
            return
        sys.stderr.write(f"server not ready, wait {pause:g} sec to retry...\nnot ready endpoints:{waiting}\n")
        sys.stderr.flush()
        time.sleep(pause)


def listens(endpoint: str, *, timeout: float = 2.0) -> bool:
    """Whether something takes connections there."""
    try:
        with socket.create_connection(host_and_port(endpoint), timeout=timeout):
            return True
    except OSError:
        return False
