"""Endpoints: `host:port`, one process each."""

from __future__ import annotations

from collections.abc import Iterable

from fluidtool.errors import ArgumentTypeError, UsageError

EXAMPLE = "such as 127.0.0.1:6174,127.0.0.1:6175"


def parse_endpoints(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """ "a:1,b:2", or a list of them, as a tuple; `what` names them in messages ("pservers").

    Raises ArgumentTypeError for anything else, UsageError for one that is malformed or stands there twice.
    """
    if isinstance(given, str):
        texts = given.split(",")
    elif isinstance(given, Iterable):
        texts = list(given)
    else:
        raise ArgumentTypeError(f"{what} takes endpoints, {EXAMPLE}; found {type(given).__name__}: {given!r}")
    endpoints = tuple(check_endpoint(text, what) for text in texts)
    for endpoint in endpoints:
        if endpoints.count(endpoint) > 1:
            raise UsageError(f"{what} names {endpoint} twice; give each process a separate endpoint")
    if not endpoints:
        raise UsageError(f"{what} names no endpoint; give one or more, {EXAMPLE}")
    return endpoints


def check_endpoint(text: object, what: str) -> str:
    """The endpoint without blanks around it; raises UsageError when it is not host:port."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{what} takes endpoints as text, {EXAMPLE}; found {type(text).__name__}: {text!r}")
    endpoint = text.strip()
    host, colon, port = endpoint.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536) or any(c.isspace() for c in endpoint):
        raise UsageError(f"{what} must list host:port, {EXAMPLE}, found {text!r}")
    return endpoint


def host_and_port(endpoint: str) -> tuple[str, int]:
    """ "127.0.0.1:6174" -> ("127.0.0.1", 6174); brackets around an IPv6 address go."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)
