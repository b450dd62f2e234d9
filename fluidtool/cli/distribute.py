"""The distribution half of `fluidtool transpile`: one program and its arguments -> the programs of every role."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluidtool.cli.failures import say
from fluidtool.cli.render import fields, show, show_json, size, table
from fluidtool.errors import UsageError

if TYPE_CHECKING:
    from fluidtool.distribute.environment import Role
    from fluidtool.distribute.plan import DistributePlan
    from fluidtool.distribute.roles import RolePrograms
    from fluidtool.distribute.settings import Settings
    from fluidtool.ir import Program

MANIFEST = "manifest.json"
SERVERS, NCCL, COLLECTIVE = "pserver", "nccl2", "collective"
MODES = (SERVERS, NCCL, COLLECTIVE)
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, completed from the environment. trainer and server are None for all of them."""

    mode: str
    servers: str
    trainers: str
    trainer: int | None
    server: str | None
    sync: bool


def distribute(
    main: Path,
    *,
    startup: Path,
    pservers: str | None,
    trainers: str | None,
    trainer_id: int | None,
    all_roles: bool,
    mode: str,
    sync: bool,
    slice_variables: bool,
    split_method: str,
    min_block_size: int,
    plan: bool,
    output: Path | None,
    force: bool,
    json: bool,
) -> None:
    """Write the trainer and parameter server programs of a distributed job, or show the plan of it.

    pservers: endpoints separated by commas; trainers: their number (pserver mode) or their endpoints (nccl2 and
    collective mode). What is None comes from the PADDLE_* variables of the environment; so does the role whose programs are
    written, unless trainer_id or all_roles says it; where nothing says it, those of all roles are.
    """
    from fluidtool.distribute.environment import role_from_environment

    if output is None and not plan:
        raise UsageError("transpile --distribute writes a folder of programs: give -o DIR, or --plan to look only")
    role = role_from_environment(os.environ)
    request = _complete(role, mode, pservers, trainers, trainer_id, all_roles, sync)
    programs = _open(main), _open(startup)
    if mode == SERVERS:
        settings = _settings(request, slice_variables, split_method, min_block_size)
        made = _with_servers(programs, settings, request)
        if plan:
            _show_plan(programs, settings, json)
            return
    elif plan:
        raise UsageError(f"--plan shows what lives on which parameter server; {mode} mode has none")
    else:
        made = _without_servers(programs, request)
    assert output is not None
    _write(output, list(made), request, force, json)


# ---------------------------------------------------------------- arguments
def _complete(
    role: Role,
    mode: str,
    pservers: str | None,
    trainers: str | None,
    trainer_id: int | None,
    all_roles: bool,
    sync: bool,
) -> Request:
    if mode not in MODES:
        raise UsageError(f"--mode {mode} is none; expected one of {', '.join(MODES)}")
    if all_roles and trainer_id is not None:
        raise UsageError("--all and --trainer-id contradict each other; give one of them")
    servers = pservers or ",".join(role.servers)
    if mode == SERVERS and not servers:
        raise UsageError("give the parameter servers, --pservers HOST:PORT,… (or set PADDLE_PSERVERS_IP_PORT_LIST)")
    known = role.trainer_endpoints if mode != SERVERS else ([str(role.trainers)] if role.servers else [])
    trainers = trainers or ",".join(known)
    if not trainers:
        what = (
            "how many trainers there are, --trainers N" if mode == SERVERS else "all trainers, --trainers HOST:PORT,…"
        )
        raise UsageError(f"give {what}")
    if all_roles or trainer_id is not None or role.kind == "local":
        return Request(mode, servers, trainers, trainer_id, None, sync)
    own = role.trainer_id if role.kind == "trainer" else None
    return Request(mode, servers, trainers, own, role.current_endpoint if own is None else None, sync)


def _settings(request: Request, slice_variables: bool, split_method: str, min_block_size: int) -> Settings:
    from fluidtool.distribute.dispatchers import HashName, RoundRobin
    from fluidtool.distribute.endpoints import parse_endpoints
    from fluidtool.distribute.settings import Settings

    rules = {rule.__name__.lower(): rule for rule in (RoundRobin, HashName)}
    name = split_method.lower().replace("-", "").replace("_", "")
    if name not in rules:
        raise UsageError(f"--split-method {split_method} is none; expected RoundRobin or HashName")
    if not request.trainers.isdecimal():
        raise UsageError(
            f"--trainers {request.trainers}: with parameter servers it is a number; for endpoints give --mode nccl2"
        )
    return Settings(
        trainer_id=request.trainer or 0,
        trainers=int(request.trainers),
        servers=parse_endpoints(request.servers, "--pservers"),
        sync=request.sync,
        slice_variables=slice_variables,
        min_block_size=min_block_size,
        dispatcher=rules[name],
    )


def _open(path: Path) -> Program:
    """The program of a file, of a folder that holds one, or of a `.pdmodel` prefix."""
    from fluidtool.io.layout import open_model

    return open_model(path, need_parameters=False).program


