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
    help="The examples: .npz (one array per input, NAME.lod with the sequence lengths), .npy, or a folder of "
    "NAME.npy. The leading axis counts the examples; files for the same input are concatenated. Arrays called "
    "step0_feed0, step0_feed1, ... are ready mini-batches.",
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
        help="Examples per mini-batch (default: as declared by the program, otherwise 32).",
    ),
]
Epochs = Annotated[
    int,
    typer.Option("--epochs", metavar="N", min=1, rich_help_panel=INPUTS, help="The number of passes over the data."),
]
Shuffle = Annotated[
    bool, typer.Option("--shuffle/--no-shuffle", rich_help_panel=INPUTS, help="Shuffle the examples in every epoch.")
]
DropLast = Annotated[
    bool, typer.Option("--drop-last", rich_help_panel=INPUTS, help="Drop an incomplete last mini-batch.")
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
        "--save",
        metavar="DIR",
        rich_help_panel=OUTPUT,
        help="At the end, save all persistable variables, one file each.",
    ),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", rich_help_panel=OUTPUT, help="Write one line of JSON per step to this file."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", rich_help_panel=CHECKPOINTS, help="Save checkpoints in DIR."),
]
Keep = Annotated[
    int,
    typer.Option("--keep", metavar="K", min=1, rich_help_panel=CHECKPOINTS, help="The number of checkpoints to keep."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=CHECKPOINTS,
        help="Resume from the latest checkpoint, if there is one; the result is that of an uninterrupted run.",
    ),
]
