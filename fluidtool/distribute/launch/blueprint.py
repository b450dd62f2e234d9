"""A job before anybody knows where its roles will run: small, plain data that can be sent to another machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.distribute.launch.contract import MODES, SERVERS, Cluster
from fluidtool.distribute.launch.jobs import JobFolder, is_job, move_job, read_job
from fluidtool.distribute.launch.plans import Checkpoints, Role, folder_roles, script_roles, with_metrics
from fluidtool.errors import Hint, UsageError
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Blueprint:
    """job: a folder with a manifest, or a script. servers: 0 where trainers work without.

    endpoints: those that the job or the user names; () where they are still to be chosen. sync: whether trainers wait
    for one another. metrics: where the first role shows its metrics; the others do at the ports after it ("": nowhere).
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

    @property
    def listeners(self) -> int:
        """How many endpoints the job has."""
        return self.servers or self.trainers

    def cluster(self, endpoints: Sequence[str]) -> Cluster:
        """The job with these endpoints."""
        if self.servers:
            return Cluster(tuple(endpoints), self.trainers)
        return Cluster((), self.trainers, tuple(endpoints))

    def roles(self, endpoints: Sequence[str], folder: Path) -> tuple[Role, ...]:
        """Every role of the job; programs with other endpoints than the job's own are written into `folder`."""
        if self.is_script:
            roles = script_roles(self.cluster(endpoints), self.job, self.arguments, self.checkpoints)
            return with_metrics(roles, self.metrics)
        job = read_job(self.job)
        if tuple(endpoints) != job.cluster.endpoints:
            job = move_job(job, tuple(endpoints), folder / "job")
        return with_metrics(folder_roles(job, self.arguments, self.checkpoints), self.metrics)


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
) -> Blueprint:
    """The blueprint of a job folder or a script; servers and trainers: numbers, or endpoints separated by commas.

    movable: endpoints replace those of the folder, if there are equally many.

    Raises UsageError for what cannot work or contradicts the folder, UnreadableError for a folder that is no job.
    """
    if mode is not None and mode not in MODES:
        raise UsageError(f"there is no mode {mode!r}; expected one of {', '.join(MODES)}")
    checkpoints = checkpoints or Checkpoints()
    if path.is_file() and not is_job(path):
        return _of_script(path, mode or SERVERS, servers, trainers, sync, tuple(arguments), checkpoints)
    if not path.is_dir():
        raise UsageError(
            f"{path} is not a job: neither a folder of programs for each role, nor a script",
            hint=Hint("fluidtool.make_job writes one", "'fluidtool transpile --distribute' writes one"),
        )
    job = read_job(path)
    cluster, endpoints = job.cluster, job.cluster.endpoints
    if movable:
        endpoints, servers, trainers = _moved(job, servers, trainers)
    _check_folder(job, mode, servers, trainers)
    return Blueprint(
        path,
        False,
        len(cluster.servers),
        cluster.trainers,
        job.sync and sync,
        endpoints,
        tuple(arguments),
        checkpoints,
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
