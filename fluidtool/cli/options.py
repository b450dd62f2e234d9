"""Options that commands share: one declaration each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODEL, INPUTS, OUTPUT, SAFETY = "Model", "Inputs", "Output", "What the model may do"
RUNNING = "How to run"

ModelPath = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A folder, a program file (__model__, *.pdmodel, *.pb), or the common prefix of .pdmodel and .pdiparams.",
    ),
]
ParamsPath = Annotated[
    str | None,
    typer.Option(
        "--params",
        metavar="FILE|DIR",
        rich_help_panel=MODEL,
        help="Where the parameters are: one combined or pickled file, or a folder with a file for each.",
    ),
]
ModelFile = Annotated[
    str | None,
    typer.Option(
        "--model-file", metavar="NAME", rich_help_panel=MODEL, help="The program's file name within the folder MODEL."
    ),
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="One JSON document on stdout instead of tables.")
]
Force = Annotated[
    bool, typer.Option("--force", rich_help_panel=OUTPUT, help="Replace the output where it exists already.")
]
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
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=RUNNING,
        help="What computes on the CPU: auto (native where it is built and fits, else numpy), native, numpy, or what is "
        "installed of onnxruntime and openvino.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="float32|bf16",
        rich_help_panel=RUNNING,
        help="bf16 rounds the weights of products and convolutions to 16 bits, with AVX512-BF16 their inputs too; "
        "sums stay float32; native engine only.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        rich_help_panel=RUNNING,
        help="Threads of the engine, at most one for each processor (the default).",
    ),
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        rich_help_panel=INPUTS,
        help="What stands for a first size of -1 that is not given.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,3,224,224",
        rich_help_panel=INPUTS,
        help="The shape of an input whose sizes are not all declared (repeatable; NAME= may be left out for one input).",
    ),
]
