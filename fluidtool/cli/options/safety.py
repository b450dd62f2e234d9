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
        help="Let operators save and load files below DIR (repeatable; by default nowhere).",
    ),
]
AllowNetwork = Annotated[
    bool,
    typer.Option(
        "--allow-network",
        rich_help_panel=SAFETY,
        help="Let operators use the network (by default they may not).",
    ),
]
