"""How long a server waits: Paddle's flags, from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool.errors import UsageError
from fluidtool.records import dataclass

DEADLINE, SILENCE = "FLAGS_rpc_deadline", "FLAGS_worker_update_interval_secs"
VANISHED = 60.0
SHARE = 0.95  # of the trainers' deadline, so that they hear from the server who is missing


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. deadline: how long one trainer may wait for the others, of its own deadline. silence: how long a trainer may
    say nothing. vanished: how long a trainer whose connection broke may stay away.
    """

    deadline: float = 180.0 * SHARE
    silence: float = 900.0
    vanished: float = VANISHED


def limits_from(environment: Mapping[str, str]) -> Limits:
    """FLAGS_rpc_deadline in milliseconds, FLAGS_worker_update_interval_secs; raises UsageError for no numbers."""
    deadline = _number(environment, DEADLINE, 180_000) / 1000 * SHARE
    silence = float(_number(environment, SILENCE, 900))
    return Limits(deadline, silence, min(VANISHED, deadline, silence))


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name} must be an integer of at least 1, found {text!r}")
    return int(text)
