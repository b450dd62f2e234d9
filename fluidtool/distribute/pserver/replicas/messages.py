"""What the copies of a server tell each other: messages as trainers send them, and these beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.rpc.handler import Message, Refused, Value
from fluidtool.tensor import LoDTensor

MARK = "@COPY"
BEAT = f"BEAT{MARK}"  # the primary is there
STATE = f"STATE{MARK}"  # what a server has beside values, in terms of JSON; values follow
VALUE = f"VALUE{MARK}:"  # and the name of the variable
WHOLE = f"WHOLE{MARK}"  # that was all of it: what follows comes from trainers
SENT = f"SENT{MARK}"  # a trainer has sent everything of its step
ENDED = f"ENDED{MARK}"  # of an asynchronous job: a trainer's step is over
FINISHED = f"FINISHED{MARK}"  # a trainer has made all of its steps
CLOSED = f"CLOSED{MARK}"  # whose gradients count in a round
ROLL = f"ROLL{MARK}"  # who takes part, of an elastic job
OVER = f"OVER{MARK}"  # the job is over

COPYING = f"COPYING{MARK}"  # by a process that its out_name names: it wants to be the backup; in which term
Passed = tuple[Message, int]  # and the step that its trainer is in
FROM_PRIMARY = 1 << 24  # and the term: the number of a primary where trainers have theirs


def signal(name: str, trainer: int = 0, value: Value | None = None) -> Message:
    """A message that has a name, and perhaps nothing more."""
    return Message(name, value if value is not None else numbers([0]), trainer_id=trainer)


def numbers(found: Sequence[int]) -> LoDTensor:
    """Numbers as they travel."""
    return LoDTensor(np.array(found, np.int64))


def numbers_in(message: Message) -> list[int]:
    """Those of a message; raises Refused where it has none."""
    if not isinstance(message.value, LoDTensor):
        raise Refused(f"{message.name} must have numbers, found {type(message.value).__name__}")
    return [int(number) for number in message.value.numpy().reshape(-1)]


def state_message(name: str, state: Mapping[str, Any]) -> Message:
    """What JSON can hold, as a message."""
    return Message(name, LoDTensor(np.frombuffer(json.dumps(state).encode(), np.uint8)))


def values_and(state: Mapping[str, Any], store: Store) -> Iterator[Passed]:
    """A state, and the values that belong to it."""
    yield state_message(STATE, state), 0
    for name, value in store.kept().items():
        yield Message(VALUE + name, value), 0


def state_in(message: Message) -> dict[str, Any]:
    """The other way round; raises Refused."""
    try:
        assert isinstance(message.value, LoDTensor)
        found = json.loads(message.value.numpy().tobytes())
    except (AssertionError, ValueError) as error:
        raise Refused(f"{message.name} is not in the form that this version of fluidtool writes ({error})") from error
    return dict(found)
