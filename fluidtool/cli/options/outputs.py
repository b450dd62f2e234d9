"""What a command gives: which variables, where to, and how it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options.panels import OUTPUT

Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="One JSON document on stdout instead of tables.")
]
Force = Annotated[bool, typer.Option("--force", rich_help_panel=OUTPUT, help="Replace existing output.")]
Fetch = Annotated[
    list[str] | None,
    typer.Option(
        "--fetch", metavar="NAME...", rich_help_panel=OUTPUT, help="Fetch these variables instead of the outputs."
    ),
]
_TARGETS = typer.Option(
    "--targets", metavar="NAME...", rich_help_panel=OUTPUT, help="The outputs of the inference model."
)
Targets = Annotated[list[str] | None, _TARGETS]
RequiredTargets = Annotated[list[str], _TARGETS]
Draw = Annotated[
    Path | None,
    typer.Option("--draw", metavar="FILE.svg", rich_help_panel=OUTPUT, help="Draw what was found as a picture."),
]
_OUTPUT = typer.Option(
    "--output",
    "-o",
    metavar="OUT",
    rich_help_panel=OUTPUT,
    help="Where to save the result, in the layout of MODEL. By default nothing is written.",
)
Output = Annotated[Path | None, _OUTPUT]
RequiredOutput = Annotated[Path, _OUTPUT]
