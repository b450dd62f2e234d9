"""What the operators of a model may do; by default neither files nor the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options.panels import SAFETY

AllowFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--allow-files",
        metavar="DIR",
        rich_help_panel=SAFETY,
        help="Let operators that save or load files do so below DIR (repeatable; by default nowhere).",
    ),
]
AllowNetwork = Annotated[
    bool,
    typer.Option(
        "--allow-network",
        rich_help_panel=SAFETY,
        help="Let operators that talk to the network do so (by default they may not).",
    ),
]
