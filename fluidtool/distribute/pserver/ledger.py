"""Which updates a server's values contain: for each trainer the last step that is whole, and what came of the next one.

The ledger is saved with the values, so that it says of a restored server, too, what its values contain. An update is known
by its trainer, step and variable: a trainer that was restarted computes steps again, and what the ledger has is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from fluidtool.distribute.rpc.handler import Refused
from fluidtool.errors import UnreadableError
from fluidtool.records import dataclass


@dataclass(slots=True)
class Taken:
    """What was taken of one trainer: all of the steps up to `whole`, and these variables of the step after."""

    whole: int = 0
    names: set[str] = field(default_factory=set)


class Ledger:
    """Steps count from 1. The caller holds the lock of the variable from `is_new` to `note`."""

    def __init__(self, taken: Mapping[int, Taken] | None = None) -> None:
        self._taken = dict(taken or {})
        self._lock = threading.Lock()

    def position(self, trainer: int) -> int:
        """The last step of a trainer that is whole."""
        with self._lock:
            return self._of(trainer).whole

    def is_new(self, trainer: int, step: int, name: str) -> bool:
        """Whether an update was not taken before; raises Refused where updates before it are missing."""
        with self._lock:
            taken = self._of(trainer)
            self._check(taken, trainer, step)
            return step > taken.whole and name not in taken.names

    def note(self, trainer: int, name: str) -> None:
        """The values contain an update that was new."""
        with self._lock:
            self._of(trainer).names.add(name)

    def end(self, trainer: int, step: int) -> None:
        """A trainer has sent all of a step; raises Refused where updates before it are missing."""
        with self._lock:
            taken = self._of(trainer)
            self._check(taken, trainer, step)
            if step > taken.whole:
                self._taken[trainer] = Taken(step)

    def _of(self, trainer: int) -> Taken:
        found = self._taken.get(trainer)
        if found is None:
            found = self._taken[trainer] = Taken()
        return found

    def _check(self, taken: Taken, trainer: int, step: int) -> None:
        if step > taken.whole + 1:
            raise Refused(
                f"trainer {trainer} is in step {step}, but this server has its updates only up to step {taken.whole}: it was "
                "restarted from an earlier checkpoint; restart the trainer, which then continues from there"
            )

    # -- in terms of JSON
    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        with self._lock:
            return {str(each): {"whole": of.whole, "names": sorted(of.names)} for each, of in self._taken.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` says; raises UnreadableError for what is no ledger."""
        found = ledger_of(state)
        with self._lock:
            self._taken = found._taken


def ledger_of(state: Mapping[str, Any]) -> Ledger:
    """The ledger of a checkpoint's state; raises UnreadableError for what is none."""
    try:
        return Ledger({int(each): Taken(int(of["whole"]), {*of["names"]}) for each, of in state.items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"the ledger of a checkpoint is damaged ({error}); resume from another one") from error
