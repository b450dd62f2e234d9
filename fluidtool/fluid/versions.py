"""What programs ask about their Paddle: its version, and whether graphs are dynamic."""

from __future__ import annotations

import re

from fluidtool.errors import ArgumentTypeError, UnsupportedOperatorError, UsageError

PADDLE = "1.8.5"


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raise UnsupportedOperatorError unless Paddle 1.8.5, which fluidtool stands for, is within these versions.

    Raises ArgumentTypeError and UsageError for invalid versions.
    """
    low = _parsed(min_version, "min_version")
    high = None if max_version is None else _parsed(max_version, "max_version")
    here = _parsed(PADDLE, "")
    if here < low or (high is not None and here > high):
        asked = f"version in [{min_version}, {max_version}]" if high else f"version {min_version} or higher"
        raise UnsupportedOperatorError(f"VersionError: PaddlePaddle {asked} required, but this stands for {PADDLE}")


def _parsed(version: str, argument: str) -> tuple[int, ...]:
    if not isinstance(version, str):
        raise ArgumentTypeError(
            f"The type of '{argument}' in require_version must be str, but received {type(version)}."
        )
    if re.fullmatch(r"\d+(\.\d+){0,3}", version) is None:
        raise UsageError(
            f"The value of '{argument}' in require_version must be in format '\\d+(\\.\\d+){{0,3}}', like '1.5.2.0', but "
            f"received {version}"
        )
    parts = [int(part) for part in version.split(".")]
    return tuple(parts + [0] * (4 - len(parts)))


def in_dygraph_mode() -> bool:
    """False: there are only programs."""
    return False


def _dygraph_tracer() -> None:
    """None: nothing is traced."""


def _current_expected_place() -> None:
    """None: executors have places, not layers."""


def disable_dygraph() -> None:
    """None: graphs are never dynamic."""


def enable_dygraph(place: object = None) -> None:
    """Raises UnsupportedOperatorError: dynamic graphs are not supported."""
    raise UnsupportedOperatorError(
        "fluid.enable_dygraph: dynamic graphs are not supported; build a program and run it with an Executor"
    )


disable_imperative, enable_imperative = disable_dygraph, enable_dygraph
