"""What to train on, in which order, what to keep of it, and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options.panels import CHECKPOINTS, INPUTS, MODEL, OUTPUT

_DATA = typer.Option(
    "--data",
    metavar="[NAME=]FILE...",
    rich_help_panel=INPUTS,
    help="The examples: .npz (an array for each input, NAME.lod with the sequence lengths), .npy, or a folder of "
    "NAME.npy. The leading axis counts the examples; files for the same input are put together. Arrays called "
    "step0_feed0, step0_feed1, ... are mini-batches as they are.",
)
Data = Annotated[list[str] | None, _DATA]
RequiredData = Annotated[list[str], _DATA]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="N",
        min=1,
        rich_help_panel=INPUTS,
        help="Examples in a mini-batch (default: what the program declares, else 32).",
    ),
]
Epochs = Annotated[
    int, typer.Option("--epochs", metavar="N", min=1, rich_help_panel=INPUTS, help="How often to go over the data.")
]
Shuffle = Annotated[
    bool, typer.Option("--shuffle/--no-shuffle", rich_help_panel=INPUTS, help="Another order in every epoch.")
]
DropLast = Annotated[
    bool, typer.Option("--drop-last", rich_help_panel=INPUTS, help="Leave an incomplete last mini-batch out.")
]
Loss = Annotated[
    str | None,
    typer.Option(
        "--loss", metavar="NAME", rich_help_panel=MODEL, help="The loss (default: where the backward pass starts)."
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="DIR", rich_help_panel=OUTPUT, help="Save all that persists at the end, a file each."
    ),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", rich_help_panel=OUTPUT, help="Write a line of JSON for each step here."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", rich_help_panel=CHECKPOINTS, help="Save checkpoints below DIR."),
]
Keep = Annotated[
    int,
    typer.Option("--keep", metavar="K", min=1, rich_help_panel=CHECKPOINTS, help="How many checkpoints are kept."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=CHECKPOINTS,
        help="Go on from the latest checkpoint, if there is one; the result is that of an unbroken run.",
    ),
]
