"""How to run: device, engine, precision, threads, how often."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.options.panels import RUNNING

Device = Annotated[
    str, typer.Option("--device", metavar="cpu|gpu|gpu:N", rich_help_panel=RUNNING, help="Where to compute.")
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=RUNNING,
        help="What computes on the CPU: auto (native if it is built and applicable, otherwise numpy), native, "
        "numpy, or onnxruntime or openvino if installed.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="float32|bf16",
        rich_help_panel=RUNNING,
        help="bf16 rounds the weights of products and convolutions to 16 bits (with AVX512-BF16, their inputs too); "
        "sums stay float32. It needs the native engine.",
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
        help="Threads of the engine, at most one per processor (the default).",
    ),
]
Repeat = Annotated[
    int, typer.Option("--repeat", metavar="N", min=1, rich_help_panel=RUNNING, help="Run N times and show the times.")
]
Warmup = Annotated[
    int,
    typer.Option("--warmup", metavar="N", min=0, rich_help_panel=RUNNING, help="Untimed runs before the timed ones."),
]
