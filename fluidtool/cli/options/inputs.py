"""What a model is fed: files, sequence lengths, random values."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.options.panels import INPUTS

Feeds = Annotated[
    list[str] | None,
    typer.Option(
        "--feed",
        metavar="[NAME=]FILE",
        rich_help_panel=INPUTS,
        help="The value of an input: .npy, .npz (arrays by name), or - for standard input. NAME= may be omitted if "
        "there is only one input or the file has its name.",
    ),
]
Lods = Annotated[
    list[str] | None,
    typer.Option(
        "--lod",
        metavar="NAME=[[2,3]]",
        rich_help_panel=INPUTS,
        help="The sequence lengths of an input, one list per level; or a JSON file with the lengths by name.",
    ),
]
Random = Annotated[
    bool, typer.Option("--random", rich_help_panel=INPUTS, help="Use random values for inputs that are not fed.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, rich_help_panel=INPUTS, help="The random seed.")]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        rich_help_panel=INPUTS,
        help="The batch size, used for a leading -1 that is not given (1).",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,3,224,224",
        rich_help_panel=INPUTS,
        help="The shape of an input with undeclared sizes (repeatable; NAME= may be omitted if there is only one "
        "input).",
    ),
]
InputNames = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="NAME...",
        rich_help_panel=INPUTS,
        help="The inputs that feed0, feed1, ... of ready mini-batches belong to (default: in order of use).",
    ),
]
