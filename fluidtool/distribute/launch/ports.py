"""Ports of this machine: whether they are free, and which are."""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.errors import Hint, UsageError

LOOPBACK = "127.0.0.1"
ATTEMPTS = 50
KNOWN_AFTER = 60.0  # seconds


def check_free(endpoints: Iterable[str]) -> None:
    """Raise UsageError for an endpoint that something else listens at, or whose host is another machine."""
    for endpoint in endpoints:
        try:
            _bound(*host_and_port(endpoint)).close()
        except OSError as error:
            raise _taken(endpoint, error) from error


def await_names(endpoints: Iterable[str], patience: float = KNOWN_AFTER) -> None:
    """Wait until the hosts of these endpoints are known; Kubernetes makes the name of a pod known when the pod runs already.

    Raises UsageError after `patience` seconds.
    """
    due = time.monotonic() + patience
    for endpoint in endpoints:
        host, port = host_and_port(endpoint)
        while True:
            try:
                socket.getaddrinfo(host, port)
                break
            except socket.gaierror as error:
                if time.monotonic() >= due:
                    raise UsageError(f"the host of {endpoint} is not known ({error.strerror})") from error
                time.sleep(0.5)


def _taken(endpoint: str, error: OSError) -> UsageError:
    free = ("any_ports=True", "--any-ports")
    if error.errno == errno.EADDRINUSE:
        text = f"{endpoint} is taken: another process listens there"
        return UsageError(text, hint=Hint(*(f"stop it, or let free ports be chosen with {each}" for each in free)))
    if error.errno == errno.EACCES:
        text = f"{endpoint}: this user may not listen at so low a port"
        return UsageError(text, hint=Hint(*(f"choose one from 1024 on, or give {each}" for each in free)))
    return UsageError(
        f"{endpoint} is not an address of this machine ({error.strerror or error})",
        hint=Hint(
            "start its role there, use engine='ray' or 'mpi', or let the whole job run here with any_ports=True",
            "start its role there ('fluidtool run JOB/ROLE'), use --engine ray or mpi, or let the whole job run here "
            "with --any-ports",
        ),
    )


def free_endpoints(count: int, host: str = LOOPBACK) -> tuple[str, ...]:
    """Endpoints of one host with ports that are free now."""
    with ExitStack() as stack:
        held = [stack.enter_context(_bound(host, 0)) for _ in range(count)]
        return tuple(f"{host}:{each.getsockname()[1]}" for each in held)


@contextmanager
def held(endpoints: Iterable[str]) -> Iterator[None]:
    """Meanwhile Linux gives these ports to nobody who asks for any port, and who would be there before the role that they are for:
    they go to those who ask for them by number.
    """
    with ExitStack() as stack:
        for endpoint in endpoints if sys.platform.startswith("linux") else ():
            stack.enter_context(_bound(*host_and_port(endpoint)))
        yield


def loopback_endpoints(count: int, port: int | None) -> tuple[str, ...]:
    """Endpoints of this machine with one port, as Paddle's PADDLE_PSERVER_IPS wants it; port None: any free one.

    On Linux all of 127.0.0.0/8 is this machine, and each endpoint has an address of its own. Elsewhere only one address
    is there, and ports are counted up instead.
    """
    if not sys.platform.startswith("linux"):
        return free_endpoints(count) if port is None else tuple(f"{LOOPBACK}:{port + i}" for i in range(count))
    hosts = [f"127.0.0.{index + 1}" for index in range(count)]
    chosen = _common_port(hosts) if port is None else port
    return tuple(f"{host}:{chosen}" for host in hosts)


def _common_port(hosts: Sequence[str]) -> int:
    """A port that is free at every host."""
    for _ in range(ATTEMPTS):
        port = host_and_port(free_endpoints(1, hosts[0])[0])[1]
        try:
            check_free(f"{host}:{port}" for host in hosts)
        except UsageError:
            continue
        return port
    raise UsageError(
        f"no port is free on all of {', '.join(hosts)}; stop the processes that listen there, or use fewer servers"
    )


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
