"""Making servers whose trainers come and go, and telling the log and the launcher what happens to trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from fluidtool.distribute.launch.contract import CHECKPOINT_DIR, ELASTIC, PROGRESS, STRAGGLERS
from fluidtool.distribute.launch.progress import Note, Reporter
from fluidtool.distribute.pserver.attendance import Attendance, OpenRoster, Tell
from fluidtool.distribute.pserver.description import ServerDescription
from fluidtool.distribute.pserver.elastic import ElasticServer
from fluidtool.distribute.pserver.elasticity import Elasticity, servers_of
from fluidtool.distribute.pserver.follower import Follower
from fluidtool.distribute.pserver.registrar import Registrar
from fluidtool.distribute.pserver.roster import Roster
from fluidtool.distribute.pserver.stragglers import StragglerPolicy, Watch
from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.options import REPLICAS, TransportOptions
from fluidtool.errors import Hint, UsageError
from fluidtool.ops.context import OpContext


@contextmanager
def telling(context: OpContext, environment: Mapping[str, str]) -> Iterator[Tell]:
    """Within the block: what tells the launcher, or else the log of this process, what happens to a trainer or a checkpoint."""
    if not any(environment.get(name) for name in (ELASTIC, STRAGGLERS, REPLICAS, CHECKPOINT_DIR)):
        yield lambda note: None
        return
    reporter = Reporter.from_environment(environment)

    def tell(note: Note) -> None:
        if environment.get(PROGRESS):
            reporter.tell(note)
        elif note.is_news:
            context.runtime.talk(note.text)

    try:
        yield tell
    finally:
        reporter.close()


def roster_of(description: ServerDescription, elastic: Elasticity | None, tell: Tell) -> Roster:
    """The roster that fits the job."""
    if elastic is None:
        return Roster(description.trainers)
    if description.is_sync:
        return Attendance(description.trainers)
    return OpenRoster(description.trainers, elastic.starting or description.trainers, tell)


def watch_of(environment: Mapping[str, str], tell: Tell) -> Watch | None:
    """What watches the stragglers of a job whose trainers do not change, if that is asked for."""
    text = environment.get(STRAGGLERS)
    if not text:
        return None
    policy = StragglerPolicy.of(text)
    if policy.drops:
        raise UsageError(
            "stragglers can be left out only where trainers may leave",
            hint=Hint("make the job elastic: elastic=1", "make the job elastic: --elastic 1"),
        )
    return Watch(policy, tell)


def elastic_server(
    context: OpContext,
    description: ServerDescription,
    environment: Mapping[str, str],
    elastic: Elasticity,
    tell: Tell,
    common: tuple[Any, ...],
    kinds: tuple[type[Registrar], type[Follower]] = (Registrar, Follower),
    **options: Any,
) -> ElasticServer:
    """The first server of a synchronous job, which keeps the roll, or another one, which asks it."""
    first_kind, other_kind = kinds
    servers = servers_of(environment)
    if description.endpoint == servers[0]:
        text = environment.get(STRAGGLERS)
        return first_kind(
            *common,
            least=elastic.least,
            starting=elastic.starting or description.trainers,
            followers=len(servers) - 1,
            policy=StragglerPolicy.of(text) if text else None,
            tell=tell,
            **options,
        )
    first = context.runtime.policy.endpoint(servers[0], context.op.type)
    # Beyond the trainers' numbers is that of no trainer.
    number = description.trainers + max(description.index, 0)
    return other_kind(*common, connect=partial(_connect, first, number, environment), **options)


def _connect(endpoint: str, number: int, environment: Mapping[str, str]) -> Client:
    return connect(endpoint, number, TransportOptions.from_environment(environment))
