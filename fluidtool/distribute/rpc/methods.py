"""The methods of Paddle's service: which part of a handler answers which, and what the control names mean."""

from __future__ import annotations

from enum import IntEnum

from fluidtool.distribute.rpc.handler import Barrier, Call, Handler, Message, NotFound, Refused

SERVICE = "sendrecv.SendRecvService"
COMPLETE = "COMPLETE@RECV"
WITHOUT_BARRIER = "@WITHOUT_BARRIER@RECV"
SAVE = "SAVE@CHECKPOINTNOTIFY"
POSITION = "POSITION@RECV"  # between roles of fluidtool: the last step of the trainer that the server's values contain


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


def read(handler: Handler, method: Method, request: Message, call: Call) -> Message:
    """The handler's answer to a call that changes nothing; raises what the handler raises."""
    if method is Method.GetVariable:
        value = handler.get(_named(request), call)
    elif method is Method.GetVariableNoBarrier:
        value = handler.get_without_barrier(_without_suffix(request), call)
    elif request.value is None:
        raise Refused(f"a prefetch of {request.name!r} has no ids")
    else:
        value = handler.prefetch(_named(request), call)
    return Message(request.out_name, value)


def act(handler: Handler, method: Method, message: Message, call: Call) -> None:
    """Have the handler do what a call asks for; raises what the handler raises."""
    if method is Method.SendVariable:
        _take(handler, message, call)
    elif method is Method.GetVariable:
        handler.barrier(Barrier.FETCH, call)
    elif method is Method.DistributeNotify:
        handler.notify(_named(message), call)
    elif message.name == SAVE and message.out_name:
        handler.checkpoint(message, call)
    else:
        raise Refused(f"checkpoint_notify takes {SAVE} and a folder, found {message.name!r} and {message.out_name!r}")


def _take(handler: Handler, message: Message, call: Call) -> None:
    if message.name == Barrier.SEND.value:
        handler.barrier(Barrier.SEND, call)
    elif message.name == COMPLETE:
        handler.complete(message.trainer_id if call.trainer_id is None else call.trainer_id, call)
    elif message.value is None:
        raise Refused(f"the variable {message.name!r} was received without a value")
    else:
        handler.send(_named(message), call)


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
