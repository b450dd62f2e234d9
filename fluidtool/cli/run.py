"""`fluidtool run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options import (
    INPUTS,
    OUTPUT,
    RUNNING,
    AllowFiles,
    AllowNetwork,
    Batch,
    Engine,
    Force,
    Json,
    ModelFile,
    ModelPath,
    ParamsPath,
    Shapes,
    Threads,
)

OUTPUTS, CHECKS = "Which outputs", "Checks"


def run(
    model: ModelPath,
    feed: Annotated[
        list[str] | None,
        typer.Option(
            "--feed",
            metavar="[NAME=]FILE",
            rich_help_panel=INPUTS,
            help="The value of an input: .npy, .npz (arrays by name), or - for standard input. NAME= may be left out "
            "where there is one input or the file is called like it.",
        ),
    ] = None,
    lod: Annotated[
        list[str] | None,
        typer.Option(
            "--lod",
            metavar="NAME=[[2,3]]",
            rich_help_panel=INPUTS,
            help="The sequence lengths of an input, a list for each level; or a JSON file with the lengths by name.",
        ),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", rich_help_panel=INPUTS, help="Random values for every input that is not fed.")
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, rich_help_panel=INPUTS, help="The seed of all that is random.")
    ] = 0,
    batch: Batch = 1,
    shape: Shapes = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            "--fetch",
            metavar="NAME...",
            rich_help_panel=OUTPUTS,
            help="Variables to fetch instead of the model's outputs: any intermediate, or patterns such as 'fc_*'.",
        ),
    ] = None,
    fetch_all: Annotated[
        bool, typer.Option("--fetch-all", rich_help_panel=OUTPUTS, help="Fetch whatever is computed.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.npz|DIR",
            rich_help_panel=OUTPUT,
            help="Save the outputs: FILE.npz by name, a new folder with a .npy for each, or - for .npz on stdout.",
        ),
    ] = None,
    json: Json = False,
    force: Force = False,
    expect: Annotated[
        Path | None,
        typer.Option(
            "--expect",
            metavar="GOLDEN.npz",
            rich_help_panel=CHECKS,
            help="Compare with these values, by name; exit code 1 and a table of the worst when they differ.",
        ),
    ] = None,
    rtol: Annotated[
        float, typer.Option("--rtol", rich_help_panel=CHECKS, help="Relative tolerance of --expect.")
    ] = 1e-4,
    atol: Annotated[
        float, typer.Option("--atol", rich_help_panel=CHECKS, help="Absolute tolerance of --expect.")
    ] = 1e-5,
    check_nan: Annotated[
        bool,
        typer.Option(
            "--check-nan",
            rich_help_panel=CHECKS,
            help="Stop at the first operator that makes NaN or infinity and name it; exit code 5.",
        ),
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|gpu|gpu:N", rich_help_panel=RUNNING, help="Where to compute.")
    ] = "cpu",
    engine: Engine = "auto",
    threads: Threads = None,
    repeat: Annotated[
        int,
        typer.Option("--repeat", metavar="N", min=1, rich_help_panel=RUNNING, help="Run N times; show the times."),
    ] = 1,
    warmup: Annotated[
        int, typer.Option("--warmup", metavar="N", min=0, rich_help_panel=RUNNING, help="Runs before, not counted.")
    ] = 0,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Run a model; show, save or compare its outputs.

    Without --output a table of the outputs is shown. Exit codes: 1 if --expect finds a difference, 4 for an operator that
    is not implemented, 5 if --check-nan finds something; 'fluidtool --help' lists all.
    """
    if threads is not None:
        from fluidtool.cli.engines import use_threads

        use_threads(threads)  # before numpy comes in
    from fluidtool.cli.execution import Request, execute

    execute(
        Request(
            model=model,
            params=params,
            model_file=model_file,
            feeds=feed or [],
            lods=lod or [],
            random=random,
            seed=seed,
            batch=batch,
            shapes=shape or [],
            fetch=fetch or [],
            fetch_all=fetch_all,
            output=output,
            json=json,
            force=force,
            expect=expect,
            rtol=rtol,
            atol=atol,
            check_nan=check_nan,
            device=device,
            engine=engine,
            repeat=repeat,
            warmup=warmup,
            allow_files=allow_files or [],
            allow_network=allow_network,
        )
    )
