"""What servers of jobs with rounds share: who may send what, and reads, each of which waits for its round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

from fluidtool.distribute.pserver.expected import Expected
from fluidtool.distribute.pserver.limits import Limits
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.rounds import Asked
from fluidtool.distribute.pserver.server import ParameterServer
from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.rpc.handler import Call, Message, NotFound, Value


class RoundServer(ParameterServer):
    """expected: by the name of a gradient. update: runs one update, with the gradients of a round. after_round: is told the number
    of each round that is updated.
    """

    def __init__(
        self,
        store: Store,
        roster: Roster,
        limits: Limits,
        endpoint: str,
        expected: Mapping[str, Expected],
        update: Callable[[Mapping[str, Value]], None],
        *,
        after_round: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__(store, roster, limits, endpoint)
        self._expected, self._update, self._after_round = expected, update, after_round

    @abstractmethod
    def _read(self, asked: Asked, call: Call, trainer: int | None) -> None:
        """With the lock held: wait until something may be read; raises Refused or LeftOut for a trainer that is in another step."""

    def _checked(self, message: Message) -> Value:
        """A gradient, which must be what was declared; raises NotFound and Refused."""
        expected = self._expected.get(message.name)
        if expected is None:
            raise NotFound(
                f"the server at {self.endpoint} takes no variable {message.name}; it takes {', '.join(self._expected)}"
            )
        return self.store.on_device(expected.check(message))

    def get(self, request: Message, call: Call) -> Value:
        """A parameter as the round of the caller's step left it."""
        trainer = self.roster.heard(call, request)
        self.store.check(request.name)
        with self._lock:
            self._read(Asked.PARAMETER, call, trainer)
            return self.store.value(request.name)

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        """The value of a variable as the round before the caller's step left it."""
        self._await_rows(request, call)
        return self.store.value(request.name)

    def prefetch(self, request: Message, call: Call) -> Value:
        """The rows of a table as the round before the caller's step left them."""
        self._await_rows(request, call)
        return self.store.look_up(request)

    def checkpoint(self, request: Message, call: Call) -> None:
        """Save the lookup table as the round before the caller's step left it."""
        self._await_rows(request, call)
        self.store.save_table(request.out_name)

    def _await_rows(self, request: Message, call: Call) -> None:
        """Wait for the update before; the next one waits for this trainer, so that the lock can be left."""
        trainer = self.roster.heard(call, request)
        with self._lock:
            self._read(Asked.ROWS, call, trainer)
