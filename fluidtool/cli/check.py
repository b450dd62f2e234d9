"""`fluidtool check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import open_model
from fluidtool.cli.options import OUTPUT, AllowFiles, AllowNetwork, Batch, Json, ModelFile, ModelPath, ParamsPath
from fluidtool.cli.progress import progress
from fluidtool.cli.render import Table, fields, show, show_json, size, table
from fluidtool.errors import EXIT_FINDING

if TYPE_CHECKING:
    from fluidtool.model import Model
    from fluidtool.passes.findings import Finding


def check(
    model: ModelPath,
    security: Annotated[
        bool,
        typer.Option(
            "--security",
            rich_help_panel=OUTPUT,
            help="List what the program could do, instead of its faults: files, network, Python functions, endless loops, "
            "and the memory that it declares.",
        ),
    ] = False,
    batch: Batch = 1,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    json: Json = False,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Find faults in a model without running it; for continuous integration.

    Checked are data flow, shapes and data types, parameters, operators and their attributes, and whether the program asks
    for files or the network, which a run refuses unless it is allowed. Each finding has a stable code (docs/check.md). The
    exit code is 1 if there is any finding, 3 if the program cannot be read at all.
    """
    opened = open_model(
        model,
        model_file,
        params,
        allow_files=allow_files or (),
        allow_network=allow_network,
        need_parameters=False,
        validate=False,
    )
    found = _security(opened, batch, json) if security else _faults(opened, json)
    if found:
        raise typer.Exit(EXIT_FINDING)


def _faults(opened: Model, json: bool) -> list[Finding]:
    """Show everything that is wrong with a model."""
    from fluidtool.io.parameters import persistables
    from fluidtool.passes.verify import verify_model

    with progress("checking"):
        found = verify_model(opened.files, opened.policy)
    if json:
        show_json({"program": opened.files.program_source, "findings": [asdict(finding) for finding in found]})
    else:
        show(_table(found, opened))
    operators = sum(len(block.ops) for block in opened.program.blocks)
    parameters = len(persistables(opened.program))
    say(f"{opened.files.program_source}: {operators} operators, {parameters} parameters, {_count(found)}")
    return found


def _security(opened: Model, batch: int, json: bool) -> list[Finding]:
    """Show what a program could do, and the memory that it declares."""
    from fluidtool.passes.security import Reach, declared_memory, not_allowed

    refused = not_allowed(opened.program, opened.policy)
    found, memory = [each.finding() for each in refused], declared_memory(opened.program, batch)
    if json:
        data = {"findings": [asdict(finding) for finding in found], "memory": asdict(memory)}
        show_json({"program": opened.files.program_source, **data})
        return found
    reached = {each.reach for each in refused}
    largest = f"{memory.largest_variable}, {size(memory.largest)}" if memory.largest_variable else "none"
    unknown = (
        [("not counted", f"{', '.join(memory.unknown)} (sizes that only a run can tell)")] if memory.unknown else []
    )
    answers = [(reach.named, "see below" if reach in reached else "none") for reach in Reach]
    amounts = [
        ("parameters", size(memory.parameters)),
        ("activations", f"{size(memory.activations)} at once, for batch {batch}"),
        ("largest variable", largest),
        *unknown,
    ]
    show(fields("", [*answers, *amounts]), _table(found, opened))
    say(f"{opened.files.program_source}: {_count(found)}")
    return found


def _table(found: list[Finding], opened: Model) -> Table:
    out = table("", "!code", "where", "finding")
    for finding in found:
        out.add(finding.code, place(finding, opened.program.num_blocks > 1), finding.message)
    return out


def _count(found: list[Finding]) -> str:
    return f"{len(found)} finding{'s' if len(found) != 1 else ''}" if found else "no findings"


def place(finding: Finding, blocks: bool) -> str:
    """'12 conv2d', 'block 1, 3 mul', or the variable."""
    if finding.position is None:
        return finding.variable
    return (f"block {finding.block}, " if blocks else "") + f"{finding.position} {finding.operator}"
