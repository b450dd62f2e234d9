"""`fluidtool.launch(blueprint)`: starts all roles of a distributed job, and keeps them going until it is over."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluidtool.distribute.environment import PSERVER
from fluidtool.distribute.launch.blueprint import Blueprint
from fluidtool.distribute.launch.claims import claimed
from fluidtool.distribute.launch.contract import REPLICAS_DIR, RESTARTS
from fluidtool.distribute.launch.local import LocalEngine
from fluidtool.distribute.launch.plans import Role, base_environment, saved_as, second_of, with_metrics, with_variables
from fluidtool.distribute.launch.ports import await_names, check_free, free_endpoints, held, loopback_endpoints
from fluidtool.distribute.launch.recovery import NothingSaved, Recovery, SavedByAll, SavedByServers, SavedIn
from fluidtool.distribute.launch.status import Outcome, RoleStatus, View
from fluidtool.distribute.launch.supervisor import Engine, Patience, Supervisor
from fluidtool.distribute.rpc.options import REPLICAS, TransportOptions
from fluidtool.errors import Hint, Location, OutputExistsError, UsageError
from fluidtool.records import dataclass

Show = Callable[[Sequence[str]], AbstractContextManager[View]]
Play = Callable[[list[str]], int]


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Where a job runs, and what happens to roles that fail.

    engine: "local" (a supervisor on this machine), "ray" (at `ray_address`, default: a new cluster here) or "mpi" (this
    process is one of an MPI job). port: that of a script's first role; any_ports: free ones instead. resume: continue
    from the newest step that all roles have saved. restarts: how often roles are restarted. grace, hang_after: seconds,
    as in `fluidtool.distribute.launch.supervisor.Patience`. role: start only this one, by name or number; whatever
    starts the others must also restart them.
    """

    engine: str = "local"
    port: int = 6174
    any_ports: bool = False
    ray_address: str | None = None
    resume: bool = False
    restarts: int = 0
    grace: float = 10.0
    hang_after: float = 300.0
    role: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How a job ended. outcome: None under MPI, where every process plays one role and nobody supervises."""

    exit_code: int
    outcome: Outcome | None


class _Unseen:
    """A view that nobody looks at."""

    def line(self, role: str, text: str, is_error: bool) -> None: ...
    def event(self, text: str, **fields: Any) -> None: ...
    def status(self, roles: Sequence[RoleStatus]) -> None: ...


def unseen(roles: Sequence[str]) -> AbstractContextManager[View]:
    """Nothing is shown."""
    return nullcontext(_Unseen())


def launch(
    blueprint: Blueprint, options: LaunchOptions | None = None, *, show: Show = unseen, play: Play | None = None
) -> LaunchResult:
    """Start a job and return when it is over.

    blueprint: as `fluidtool.distribute.launch.blueprint.draw` makes it of a job folder or a script. show: makes the view
    for the names of the roles. play: runs the words of a role's command line in this process, for "mpi". Raises UsageError
    for what cannot work, OutputExistsError for checkpoints of a different run or of one that is running, and what the engine
    raises.
    """
    options = options or LaunchOptions()
    engines = {"local": _locally, "ray": _on_ray, "mpi": _under_mpi}
    if options.engine not in engines:
        raise UsageError(f"there is no engine {options.engine!r} to launch with; expected one of {', '.join(engines)}")
    if options.ray_address is not None and options.engine != "ray":
        hint = Hint("give engine='ray'", "give --engine ray")
        raise UsageError("the address of a Ray cluster is given, but the engine is not ray", hint=hint)
    if blueprint.elastic.least is not None and options.engine != "local":
        raise UsageError(
            f"the engine {options.engine} starts and ends all roles together; elastic jobs need the engine local, or each role "
            "started by itself",
            hint=Hint("give engine='local' or role=", "give --engine local, or start each role with --role"),
        )
    if blueprint.replicas > 1 and options.engine != "local":
        raise UsageError(
            f"the engine {options.engine} starts and ends all roles together, so that no copy of a server outlives the other; "
            "replicas need the engine local, or each role started by itself",
            hint=Hint("give engine='local' or role=", "give --engine local, or start each role with --role"),
        )
    joins = options.role is not None and blueprint.elastic.least is not None  # a job that may run already
    with claimed(
        None if joins else blueprint.checkpoints.folder, alone=options.role is None and options.engine != "mpi"
    ):
        if options.role is not None:
            return _one_role(blueprint, options, options.role, show)
        return engines[options.engine](blueprint, options, show, play)


# ---------------------------------------------------------------- checkpoints
def _recovery(blueprint: Blueprint, restarts: int = 0) -> Recovery:
    folder = blueprint.checkpoints.folder
    saved = NothingSaved() if folder is None else SavedIn(folder)
    numbered, least = not blueprint.is_script, blueprint.elastic.least
    replicas = blueprint.replicas > 1
    return Recovery(restarts, blueprint.sync, saved, numbered=numbered, least=least, replicas=replicas)


def _recovery_elsewhere(blueprint: Blueprint, everybody: tuple[str, ...]) -> Recovery:
    """Of a role that is started alone: in a synchronous job all roles must find the same step by themselves."""
    recovery, folder = replace(_recovery(blueprint), elsewhere=True), blueprint.checkpoints.folder
    if folder is not None and blueprint.sync and blueprint.elastic.least is not None:
        servers = tuple(name for name in everybody if name.startswith(PSERVER))
        return replace(recovery, saved=SavedByServers(folder, servers))
    return replace(recovery, saved=SavedByAll(folder, everybody)) if folder is not None and blueprint.sync else recovery


def _check_saved(blueprint: Blueprint, names: Sequence[str], resume: bool) -> None:
    """Raise OutputExistsError for checkpoints of another run that would be mixed up, UsageError for none to resume from."""
    folder = blueprint.checkpoints.folder
    if folder is None:
        if resume:
            hint = Hint("name their folder: checkpoints=Checkpoints(DIR)", "name their folder with --checkpoint DIR")
            raise UsageError("resuming needs checkpoints", hint=hint)
        return
    taken = [] if resume else [name for name in names if (folder / name).exists()]
    if taken:
        raise OutputExistsError(
            f"{folder} already has checkpoints of {', '.join(taken)}",
            hint=Hint(
                "resume from them: resume=True, or choose another folder",
                "resume from them with --resume, or choose another folder",
            ),
            location=Location(str(folder)),
        )


# ---------------------------------------------------------------- on this machine
def _locally(blueprint: Blueprint, options: LaunchOptions, show: Show, _: Play | None) -> LaunchResult:
    endpoints, others = _endpoints(blueprint, options)
    names = [member.name for member in blueprint.cluster(endpoints).members()]
    _check_saved(blueprint, names, options.resume)
    check_free(endpoints)
    chosen = () if blueprint.is_script or not options.any_ports else (*endpoints, *others)
    with tempfile.TemporaryDirectory(prefix="fluidtool-launch-") as name, held(chosen):
        roles = blueprint.roles(endpoints, Path(name), others)
        engine = LocalEngine(Path(name), base_environment(len(roles)))
        return _supervise(roles, engine, blueprint, options, show)


def _endpoints(blueprint: Blueprint, options: LaunchOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where the roles listen, and the second copies of servers."""
    if blueprint.replicas == 1:
        return _places(blueprint, options), ()
    if not options.any_ports:
        places = _places(blueprint, options)
        return places, free_endpoints(len(places))
    found = free_endpoints(2 * blueprint.listeners)
    return found[: blueprint.listeners], found[blueprint.listeners :]


