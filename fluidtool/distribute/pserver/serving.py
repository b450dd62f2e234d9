"""Running a parameter server: from the operator `listen_and_serv` to the end of the job."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from fluidtool.distribute.checkpoints import Checkpoint, Schedule
from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.launch.contract import METRICS
from fluidtool.distribute.launch.progress import Note
from fluidtool.distribute.metrics.endpoint import shown_metrics
from fluidtool.distribute.metrics.exposition import Traffic
from fluidtool.distribute.metrics.roles import of_any_role, of_server
from fluidtool.distribute.pserver.asynchronous import AsynchronousServer, gradient_blocks
from fluidtool.distribute.pserver.attendance import Tell
from fluidtool.distribute.pserver.blocks import Locks, UpdateBlocks
from fluidtool.distribute.pserver.description import ServerDescription, describe_server
from fluidtool.distribute.pserver.elastic_job import elastic_server, roster_of, telling, watch_of
from fluidtool.distribute.pserver.elasticity import Elasticity
from fluidtool.distribute.pserver.expected import expected_of
from fluidtool.distribute.pserver.garbage import seldom_collected
from fluidtool.distribute.pserver.ledger import Ledger, ledger_of
from fluidtool.distribute.pserver.limits import limits_from
from fluidtool.distribute.pserver.replicas.copied import Copied
from fluidtool.distribute.pserver.replicas.making import Replication
from fluidtool.distribute.pserver.replicas.replica import Replica
from fluidtool.distribute.pserver.replicas.rounds import CopiedFollower, CopiedRegistrar, Steady
from fluidtool.distribute.pserver.replicas.updates import CopiedUpdates
from fluidtool.distribute.pserver.server import ParameterServer
from fluidtool.distribute.pserver.store import Store
from fluidtool.distribute.pserver.synchronous import SynchronousServer
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import serve
from fluidtool.errors import OutputError, UsageError
from fluidtool.io.atomic import write_file
from fluidtool.ir import Program, Variable
from fluidtool.ops.context import OpContext
from fluidtool.proto.enums import VarType

PORT_FILE = "/tmp/paddle.{}.port"
SMALLEST_LIMIT = 64 << 20  # bytes of a message that every server takes
GRACE = 2.0
FAILED_GRACE = 0.5
LEDGER = "ledger"
LINGER = 0.3  # for a trainer whose connection broke before it heard that the server knows of its end: it asks again


def serve_parameters(context: OpContext) -> None:
    """Be the server that the operator describes: returns when the last trainer completes, or at SIGTERM or SIGINT.

    Raises Late or Gone, which name the trainer, when one must be taken for dead, PolicyError for an endpoint that the run
    does not allow, RemoteError when it cannot listen there, and what an update raises.
    """
    description = describe_server(context.op)
    context.runtime.policy.endpoint(description.endpoint, context.op.type)
    environment = os.environ
    _port_file().unlink(missing_ok=True)  # a killed process that had this number may have left it
    name = _role(context, description)
    schedule, traffic = Schedule.from_environment(environment, name), Traffic() if environment.get(METRICS) else None
    replication = Replication.from_environment(environment, description)
    endpoint = description.endpoint if replication is None else replication.endpoint
    with parameter_server(context, description, environment, schedule) as server, _stopping_at_signals(server.stop):
        options = fitted(TransportOptions.from_environment(environment), context.op.block.program, description)
        transport = serve(endpoint, server, options, lost=server.lost, traffic=traffic)
        grace = FAILED_GRACE
        try:
            told = _told(context, endpoint, transport.port)
            with told, _measured(server, name, traffic, environment), seldom_collected():
                server.serve()
            if not server.roster.live:
                time.sleep(LINGER)
            grace = GRACE
        finally:
            transport.stop(grace)


@contextmanager
def parameter_server(
    context: OpContext,
    description: ServerDescription,
    environment: Mapping[str, str],
    schedule: Schedule | None = None,
) -> Iterator[ParameterServer | Replica]:
    """The server of a program, its blocks bound to the run's scope; it continues from the schedule's checkpoint."""
    with telling(context, environment) as tell:
        yield from _made(context, description, environment, schedule, tell)


def _made(
    context: OpContext,
    description: ServerDescription,
    environment: Mapping[str, str],
    schedule: Schedule | None,
    tell: Tell,
) -> Iterator[ParameterServer | Replica]:
    """The server, while somebody uses it."""
    locks, limits, elastic = Locks(), limits_from(environment), Elasticity.from_environment(environment)
    replication, name = Replication.from_environment(environment, description), _role(context, description)
    if elastic is not None:
        elastic.check(description.trainers)
    _declare(context)
    store, roster = Store(context, description, locks), roster_of(description, elastic, tell)
    resumed = None if schedule is None else _checkpoint(schedule, description)
    if resumed is not None:
        _restore(context, store, resumed)
    first = 0 if resumed is None else resumed.step
    ledger = Ledger() if resumed is None else ledger_of(resumed.state.get(LEDGER, {}))
    save = _saving(context, store, ledger, schedule, first)
    if not description.is_sync:
        blocks = gradient_blocks(context, description, locks, resumed=resumed is not None)
        store.start_asynchronous()
        common = store, roster, limits, description, blocks
        at_end = _telling_at_end(save, schedule, name, tell)
        begins = partial(save, 0, is_last=True)  # restarted before the next one, it must begin with the same values
        if replication is not None:
            copies = replication.copies(name, environment, tell)
            yield replication.replica(
                CopiedUpdates(
                    *common,
                    copies=copies,
                    first_step=first,
                    ledger=ledger,
                    after_step=copies.as_primary(save),
                    at_end=copies.as_primary(at_end),
                ),
                environment,
                begins if resumed is None else lambda: None,
            )
            return
        if resumed is None:
            begins()
        yield AsynchronousServer(*common, first_step=first, ledger=ledger, after_step=save, at_end=at_end)
        return
    updates = UpdateBlocks(context, description, locks)
    rounds = store, roster, limits, description.endpoint, updates.expected, updates.run
    try:
        if replication is not None:
            copies = replication.copies(name, environment, tell)
            options = {"copies": copies, "first_round": first, "after_round": copies.as_primary(save)}
            kinds = CopiedRegistrar, CopiedFollower
            server = (
                Steady(*rounds, **options)
                if elastic is None
                else elastic_server(context, description, environment, elastic, tell, rounds, kinds, **options)
            )
            assert isinstance(server, Copied)
            yield replication.replica(server, environment)
        elif elastic is not None:
            yield elastic_server(
                context, description, environment, elastic, tell, rounds, first_round=first, after_round=save
            )
        else:
            watch = watch_of(environment, tell)
            yield SynchronousServer(*rounds, first_round=first, after_round=save, watch=watch)
    finally:
        updates.close()


def _declare(context: OpContext) -> None:
    """Give every variable of the program its place: what lasts in the outermost scope, the rest in the run's."""
    for variable in context.op.block.program.global_block().vars.values():
        scope = context.scope.root() if variable.persistable else context.scope
        if context.scope.find_var(variable.name) is None:
            scope.var(variable.name)


