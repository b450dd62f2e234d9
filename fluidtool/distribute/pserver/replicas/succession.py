"""Which copy of a server is the primary, as a state machine: it knows no thread, clock, file or value.

A configuration says who the primary is, and which backup has whatever it has told trainers. Configurations of a server are numbered
by their term; of each number there can be only one, that of the copy which claims it first. The primary may be replaced by the
backup that its configuration names, and by nobody else. It may go on alone, or take a new backup, only by claiming the next term:
so of two copies that lose sight of each other, one goes on, and the other one learns that it is too late.
"""

from __future__ import annotations

from enum import Enum

from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a server. place: which of the two it is, 0 or 1; process: which process of it."""

    place: int
    process: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """Who serves from a term on. backup: None while the primary is alone."""

    term: int
    primary: Copy
    backup: Copy | None = None


class Part(Enum):
    """What a process does when it starts. LOST: the values that trainers were told of are in no process any more."""

    FIRST = "claim the first term"
    LEAD = "serve"
    JOIN = "copy what the primary has"
    LOST = "give up"


def part_of(found: Configuration | None, me: Copy) -> Part:
    """What `me` does, where `found` is the newest configuration."""
    if found is None:
        return Part.FIRST
    if found.primary == me:
        return Part.LEAD
    ended = [copy is None or copy.place == me.place for copy in (found.primary, found.backup)]
    return Part.LOST if all(ended) else Part.JOIN


def are_gone(found: Configuration, present: set[Copy]) -> bool:
    """Whether neither the primary nor its backup is among the processes that exist."""
    return found.primary not in present and found.backup not in present


def first(me: Copy) -> Configuration:
    """Of a job that begins."""
    return Configuration(1, me)


def alone(found: Configuration) -> Configuration:
    """The primary gives its backup up."""
    return Configuration(found.term + 1, found.primary)


def paired(found: Configuration, backup: Copy) -> Configuration:
    """The primary, which was alone, has a backup that has everything."""
    return Configuration(found.term + 1, found.primary, backup)


def succeeded(found: Configuration, me: Copy) -> Configuration | None:
    """The backup takes over; None where it is not the backup."""
    return Configuration(found.term + 1, me) if found.backup == me else None