def _places(blueprint: Blueprint, options: LaunchOptions) -> tuple[str, ...]:
    """Where the roles listen: as the job or the user says, else at this machine."""
    if options.any_ports and not blueprint.is_script:
        return free_endpoints(blueprint.listeners)
    if blueprint.endpoints and not options.any_ports:
        return blueprint.endpoints
    return loopback_endpoints(blueprint.listeners, None if options.any_ports else options.port)


def _supervise(
    roles: Sequence[Role],
    engine: Engine,
    blueprint: Blueprint,
    options: LaunchOptions,
    show: Show,
    recovery: Recovery | None = None,
    started: int = 0,
) -> LaunchResult:
    """Look after a job until it is over."""
    with show([role.name for role in roles]) as view:
        outcome = Supervisor(
            roles,
            engine,
            view,
            patience=Patience(options.grace, options.hang_after),
            recovery=recovery or _recovery(blueprint, options.restarts),
            resume=options.resume,
            started=started,
        ).run()
    return LaunchResult(outcome.exit_code, outcome)


# ---------------------------------------------------------------- one role, the others elsewhere
def _one_role(blueprint: Blueprint, options: LaunchOptions, wanted: str, show: Show) -> LaunchResult:
    _check_one_role(blueprint, options)
    starting, blueprint = blueprint.trainers, blueprint.of_everybody()
    members = blueprint.cluster(blueprint.endpoints).members()
    everybody = tuple(member.name for member in members)
    copies = _copies_elsewhere(blueprint)
    names = (*everybody, *(second_of(name) for name in everybody[: len(copies.others)]))
    name = names[int(wanted)] if wanted.isdecimal() and int(wanted) < len(names) else wanted
    if name not in names:
        raise UsageError(f"the job has no role {wanted!r}; it has {', '.join(names)} (0 to {len(names) - 1})")
    if not (copies.others and name.startswith(PSERVER)):  # the other copy may have saved already
        _check_saved(blueprint, [name], options.resume)
    recovery = _recovery_elsewhere(blueprint, everybody)
    if options.resume and recovery.saved.newest([saved_as(name)]) is None:
        recovery.saved.forget([saved_as(name)])
    places = {member.name: member.endpoint for member in members if member.endpoint}
    places |= {second_of(name): other for name, other in zip(everybody, copies.others, strict=False)}
    own = [places[name]] if name in places else []
    await_names(own)
    check_free(own)
    with tempfile.TemporaryDirectory(prefix="fluidtool-launch-") as place:
        roles = replace(blueprint, metrics="").roles(blueprint.endpoints, Path(place), copies.others)
        role = with_metrics([each for each in roles if each.name == name], blueprint.metrics)
        role = with_variables(role, {**blueprint.elastic.environment(starting), **copies.environment()})
        engine = LocalEngine(Path(place), base_environment(1))
        return _supervise(role, engine, blueprint, options, show, recovery, _started())


