"""The methods of Paddle's service: which part of a handler answers which, and what the control names mean."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from fluidtool.distribute.rpc.handler import Barrier, Call, Handler, Message, NotFound, Refused, Value

SERVICE = "sendrecv.SendRecvService"
COMPLETE = "COMPLETE@RECV"
WITHOUT_BARRIER = "@WITHOUT_BARRIER@RECV"
SAVE = "SAVE@CHECKPOINTNOTIFY"
POSITION = "POSITION@RECV"  # between roles of fluidtool: the last step of the trainer that the server's values contain

# Between roles of an elastic job; each is asked for like a variable, and the answer is a list of numbers.
JOIN = (
    "JOIN@RECV"  # by a process that its out_name names: a term, and the step whose update comes before its first round
)
ROLL = "ROLL@RECV"  # who takes part in the round of this trainer's step
AHEAD = "ahead"  # asked for in the step before: nobody, where no round can open for now
LEAVE = "LEAVE@RECV"  # this trainer takes part no more
CLOSED = "CLOSED@RECV"  # by a server: whose gradients count in a round

# Between the copies of a server, and by trainers.
STATUS = "STATUS@COPY"  # whether a copy serves, since which term, and the number of its process


class Method(IntEnum):
    """A method of the service; names are those of the wire, numbers are ours."""

    SendVariable = 1
    GetVariable = 2
    GetVariableNoBarrier = 3
    PrefetchVariable = 4
    CheckpointNotify = 5
    DistributeNotify = 6


READS = frozenset({Method.GetVariable, Method.GetVariableNoBarrier, Method.PrefetchVariable})


def changes_state(method: Method, message: Message) -> bool:
    """Whether a second such call would count twice."""
    return method not in READS or message.name == Barrier.FETCH.value


Answerer = Callable[[Handler, Message, Call], "Value | None"]


def answerer(method: Method, message: Message) -> Answerer:
    """What has a handler answer messages that differ from this one in their value only; raises Refused and NotFound for what no
    handler can answer.
    """
    if not changes_state(method, message):
        return _reader(method, message)
    if method is Method.SendVariable:
        return _sent(message)
    if method is Method.GetVariable:
        return lambda handler, message, call: handler.barrier(Barrier.FETCH, call)
    if method is Method.DistributeNotify:
        return lambda handler, message, call: handler.notify(_named(message), call)
    if message.name == SAVE and message.out_name:
        return lambda handler, message, call: handler.checkpoint(message, call)
    raise Refused(f"checkpoint_notify takes {SAVE} and a folder, found {message.name!r} and {message.out_name!r}")


def _reader(method: Method, message: Message) -> Answerer:
    if method is Method.GetVariableNoBarrier:
        return lambda handler, message, call: handler.get_without_barrier(_without_suffix(message), call)
    _named(message)
    if method is Method.GetVariable:
        return lambda handler, message, call: handler.get(message, call)
    if message.value is None:
        raise Refused(f"a prefetch of {message.name!r} has no ids")
    return lambda handler, message, call: handler.prefetch(message, call)


def _sent(message: Message) -> Answerer:
    if message.name == Barrier.SEND.value:
        return lambda handler, message, call: handler.barrier(Barrier.SEND, call)
    if message.name == COMPLETE:
        return lambda handler, message, call: handler.complete(
            message.trainer_id if call.trainer_id is None else call.trainer_id, call
        )
    if message.value is None:
        raise Refused(f"the variable {message.name!r} was received without a value")
    _named(message)
    return lambda handler, message, call: handler.send(message, call)


def _named(message: Message) -> Message:
    if not message.name:
        raise NotFound("received a message that names no variable")
    return message


def _without_suffix(message: Message) -> Message:
    if not message.name.endswith(WITHOUT_BARRIER):
        raise Refused(f"GetVariableNoBarrier takes a name that ends with {WITHOUT_BARRIER}, found {message.name!r}")
    return Message(
        message.name[: -len(WITHOUT_BARRIER)], message.value, message.out_name, message.table_name, message.trainer_id
    )
