"""`fluidtool check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import open_model
from fluidtool.cli.options import Json, ModelFile, ModelPath, ParamsPath
from fluidtool.cli.progress import progress
from fluidtool.cli.render import show, show_json, table
from fluidtool.errors import EXIT_FINDING

if TYPE_CHECKING:
    from fluidtool.passes.findings import Finding


def check(
    model: ModelPath,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    json: Json = False,
) -> None:
    """Find faults in a model without running it; for continuous integration.

    Checked are data flow, shapes and data types, parameters, operators and their attributes. Each finding has a stable
    code (docs/check.md). The exit code is 1 if there is any finding, 3 if the program cannot be read at all.
    """
    from fluidtool.io.parameters import persistables
    from fluidtool.passes.verify import verify_model

    opened = open_model(model, model_file, params, need_parameters=False, validate=False)
    with progress("checking"):
        found = verify_model(opened.files)
    if json:
        show_json({"program": opened.files.program_source, "findings": [asdict(finding) for finding in found]})
    else:
        out = table("", "!code", "where", "finding")
        for finding in found:
            out.add(finding.code, place(finding, opened.program.num_blocks > 1), finding.message)
        show(out)
    operators = sum(len(block.ops) for block in opened.program.blocks)
    count = f"{len(found)} finding{'s' if len(found) != 1 else ''}" if found else "no findings"
    parameters = len(persistables(opened.program))
    say(f"{opened.files.program_source}: {operators} operators, {parameters} parameters, {count}")
    if found:
        raise typer.Exit(EXIT_FINDING)


def place(finding: Finding, blocks: bool) -> str:
    """'12 conv2d', 'block 1, 3 mul', or the variable."""
    if finding.position is None:
        return finding.variable
    return (f"block {finding.block}, " if blocks else "") + f"{finding.position} {finding.operator}"
