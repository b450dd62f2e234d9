"""A job before anybody knows where its roles will run: small, plain data that can be sent to another machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.distribute.launch.contract import MODES, SERVERS, Cluster
from fluidtool.distribute.launch.jobs import JobFolder, is_job, move_job, read_job
from fluidtool.distribute.launch.plans import (
    Checkpoints,
    Elastic,
    Role,
    folder_roles,
    script_roles,
    with_copies,
    with_metrics,
    with_variables,
)
from fluidtool.distribute.pserver.stragglers import StragglerPolicy
from fluidtool.errors import Hint, UsageError
from fluidtool.records import dataclass

COPIES = 2


@dataclass(frozen=True, slots=True)
class Blueprint:
    """job: a folder with a manifest, or a script. servers: 0 where trainers work without.

    endpoints: those that the job or the user names; () where they are still to be chosen. sync: whether trainers wait
    for one another. metrics: where the first role shows its metrics; the others do at the ports after it ("": nowhere).
    trainers: how many are started; most: for how many there are programs. replicas: how many copies of each server there are.
    """

    job: Path
    is_script: bool
    servers: int
    trainers: int
    sync: bool = True
    endpoints: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    metrics: str = ""
    elastic: Elastic = field(default_factory=Elastic)
    most: int = 0
    replicas: int = 1

    def of_everybody(self) -> Blueprint:
        """The job with every trainer that there are programs for."""
        return replace(self, trainers=max(self.most, self.trainers))

    @property
    def listeners(self) -> int:
        """How many endpoints the job has."""
        return self.servers or self.trainers

    def cluster(self, endpoints: Sequence[str]) -> Cluster:
        """The job with these endpoints."""
        if self.servers:
            return Cluster(tuple(endpoints), self.trainers)
        return Cluster((), self.trainers, tuple(endpoints))

    def roles(self, endpoints: Sequence[str], folder: Path, others: Sequence[str] = ()) -> tuple[Role, ...]:
        """Every role of the job; programs with other endpoints than the job's own are written into `folder`. others: where the
        second copies of servers listen.
        """
        if self.is_script:
            roles = script_roles(self.cluster(endpoints), self.job, self.arguments, self.checkpoints)
            return with_metrics(with_variables(roles, self.elastic.environment(self.trainers)), self.metrics)
        job = read_job(self.job)
        if tuple(endpoints) != job.cluster.endpoints:
            job = move_job(job, tuple(endpoints), folder / "job")
        roles = folder_roles(job, self.arguments, self.checkpoints, self.trainers)
        if others:
            roles = with_copies(roles, dict(zip(endpoints, others, strict=True)), folder / "replicas")
        return with_metrics(with_variables(roles, self.elastic.environment(self.trainers)), self.metrics)


def draw(
    path: Path,
    *,
    mode: str | None = None,
    servers: str | None = None,
    trainers: str | None = None,
    sync: bool = True,
    arguments: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
    movable: bool = False,
    elastic: Elastic | None = None,
    replicas: int = 1,
) -> Blueprint:
    """The blueprint of a job folder or a script; servers and trainers: numbers, or endpoints separated by commas.

    movable: endpoints replace those of the folder, if there are equally many. elastic: whether trainers come and go; then a
    folder's job may be started with fewer trainers than it is made for. replicas: 2 for a second copy of each server.

    Raises UsageError for what cannot work or contradicts the folder, UnreadableError for a folder that is no job.
    """
    if mode is not None and mode not in MODES:
        raise UsageError(f"there is no mode {mode!r}; expected one of {', '.join(MODES)}")
    checkpoints, elastic = checkpoints or Checkpoints(), elastic or Elastic()
    if path.is_file() and not is_job(path):
        script = _of_script(path, mode or SERVERS, servers, trainers, sync, tuple(arguments), checkpoints)
        return _checked(replace(script, elastic=elastic, replicas=replicas))
    if not path.is_dir():
        raise UsageError(
            f"{path} is not a job: neither a folder of programs for each role, nor a script",
            hint=Hint("fluidtool.make_job writes one", "'fluidtool transpile --distribute' writes one"),
        )
    job = read_job(path)
    cluster, endpoints = job.cluster, job.cluster.endpoints
    if movable:
        endpoints, servers, trainers = _moved(job, servers, trainers)
    starting = cluster.trainers
    if elastic.least is not None and cluster.servers and trainers is not None and trainers.isdecimal():
        starting, trainers = min(int(trainers), starting), trainers if int(trainers) > starting else None
    _check_folder(job, mode, servers, trainers)
    return _checked(
        Blueprint(
            path,
            False,
            len(cluster.servers),
            starting,
            job.sync and sync,
            endpoints,
            tuple(arguments),
            checkpoints,
            elastic=elastic,
            most=cluster.trainers,
            replicas=replicas,
        )
    )


def _checked(blueprint: Blueprint) -> Blueprint:
    """Raise UsageError for a job whose trainers cannot come and go, or be watched."""
    _check_replicas(blueprint)
    elastic, least = blueprint.elastic, blueprint.elastic.least
    if elastic.stragglers:
        policy = StragglerPolicy.of(elastic.stragglers, "--stragglers")
        if not (blueprint.servers and blueprint.sync):
            raise UsageError(
                "only synchronous jobs with parameter servers have rounds in which a trainer can be late: elsewhere nobody "
                "waits for one trainer, or nobody could go on without it",
                hint=Hint("omit stragglers=", "omit --stragglers"),
            )
        if policy.drops and least is None:
            hint = Hint("make the job elastic: elastic=1", "make the job elastic: --elastic 1")
            raise UsageError("stragglers can be left out only where trainers may leave", hint=hint)
    if least is None:
        return blueprint
    if blueprint.is_script:
        raise UsageError(
            f"{blueprint.job} is a script, which decides itself what each trainer learns and from where it continues; only jobs "
            "of programs can be elastic",
            hint=Hint("fluidtool.make_job writes one", "'fluidtool transpile --distribute' writes one"),
        )
    if not blueprint.servers:
        raise UsageError(
            f"the trainers of {blueprint.job} work without servers and sum their gradients in rings of a fixed size: none can "
            "join or leave",
            hint=Hint("make the job with parameter servers: mode='pserver'", "make the job with --mode pserver"),
        )
    if blueprint.most < 2:
        raise UsageError(
            f"the programs in {blueprint.job} are for one trainer, so none can join or leave",
            hint=Hint(
                "make the job for as many trainers as there may be at a time: trainers='4'",
                "make the job for as many trainers as there may be at a time: transpile --trainers 4",
            ),
        )
    if not 1 <= least <= blueprint.trainers:
        raise UsageError(
            f"an elastic job of at least {least} trainers is started with {blueprint.trainers}; expected 1 to "
            f"{blueprint.trainers}"
        )
    return blueprint


def _check_replicas(blueprint: Blueprint) -> None:
    """Raise UsageError for a job whose servers cannot have two copies."""
    if blueprint.replicas == 1:
        return
    if blueprint.replicas != COPIES:
        raise UsageError(f"replicas must be 1 or {COPIES}, found {blueprint.replicas}")
    if blueprint.is_script:
        raise UsageError(
            f"{blueprint.job} is a script, whose trainers do not number their steps, so that a server could not know what comes "
            "again after a change of copies; only servers of jobs of programs can have replicas",
            hint=Hint("fluidtool.make_job writes one", "'fluidtool transpile --distribute' writes one"),
        )
    if not blueprint.servers:
        raise UsageError(
            f"the trainers of {blueprint.job} work without servers: each has all parameters, so that there is nothing to replicate",
            hint=Hint("omit replicas=", "omit --replicas"),
        )
    if blueprint.servers < COPIES:
        raise UsageError(
            f"the programs in {blueprint.job} are for one server, so there is no other server's machine for its second copy",
            hint=Hint(
                "make the job for two servers or more: pservers='HOST:PORT,HOST:PORT'",
                "make the job for two servers or more: transpile --pservers HOST:PORT,HOST:PORT",
            ),
        )
    if blueprint.elastic.stragglers and blueprint.elastic.least is None:
        raise UsageError(
            "with replicas, stragglers are looked for only in elastic jobs",
            hint=Hint("make the job elastic: elastic=1", "make the job elastic: --elastic 1"),
        )


def _moved(job: JobFolder, servers: str | None, trainers: str | None) -> tuple[tuple[str, ...], str | None, str | None]:
    """The endpoints that replace the job's, and what is still said of servers and trainers."""
    own, given = job.cluster.endpoints, servers if job.cluster.servers else trainers
    if given is None or given.isdecimal():
        return own, servers, trainers
    found = parse_endpoints(given, "pservers" if job.cluster.servers else "trainers")
    if len(found) != len(own):
        raise UsageError(f"the programs in {job.path} are for {len(own)} endpoints, found {len(found)}: {given}")
    return (found, None, trainers) if job.cluster.servers else (found, servers, None)


