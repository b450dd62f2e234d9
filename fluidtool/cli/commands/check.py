"""`fluidtool check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.inputs import Batch
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.options.panels import OUTPUT
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.cli.progress import progress
from fluidtool.cli.render import show, show_json
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
    from fluidtool.cli.views.check import count_text, findings_table
    from fluidtool.io.parameters import persistables
    from fluidtool.passes.verify import verify_model

    with progress("checking"):
        found = verify_model(opened.files, opened.policy)
    if json:
        show_json({"program": opened.files.program_source, "findings": [asdict(finding) for finding in found]})
    else:
        show(findings_table(found, opened.program.num_blocks > 1))
    operators = sum(len(block.ops) for block in opened.program.blocks)
    parameters = len(persistables(opened.program))
    say(f"{opened.files.program_source}: {operators} operators, {parameters} parameters, {count_text(found)}")
    return found


def _security(opened: Model, batch: int, json: bool) -> list[Finding]:
    """Show what a program could do, and the memory that it declares."""
    from fluidtool.cli.views.check import count_text, findings_table, reach_table
    from fluidtool.passes.security import declared_memory, not_allowed

    refused = not_allowed(opened.program, opened.policy)
    found, memory = [each.finding() for each in refused], declared_memory(opened.program, batch)
    if json:
        data = {"findings": [asdict(finding) for finding in found], "memory": asdict(memory)}
        show_json({"program": opened.files.program_source, **data})
        return found
    reached = {each.reach for each in refused}
    show(reach_table(reached, memory, batch), findings_table(found, opened.program.num_blocks > 1))
    say(f"{opened.files.program_source}: {count_text(found)}")
    return found