@dataclass(frozen=True, slots=True)
class _Copies:
    """others: where the second copies of servers listen, in their order. folder: where copies find out which of them serves."""

    others: tuple[str, ...] = ()
    folder: str = ""

    def environment(self) -> dict[str, str]:
        """What roles read."""
        return {REPLICAS_DIR: self.folder} if self.others else {}


def _copies_elsewhere(blueprint: Blueprint) -> _Copies:
    """As the environment says, since nobody chooses endpoints for roles that are started one by one; none without replicas."""
    if blueprint.replicas == 1:
        return _Copies()
    given, folder = TransportOptions.from_environment(os.environ).replicas, os.environ.get(REPLICAS_DIR, "")
    if tuple(given) != blueprint.endpoints or not folder:
        raise UsageError(
            f"a role of a job with replicas that is started alone needs {REPLICAS}, which says where the second copy of each of "
            f"{', '.join(blueprint.endpoints)} listens, and {REPLICAS_DIR}, a folder that all servers reach; found "
            f"{os.environ.get(REPLICAS, '')!r} and {folder!r}",
            hint=f"set {REPLICAS}={','.join(f'{each}=HOST:PORT' for each in blueprint.endpoints)} and {REPLICAS_DIR}=DIR",
        )
    return _Copies(tuple(given.values()), folder)


def _check_one_role(blueprint: Blueprint, options: LaunchOptions) -> None:
    if options.engine != "local" or options.any_ports:
        hint = Hint("omit engine= and any_ports=", "omit --engine and --any-ports")
        raise UsageError("a role that is started alone runs on this machine, at its own endpoint", hint=hint)
    if options.restarts:
        hint = Hint("give resume=True, and let that restart it", "give --resume, and let that restart it")
        raise UsageError("a role that is started alone is restarted by what starts the other roles", hint=hint)
    if not blueprint.endpoints:
        hint = Hint(
            "name them: servers='HOST:PORT,…'", "name them: --pservers HOST:PORT,… (--trainers without servers)"
        )
        raise UsageError("the endpoints of the job are unknown", hint=hint)


def _started() -> int:
    """How often this role was started before, as FLUIDTOOL_RESTARTS says, which Kubernetes and Slurm count."""
    text = os.environ.get(RESTARTS) or "0"
    if not text.isdecimal():
        raise UsageError(f"{RESTARTS} must be the number of restarts of the role, found {text!r}")
    return int(text)


# ---------------------------------------------------------------- on Ray
def _on_ray(blueprint: Blueprint, options: LaunchOptions, show: Show, _: Play | None) -> LaunchResult:
    from fluidtool.distribute.launch.ray import RayEngine

    _check_placed(blueprint, options)
    names = [member.name for member in blueprint.cluster(blueprint.endpoints or ("",) * blueprint.listeners).members()]
    _check_saved(blueprint, names, options.resume)
    engine = RayEngine(replace(blueprint, job=blueprint.job.resolve()), options.ray_address, options.restarts)
    try:
        return _supervise(engine.roles(), engine, blueprint, options, show)
    finally:
        engine.close()


def _check_placed(blueprint: Blueprint, options: LaunchOptions) -> None:
    if blueprint.is_script and blueprint.endpoints:
        raise UsageError(
            f"with the engine {options.engine} roles choose their endpoints themselves",
            hint="give the numbers of servers and trainers",
        )


# ---------------------------------------------------------------- under mpiexec
def _under_mpi(blueprint: Blueprint, options: LaunchOptions, _: Show, play: Play | None) -> LaunchResult:
    from fluidtool.distribute.launch import mpi

    if options.restarts:
        raise UsageError(
            "MPI ends a whole job when one process fails, so there are no restarts with the engine mpi",
            hint=Hint(
                "restart the job with checkpoints and resume=True", "restart the job with --checkpoint DIR --resume"
            ),
        )
    _check_placed(blueprint, options)
    if play is None:
        raise UsageError("under MPI this process plays a role itself; give play= to run it")
    with tempfile.TemporaryDirectory(prefix="fluidtool-launch-") as name:
        code = mpi.run(blueprint, play, Path(name), recovery=_recovery(blueprint), resume=options.resume)
    return LaunchResult(code, None)