def _of_script(
    path: Path,
    mode: str,
    servers: str | None,
    trainers: str | None,
    sync: bool,
    arguments: tuple[str, ...],
    checkpoints: Checkpoints,
) -> Blueprint:
    if mode == SERVERS:
        number, endpoints = _count_or_endpoints(servers, "pservers")
        count, others = _count_or_endpoints(trainers, "trainers")
        if others:
            raise UsageError(
                f"with servers, trainers must be a number, found {trainers!r}; only the mode collective takes endpoints"
            )
        return Blueprint(path, True, number, count, sync, endpoints, arguments, checkpoints)
    if servers not in (None, "0"):
        hint = Hint("omit servers=", "omit --pservers")
        raise UsageError("the mode collective has no servers", hint=hint)
    count, endpoints = _count_or_endpoints(trainers, "trainers")
    return Blueprint(path, True, 0, count, sync, endpoints, arguments, checkpoints)


def _count_or_endpoints(text: str | None, what: str) -> tuple[int, tuple[str, ...]]:
    if text is None:
        return 1, ()
    if text.isdecimal():
        if int(text) < 1:
            raise UsageError(f"{what} must be at least 1, found {text}")
        return int(text), ()
    endpoints = parse_endpoints(text, what)
    return len(endpoints), endpoints


def _check_folder(job: JobFolder, mode: str | None, servers: str | None, trainers: str | None) -> None:
    """The folder says it all; what is said again must not contradict it."""
    cluster = job.cluster
    if mode is not None and mode != cluster.mode:
        raise UsageError(f"the programs in {job.path} are for {cluster.mode} mode, not {mode}", hint="transpile again")
    own = {"pservers": (servers, cluster.servers, len(cluster.servers))}
    own["trainers"] = (trainers, cluster.trainer_endpoints, cluster.trainers)
    for option, (given, endpoints, count) in own.items():
        if given is None or given == str(count):
            continue
        if given.isdecimal() or parse_endpoints(given, option) != endpoints:
            raise UsageError(
                f"the programs in {job.path} are for the {option} {', '.join(endpoints) or count}, not {given}",
                hint=Hint(
                    "give none, transpile again, or give any_ports=True",
                    f"omit --{option}, transpile again, or give --any-ports",
                ),
            )
