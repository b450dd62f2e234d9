"""`fluidtool.make_job(main, startup, output, request)`: the programs of every role of a distributed job, in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fluidtool.distribute.collective.programs import GRAD_ALLREDUCE, CollectivePlan, shared_parameters
from fluidtool.distribute.dispatchers import HashName, RoundRobin
from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.distribute.environment import Role, role_from_environment
from fluidtool.distribute.launch.contract import SERVERS
from fluidtool.distribute.launch.jobs import COLLECTIVE, MANIFEST_MODES, write_job
from fluidtool.distribute.nccl import NcclPlan, check_member
from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.planning import make_plan
from fluidtool.distribute.roles import RolePrograms, peer_programs, server_programs, trainer_programs
from fluidtool.distribute.rpc.certificates import can_make_certificates, make_certificates
from fluidtool.distribute.rpc.security import is_loopback
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.sharding import SMALLEST_BLOCK
from fluidtool.errors import Hint, UsageError
from fluidtool.io.layout import open_model
from fluidtool.ir import Program
from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.report.transpile import Manifest


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a distributed job should be.

    mode: "pserver", "nccl2" or "collective". pservers: endpoints separated by commas; trainers: their number (pserver mode)
    or their endpoints. What is None comes from the PADDLE_* environment variables. They also say for which role
    programs are made, unless trainer_id or all_roles does; if nothing says so, programs are made for all roles.
    split_method: how shards are placed on servers, "RoundRobin" or "HashName". tls: make certificates for the roles;
    None: if endpoints are on other machines, all roles are made and the package cryptography is there. False for real
    Paddle's peers, which do not support TLS.
    """

    pservers: str | None = None
    trainers: str | None = None
    trainer_id: int | None = None
    all_roles: bool = False
    mode: str = SERVERS
    sync: bool = True
    slice_variables: bool = True
    split_method: str = "RoundRobin"
    min_block_size: int = SMALLEST_BLOCK
    tls: bool | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """The programs that were written, and the manifest beside them. certificates: whether roles have them; open_to_others:
    why not, if other machines can reach the roles.
    """

    roles: tuple[RolePrograms, ...]
    manifest: Manifest
    certificates: bool = False
    open_to_others: str = ""


