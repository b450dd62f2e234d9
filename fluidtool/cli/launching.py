"""What `launch` does once its options are understood."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from fluidtool.cli.render import show
from fluidtool.cli.views.launch import JsonView, outcome_fields, outcome_table, view
from fluidtool.distribute.launch.blueprint import Blueprint, draw
from fluidtool.distribute.launch.local import LocalEngine
from fluidtool.distribute.launch.plans import Checkpoints, Role, base_environment
from fluidtool.distribute.launch.ports import check_free, free_endpoints, loopback_endpoints
from fluidtool.distribute.launch.recovery import NothingSaved, Recovery, Saved, SavedIn
from fluidtool.distribute.launch.supervisor import Engine, Options, Supervisor
from fluidtool.errors import OutputExistsError, UsageError

ENGINES = ("local", "ray", "mpi")
# Options of launch that no role knows: behind JOB they would be the trainers'.
OWN = (
    "--mode",
    "--pservers",
    "--trainers",
    "--async",
    "--port",
    "--any-ports",
    "--restarts",
    "--hang-after",
    "--grace",
)


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `launch`."""

    job: Path
    arguments: Sequence[str]
    mode: str | None
    pservers: str | None
    trainers: str | None
    sync: bool
    engine: str
    port: int
    any_ports: bool
    ray_address: str | None
    checkpoint: Path | None
    checkpoint_every: int
    keep: int
    resume: bool
    restarts: int
    grace: float
    hang_after: float
    json: bool


def launch_job(request: Request) -> None:
    """Start the job, look after it, and leave with its exit code."""
    blueprint = _blueprint(request)
    if request.engine not in ENGINES:
        raise UsageError(f"--engine {request.engine} is none; expected one of {', '.join(ENGINES)}")
    if request.ray_address is not None and request.engine != "ray":
        raise UsageError("--ray-address is for --engine ray")
    engines = {"local": _locally, "ray": _on_ray, "mpi": _under_mpi}
    code = engines[request.engine](blueprint, request)
    if code:
        raise typer.Exit(code)


def _blueprint(request: Request) -> Blueprint:
    words = list(request.arguments)
    arguments = words[1:] if words[:1] == ["--"] else words
    checkpoints = Checkpoints(request.checkpoint, request.checkpoint_every, request.keep)
    blueprint = draw(
        request.job,
        mode=request.mode,
        servers=request.pservers,
        trainers=request.trainers,
        sync=request.sync,
        arguments=arguments,
        checkpoints=checkpoints,
    )
    late = [word for word in arguments if word.partition("=")[0] in OWN]
    if late and not blueprint.is_script and words is arguments:
        raise UsageError(
            f"{late[0]} stands after {request.job}, where it is the trainers'; options of launch stand before"
        )
    return blueprint


# ---------------------------------------------------------------- checkpoints
def _saved(request: Request) -> Saved:
    return NothingSaved() if request.checkpoint is None else SavedIn(request.checkpoint)


def _first_step(request: Request, names: Sequence[str]) -> int | None:
    """The step to go on from; raises OutputExistsError for checkpoints of another run that would be mixed up."""
    if request.checkpoint is None:
        if request.resume:
            raise UsageError("--resume goes on from checkpoints; say where they are with --checkpoint DIR")
        return None
    if request.resume:
        return _saved(request).newest(names)
    taken = [name for name in names if (request.checkpoint / name).exists()]
    if taken:
        raise OutputExistsError(
            f"{request.checkpoint} has checkpoints of {', '.join(taken)} already; go on from them with --resume, or choose "
            "another folder"
        )
    return None


# ---------------------------------------------------------------- on this machine
def _locally(blueprint: Blueprint, request: Request) -> int:
    endpoints = _endpoints(blueprint, request)
    names = [member.name for member in blueprint.cluster(endpoints).members()]
    step = _first_step(request, names)
    check_free(endpoints)
    with tempfile.TemporaryDirectory(prefix="fluidtool-launch-") as name:
        roles = blueprint.roles(endpoints, Path(name))
        engine = LocalEngine(Path(name), base_environment(len(roles)))
        return _supervise(roles, engine, blueprint, request, step)


def _endpoints(blueprint: Blueprint, request: Request) -> tuple[str, ...]:
    """Where the roles listen: as the job or the user says, else at this machine."""
    if request.any_ports and not blueprint.is_script:
        return free_endpoints(blueprint.listeners)
    if blueprint.endpoints and not request.any_ports:
        return blueprint.endpoints
    return loopback_endpoints(blueprint.listeners, None if request.any_ports else request.port)


def _supervise(roles: Sequence[Role], engine: Engine, blueprint: Blueprint, request: Request, step: int | None) -> int:
    """Look after a job, show it, and return its exit code."""
    with view([role.name for role in roles], request.json) as shown, redirect_stdout(sys.stderr):  # Ray prints
        outcome = Supervisor(
            roles,
            engine,
            shown,
            options=Options(request.grace, request.hang_after),
            recovery=Recovery(request.restarts, blueprint.sync, _saved(request)),
            resume_step=step,
        ).run()
    if isinstance(shown, JsonView):
        shown.event(outcome.reason, **outcome_fields(outcome))
    else:
        show(outcome_table(outcome))
    return outcome.exit_code


# ---------------------------------------------------------------- on Ray
def _on_ray(blueprint: Blueprint, request: Request) -> int:
    from fluidtool.distribute.launch.ray import RayEngine

    _check_placed(blueprint, request)
    names = [member.name for member in blueprint.cluster(blueprint.endpoints or ("",) * blueprint.listeners).members()]
    step = _first_step(request, names)
    engine = RayEngine(replace(blueprint, job=blueprint.job.resolve()), request.ray_address, request.restarts)
    try:
        return _supervise(engine.roles(), engine, blueprint, request, step)
    finally:
        engine.close()


def _check_placed(blueprint: Blueprint, request: Request) -> None:
    if blueprint.is_script and blueprint.endpoints:
        raise UsageError(
            f"with --engine {request.engine} roles find endpoints by themselves; give numbers of servers and trainers"
        )


# ---------------------------------------------------------------- under mpiexec
def _under_mpi(blueprint: Blueprint, request: Request) -> int:
    from fluidtool.cli.app import run_command
    from fluidtool.distribute.launch import mpi

    if request.restarts:
        raise UsageError(
            "MPI ends a whole job when one process fails, so --restarts has no meaning with --engine mpi; start the job again "
            "with --checkpoint DIR --resume"
        )
    _check_placed(blueprint, request)
    with tempfile.TemporaryDirectory(prefix="fluidtool-launch-") as name:
        return mpi.run(blueprint, run_command, Path(name), saved=_saved(request), resume=request.resume)
