"""Waiting until other processes listen."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.rpc.handler import Late
from fluidtool.errors import UnknownHostError

PAUSE = 3.0
LONGEST = 600.0  # seconds; as long as collective operators wait for their ranks


def wait_until_ready(endpoints: Iterable[str], *, pause: float = PAUSE, longest: float = LONGEST) -> None:
    """Return when every endpoint takes a connection; says on stderr which do not while it waits.

    Raises UnknownHostError for a host without an address, Late when some endpoints do not after `longest` seconds.
    """
    waiting = list(endpoints)
    end = time.monotonic() + longest
    while True:
        waiting = [endpoint for endpoint in waiting if not listens(endpoint)]
        if not waiting:
            return
        if time.monotonic() >= end:
            raise Late(
                f"nothing listens at {', '.join(waiting)} after {longest:g} seconds; start the missing servers, or "
                f"turn off wait_port for a job whose roles start in another order"
            )
        sys.stderr.write(f"server not ready, wait {pause:g} sec to retry...\nnot ready endpoints:{waiting}\n")
        sys.stderr.flush()
        time.sleep(pause)


def listens(endpoint: str, *, timeout: float = 2.0) -> bool:
    """Whether something takes connections there. Raises UnknownHostError for a host without an address."""
    try:
        with socket.create_connection(host_and_port(endpoint), timeout=timeout):
            return True
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: no name of a host could be this
        raise UnknownHostError(f"the host of the endpoint {endpoint} has no address: {error}") from error
    except OSError:
        return False
