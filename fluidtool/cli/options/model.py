"""Which model: its path, its parameters, its program's file."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.options.panels import MODEL

ModelPath = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A folder, a program file (__model__, *.pdmodel, *.pb), the common prefix of .pdmodel and .pdiparams, or - for a "
        "program on standard input.",
    ),
]
ModelPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Folders, program files, common prefixes of .pdmodel and .pdiparams, patterns such as 'models/*', or - for a "
        "program on standard input.",
    ),
]
ParamsPath = Annotated[
    str | None,
    typer.Option(
        "--params",
        metavar="FILE|DIR",
        rich_help_panel=MODEL,
        help="Where the parameters are: one combined, pickled, .npz or safetensors file, a folder with one file per parameter, or "
        "a checkpoint.",
    ),
]
ModelFile = Annotated[
    str | None,
    typer.Option(
        "--model-file", metavar="NAME", rich_help_panel=MODEL, help="The program's file name in the folder MODEL."
    ),
]
ProgramOnly = Annotated[
    bool, typer.Option("--program-only", rich_help_panel=MODEL, help="Use only the program; parameters are not read.")
]
Startup = Annotated[
    str | None,
    typer.Option("--startup", metavar="FILE", rich_help_panel=MODEL, help="The startup program's file."),
]
WithParams = Annotated[bool, typer.Option("--with-params", help="The parameters too; reads the weights.")]