def _role(context: OpContext, description: ServerDescription) -> str:
    """The name of this server in the job; geo programs do not number their servers, their endpoints do."""
    servers = list(getattr(context.op.block.program, "_endpoints", None) or ())
    index = description.index
    if index < 0 and description.endpoint in servers:
        index = servers.index(description.endpoint)
    return f"pserver_{max(index, 0)}"


def fitted(options: TransportOptions, program: Program, description: ServerDescription) -> TransportOptions:
    """Options for messages of this program: no longer than what the server takes, and no more of them than trainers send.

    Rows of tables and of sparse gradients can be any number; a server that has such keeps the limits of `options`.
    """
    variables = program.global_block().vars.values()
    if description.tables or description.prefetch_blocks or not all(map(_has_a_size, variables)):
        return options
    sizes = [expected_of(variable).nbytes for variable in variables if variable.type == VarType.LOD_TENSOR]
    message = min(max(SMALLEST_LIMIT, *sizes, 0), options.limits.message)
    caller = min(2 * message + sum(sizes), options.caller_bytes)
    return replace(
        options,
        limits=replace(options.limits, message=message),
        caller_bytes=caller,
        all_bytes=min(caller * (description.trainers + 1), options.all_bytes),
    )


def _has_a_size(variable: Variable) -> bool:
    if variable.type == VarType.SELECTED_ROWS:
        return False
    return variable.type != VarType.LOD_TENSOR or (variable.has_shape and -1 not in variable.shape)


