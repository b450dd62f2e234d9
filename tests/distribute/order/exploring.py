"""Every state that a model of a job can reach, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

State = TypeVar("State")


class Violated(AssertionError):
    """What must not happen has happened."""


class Model(Protocol[State]):
    """A job as states that follow one another."""

    def start(self) -> State:
        """What it begins with."""

    def after(self, state: State) -> Iterable[State]:
        """What can be next."""

    def ended(self, state: State) -> bool:
        """Whether nothing need happen any more."""

    def check_end(self, state: State) -> None:
        """Raises Violated where the end is not the right one."""


def explore(job: Model[State]) -> int:
    """Visit every state that can be reached; returns how many. Raises Violated, also where nothing can happen any more."""
    begin = job.start()
    seen, todo = {begin}, [begin]
    while todo:
        state = todo.pop()
        following = list(job.after(state))
        if job.ended(state):
            job.check_end(state)
        elif not following:
            raise Violated(f"nothing can go on: {state}")
        for each in following:
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return len(seen)
