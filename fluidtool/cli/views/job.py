"""What `transpile --distribute` shows: the programs of every role, or what lives on which server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluidtool.cli.failures import say
from fluidtool.cli.render import Table, counted, fields, show, show_json, size, table
from fluidtool.distribute.overview import plan_data
from fluidtool.distribute.plan import DistributePlan
from fluidtool.distribute.roles import RolePrograms
from fluidtool.passes.pipeline import count_operators
from fluidtool.shapes import shape_text
from fluidtool.workflows.job import JobResult

if TYPE_CHECKING:
    from fluidtool.report.transpile import JobReport, Plan, PlanReport


def show_job(made: JobResult, output: Path, json: bool) -> None:
    """The manifest, or the files of each role."""
    if json:
        show_json(_document(made))
    else:
        show(roles_table(made.roles))
    say(f"programs of {counted(len(made.roles), 'role')} saved to {output}")
    if made.certificates:
        say("each role has a certificate in its folder (ROLE/tls), valid for a year; keep ROLE/tls/key.pem secret")
    elif made.open_to_others:
        say(f"no certificates were made: {made.open_to_others}; roles on other machines need a token (FLUIDTOOL_TOKEN)")


def show_plan(plan: DistributePlan, json: bool) -> None:
    """What lives on which server."""
    data = plan_data(plan)
    if json:
        show_json(_plan_document(data))
    else:
        show(*plan_tables(plan, data))


def _document(made: JobResult) -> JobReport:
    """The data of `--json`: what the manifest lists."""
    return {"schema": "fluidtool.transpile/1", "view": "job", **made.manifest}


def _plan_document(data: Plan) -> PlanReport:
    return {"schema": "fluidtool.transpile/1", "view": "plan", **data}


def roles_table(made: Sequence[RolePrograms]) -> Table:
    """The files of each role, and how many operators they have."""
    out = table("", "!role", "!endpoint", "!main program", ">operators", "!startup program", ">operators")
    for programs in made:
        counts = [count_operators(program) for program in (programs.main, programs.startup)]
        names = [f"{programs.name}/{kind}.pb" for kind in ("main", "startup")]
        out.add(programs.name, programs.endpoint, names[0], counts[0], names[1], counts[1])
    return out


def plan_tables(plan: DistributePlan, data: Plan) -> Iterator[Table]:
    """The plan at a glance, its servers and its shards."""
    yield fields("Plan", _fields(plan, data))
    yield _servers_table(data)
    yield _shards_table(data)


def _fields(plan: DistributePlan, data: Plan) -> list[tuple[str, Any]]:
    mode, dispatcher = data["mode"].replace("_", "-"), data["split_method"]
    found = [("mode", mode), ("trainers", data["trainers"]), ("split method", dispatcher)]
    found.append(("balance", f"{data['balance']:.2f} (fullest server to mean)"))
    if plan.table:
        found.append(("distributed table", f"{plan.table.name}, row i on server i modulo {len(data['servers'])}"))
    return found


def _servers_table(data: Plan) -> Table:
    out = table("Servers", "!endpoint", ">shards", ">bytes", ">share")
    total = sum(server["bytes"] for server in data["servers"]) or 1
    for server in data["servers"]:
        share = f"{100 * server['bytes'] / total:.1f} %"
        out.add(server["endpoint"], server["shards"], size(server["bytes"]), share)
    return out


def _shards_table(data: Plan) -> Table:
    out = table("Shards", "shard", "!type", "!shape", ">bytes", "!server")
    for parameter in data["parameters"]:
        for shard in parameter["shards"]:
            out.add(
                shard["name"],
                parameter["data_type"],
                shape_text(shard["shape"]),
                size(shard["bytes"]),
                shard["endpoint"],
            )
    return out