# ---------------------------------------------------------------- programs
def _with_servers(programs: tuple[Program, Program], settings: Settings, request: Request) -> Iterator[RolePrograms]:
    from fluidtool.distribute.roles import server_programs, trainer_programs

    everybody = request.trainer is None and request.server is None
    trainers = range(settings.trainers) if everybody else [request.trainer] if request.trainer is not None else []
    servers = settings.servers if everybody else [request.server] if request.server is not None else []
    yield from trainer_programs(*programs, settings, list(trainers))
    yield from server_programs(*programs, settings, list(servers))


def _without_servers(programs: tuple[Program, Program], request: Request) -> Iterator[RolePrograms]:
    from fluidtool.distribute.collective.programs import GRAD_ALLREDUCE, CollectivePlan, shared_parameters
    from fluidtool.distribute.endpoints import parse_endpoints
    from fluidtool.distribute.nccl import NcclPlan, check_member
    from fluidtool.distribute.roles import peer_programs

    endpoints = parse_endpoints(request.trainers, "--trainers")
    if request.trainer is not None:
        check_member(request.trainer, endpoints, endpoints[0])
    for index in range(len(endpoints)) if request.trainer is None else [request.trainer]:
        current = endpoints[index]
        plan: NcclPlan | CollectivePlan = NcclPlan(index, endpoints, current)
        if request.mode == COLLECTIVE:
            plan = CollectivePlan(GRAD_ALLREDUCE, index, endpoints, current, 1, shared_parameters(*programs))
        yield peer_programs(*programs, plan)


# ---------------------------------------------------------------- output
def _show_plan(programs: tuple[Program, Program], settings: Settings, json: bool) -> None:
    from fluidtool.distribute.overview import plan_data
    from fluidtool.distribute.planning import make_plan

    made = make_plan(*programs, settings)
    data = plan_data(made)
    if json:
        show_json(data)
        return
    show(fields("Plan", _fields(made, data)), _servers_table(data), _shards_table(data))


def _fields(plan: DistributePlan, data: dict[str, Any]) -> list[tuple[str, Any]]:
    mode, dispatcher = data["mode"].replace("_", "-"), data["dispatcher"]
    found = [("mode", mode), ("trainers", data["trainers"]), ("split method", dispatcher)]
    found.append(("balance", f"{data['balance']:.2f} (fullest server to mean)"))
    if plan.table:
        found.append(("distributed table", f"{plan.table.name}, row i on server i modulo {len(data['servers'])}"))
    return found


def _servers_table(data: dict[str, Any]) -> Any:
    out = table("Servers", "!endpoint", ">shards", ">bytes", ">share")
    total = sum(server["bytes"] for server in data["servers"]) or 1
    for server in data["servers"]:
        share = f"{100 * server['bytes'] / total:.1f} %"
        out.add(server["endpoint"], server["shards"], size(server["bytes"]), share)
    return out


def _shards_table(data: dict[str, Any]) -> Any:
    out = table("Shards", "shard", "!type", "!shape", ">bytes", "!server")
    for parameter in data["parameters"]:
        for shard in parameter["shards"]:
            out.add(shard["name"], parameter["data_type"], shard["shape"], size(shard["bytes"]), shard["endpoint"])
    return out


def _write(output: Path, made: list[RolePrograms], request: Request, force: bool, json: bool) -> None:
    """Write main.pb and startup.pb of each role into a folder of its own, and the manifest; all of it or nothing."""
    import json as encoder

    from fluidtool.io.atomic import new_folder

    manifest: dict[str, Any] = {**_head(request), "roles": []}
    with new_folder(output, replace=force) as folder:
        for programs in made:
            (folder / programs.name).mkdir()
            files = {"main": programs.main, "startup": programs.startup}
            put = {kind: _put(folder, f"{programs.name}/{kind}.pb", program) for kind, program in files.items()}
            endpoint = programs.endpoint or None
            manifest["roles"].append({"role": programs.role, "id": programs.index, "endpoint": endpoint, **put})
        (folder / MANIFEST).write_text(encoder.dumps(manifest, indent=2) + "\n")
    if json:
        show_json(manifest)
    else:
        out = table("", "!role", "!endpoint", "!main program", ">operators", "!startup program", ">operators")
        for programs in made:
            counts = [_operators(program) for program in (programs.main, programs.startup)]
            names = [f"{programs.name}/{kind}.pb" for kind in ("main", "startup")]
            out.add(programs.name, programs.endpoint, names[0], counts[0], names[1], counts[1])
        show(out)
    say(f"programs of {len(made)} role{'s' if len(made) != 1 else ''} saved to {output}")


def _operators(program: Program) -> int:
    return sum(len(block.ops) for block in program.blocks)


def _head(request: Request) -> dict[str, Any]:
    with_servers = request.mode == SERVERS
    return {
        "format": FORMAT,
        "mode": request.mode,
        "sync": request.sync if with_servers else None,
        "pservers": request.servers.split(",") if with_servers else [],
        "trainers": int(request.trainers) if with_servers else request.trainers.split(","),
    }


def _put(folder: Path, name: str, program: Program) -> dict[str, Any]:
    data = program.serialize_to_string()
    (folder / name).write_bytes(data)
    return {"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