def make_job(
    main: Path,
    startup: Path,
    output: Path,
    request: JobRequest,
    *,
    overwrite: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> JobResult:
    """Write main.pb and startup.pb of each role into its own folder below `output`, and a manifest; all or nothing.

    main, startup: a file, a folder that contains a program, or a `.pdmodel` prefix. Raises UsageError for what cannot
    work or is missing, ProgramError for a program that does not train, OutputExistsError, OutputError, and what `load`
    raises.
    """
    job = _completed(request, role_from_environment(environment))
    programs = _programs(main, startup)
    make = _with_servers if job.mode == SERVERS else _without_servers
    made = tuple(make(programs, job))
    with_servers = job.mode == SERVERS
    missing = _missing_certificates(job)
    wanted = missing is None if request.tls is None else request.tls
    if wanted and not _makes_all(job):
        hint = Hint("give all_roles=True", "give --all")
        raise UsageError("certificates are made for all roles of a job at once", hint=hint)
    certificates = make_certificates([programs.name for programs in made]) if wanted else {}
    manifest = write_job(
        output,
        made,
        mode=job.mode,
        sync=job.request.sync if with_servers else None,
        servers=job.servers.split(",") if with_servers else [],
        trainers=int(job.trainers) if with_servers else job.trainers.split(","),
        overwrite=overwrite,
        certificates=certificates,
    )
    return JobResult(made, manifest, wanted, "" if wanted else missing or "")


def _makes_all(job: _Job) -> bool:
    return job.trainer is None and job.server is None


def _missing_certificates(job: _Job) -> str | None:
    """Why the roles get no certificates unless somebody asks for them; None: they do, "": nobody else reaches the roles."""
    endpoints = parse_endpoints(job.servers if job.mode == SERVERS else job.trainers, "endpoints")
    if all(map(is_loopback, endpoints)):
        return ""
    if job.request.tls is False:
        return "TLS is off"
    if not _makes_all(job):
        return "certificates are made for all roles at once"
    if not can_make_certificates():
        return "the package cryptography is not installed (pip install 'fluidtool[dist]')"
    return None


def plan_job(
    main: Path, startup: Path, request: JobRequest, *, environment: Mapping[str, str] = os.environ
) -> DistributePlan:
    """What would live on which parameter server; nothing is written. Raises UsageError in a mode without servers."""
    job = _completed(request, role_from_environment(environment))
    programs = _programs(main, startup)
    if job.mode != SERVERS:
        raise UsageError(f"a plan shows how shards are placed on parameter servers; {job.mode} mode has none")
    return make_plan(*programs, _settings(job))


# ---------------------------------------------------------------- arguments
@dataclass(frozen=True, slots=True)
class _Job:
    """What was asked for, completed from the environment. trainer and server are None for all of them."""

    request: JobRequest
    servers: str
    trainers: str
    trainer: int | None
    server: str | None

    @property
    def mode(self) -> str:
        return self.request.mode


def _completed(request: JobRequest, role: Role) -> _Job:
    mode = request.mode
    if mode not in MANIFEST_MODES:
        raise UsageError(f"there is no mode {mode!r}; expected one of {', '.join(MANIFEST_MODES)}")
    if request.all_roles and request.trainer_id is not None:
        hint = Hint("give all_roles= or trainer_id=", "give --all or --trainer-id")
        raise UsageError("all roles and a single trainer contradict each other", hint=hint)
    servers = request.pservers or ",".join(role.servers)
    if mode == SERVERS and not servers:
        way = "(or set PADDLE_PSERVERS_IP_PORT_LIST)"
        hint = Hint(f"give pservers='HOST:PORT,…' {way}", f"give the parameter servers, --pservers HOST:PORT,… {way}")
        raise UsageError("the job has no parameter servers", hint=hint)
    known = role.trainer_endpoints if mode != SERVERS else ([str(role.trainers)] if role.servers else [])
    trainers = request.trainers or ",".join(known)
    if not trainers:
        what, value = ("number", "N") if mode == SERVERS else ("endpoints", "HOST:PORT,…")
        hint = Hint(f"give trainers='{value}'", f"give --trainers {value}")
        raise UsageError(f"nothing says the {what} of the trainers", hint=hint)
    if request.all_roles or request.trainer_id is not None or role.kind == "local":
        return _Job(request, servers, trainers, request.trainer_id, None)
    own = role.trainer_id if role.kind == "trainer" else None
    return _Job(request, servers, trainers, own, role.current_endpoint if own is None else None)


def _settings(job: _Job) -> Settings:
    rules = {rule.__name__.lower(): rule for rule in (RoundRobin, HashName)}
    split_method = job.request.split_method
    name = split_method.lower().replace("-", "").replace("_", "")
    if name not in rules:
        raise UsageError(f"there is no split method {split_method!r}; expected RoundRobin or HashName")
    if not job.trainers.isdecimal():
        raise UsageError(
            f"with parameter servers, trainers must be a number, found {job.trainers!r}",
            hint=Hint("to give endpoints, add mode='nccl2'", "to give endpoints, add --mode nccl2"),
        )
    return Settings(
        trainer_id=job.trainer or 0,
        trainers=int(job.trainers),
        servers=parse_endpoints(job.servers, "pservers"),
        sync=job.request.sync,
        slice_variables=job.request.slice_variables,
        min_block_size=job.request.min_block_size,
        dispatcher=rules[name],
    )


def _programs(main: Path, startup: Path) -> tuple[Program, Program]:
    """Both programs; raises UsageError for a startup program that makes none of the parameters that are trained."""
    programs = _open(main), _open(startup)
    operators = [[op for block in program.blocks for op in block.ops] for program in programs]
    trained = {name for op in operators[0] for name in op.input("Param")}
    made = {name for op in operators[1] for name in op.output_arg_names}
    if trained and trained.isdisjoint(made):
        raise UsageError(
            f"{startup} initializes none of the parameters that {main} trains, such as {min(trained)}",
            hint="give the startup program that belongs to it",
        )
    return programs


def _open(path: Path) -> Program:
    """The program of a file, of a folder that holds one, or of a `.pdmodel` prefix."""
    return open_model(path, need_parameters=False).program


# ---------------------------------------------------------------- programs
def _with_servers(programs: tuple[Program, Program], job: _Job) -> Iterator[RolePrograms]:
    settings = _settings(job)
    everybody = job.trainer is None and job.server is None
    trainers = range(settings.trainers) if everybody else [job.trainer] if job.trainer is not None else []
    servers = settings.servers if everybody else [job.server] if job.server is not None else []
    yield from trainer_programs(*programs, settings, list(trainers))
    yield from server_programs(*programs, settings, list(servers))


def _without_servers(programs: tuple[Program, Program], job: _Job) -> Iterator[RolePrograms]:
    endpoints = parse_endpoints(job.trainers, "trainers")
    if job.trainer is not None:
        check_member(job.trainer, endpoints, endpoints[0])
    for index in range(len(endpoints)) if job.trainer is None else [job.trainer]:
        current = endpoints[index]
        plan: NcclPlan | CollectivePlan = NcclPlan(index, endpoints, current)
        if job.mode == COLLECTIVE:
            plan = CollectivePlan(GRAD_ALLREDUCE, index, endpoints, current, 1, shared_parameters(*programs))
        yield peer_programs(*programs, plan)