# ---------------------------------------------------------------- checkpoints
def _checkpoint(schedule: Schedule, description: ServerDescription) -> Checkpoint | None:
    """The one to continue from. Asynchronous trainers repeat what an older one lacks, so one that is damaged may be passed
    over.
    """
    if description.is_sync or schedule.resume_step is None:
        return schedule.resume()
    return schedule.resume_by(schedule.resume_step) or schedule.resume()


def _restore(context: OpContext, store: Store, checkpoint: Checkpoint) -> None:
    unknown = [name for name in checkpoint.values if not store.declares(name)]
    if unknown:
        raise UsageError(
            f"the checkpoint of step {checkpoint.step} has {unknown[0]}, which this server's program does not have; "
            f"use the programs that the checkpoint was written with"
        )
    for name, value in checkpoint.values.items():
        store.put(name, value)
    context.runtime.talk(f"parameter server resumes after step {checkpoint.step}")


def _saving(
    context: OpContext, store: Store, ledger: Ledger, schedule: Schedule | None, first: int
) -> Callable[..., None]:
    """What writes checkpoints: those that are due, or the first or last one, which must be written (OutputError). For another
    one a disk that refuses is told, and does not end the job.
    """
    if schedule is None or not schedule.every:
        return lambda step, is_last=False: None
    plan, last = schedule, [first]

    def save(step: int, is_last: bool = False) -> None:
        due = step if is_last else step - step % plan.every
        if due <= last[0] and not is_last:
            return
        last[0] = due
        with store.unchanged():
            values, state = store.kept(), {LEDGER: ledger.state()}
        try:
            plan.save(due, values, state)
        except OutputError as error:
            if is_last:
                raise
            context.runtime.talk(str(error))

    return save


def _telling_at_end(
    save: Callable[..., None], schedule: Schedule | None, name: str, tell: Tell
) -> Callable[[int], None]:
    """What writes the last checkpoint and tells the launcher, which then needs this server no more."""

    def at_end(step: int) -> None:
        save(step, is_last=True)
        if schedule is not None and schedule.every:
            tell(Note("saved", f"{name} has written its last checkpoint, of step {step}", 0, step, role=name))

    return at_end


# ---------------------------------------------------------------- the world around
@contextmanager
def _told(context: OpContext, endpoint: str, port: int) -> Iterator[None]:
    """Say that the server listens. Where any port will do, its number goes where scripts of Paddle look for it."""
    host, asked = host_and_port(endpoint)
    context.runtime.talk(f"Server listening on {host}:{port} successful, selected port: {port}")
    if asked:
        yield
        return
    path = _port_file()
    write_file(path, [str(port).encode()])
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _measured(
    server: ParameterServer | Replica, name: str, traffic: Traffic | None, environment: Mapping[str, str]
) -> AbstractContextManager[None]:
    """Show metrics, if that is asked for."""
    if traffic is None:
        return nullcontext()
    return shown_metrics(
        environment,
        lambda: [
            *of_any_role(name, environment),
            *of_server(server.step, server.waiting, server.roster.live, traffic),
            *server.trainer_metrics(),
        ],
    )


def _port_file() -> Path:
    """Where Paddle's launchers look for the port of this process."""
    return Path(PORT_FILE.format(os.getpid()))


@contextmanager
def _stopping_at_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT end the server in order, as they end Paddle's; in other threads than the main one nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop()

    before: dict[Any, Any] = {kind: signal.signal(kind, handle) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
