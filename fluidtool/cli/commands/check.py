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
from fluidtool.cli.render import show, show_json
from fluidtool.cli.terminal import TERMINAL
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
            help="List what the program could do instead of its faults: files, network, Python functions, endless loops, "
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
    """Find faults in a model without running it, for instance in continuous integration.

    It checks data flow, shapes and data types, parameters, operators and their attributes, and whether the program uses
    files or the network, which a run refuses by default. Each finding has a stable code (docs/check.md). The exit code is 1
    if there is any finding, 3 if the program cannot be read at all.
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
    from fluidtool.workflows.check import check as check_model

    found = check_model(opened, watcher=TERMINAL)
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
    from fluidtool.workflows.check import check_security

    result = check_security(opened, batch)
    found = result.findings
    if json:
        data = {"findings": [asdict(finding) for finding in found], "memory": asdict(result.memory)}
        show_json({"program": opened.files.program_source, **data})
        return found
    show(reach_table(result.reached, result.memory, batch), findings_table(found, opened.program.num_blocks > 1))
    say(f"{opened.files.program_source}: {count_text(found)}")
    return found
