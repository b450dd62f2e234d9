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
    Precision,
    Shapes,
    Threads,
)

OUTPUTS, CHECKS, ROLES = "Which outputs", "Checks", "A role of a distributed job"


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
    precision: Precision = "float32",
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
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[NAME=]FILE...",
            rich_help_panel=ROLES,
            help="MODEL is a trainer's folder: the examples that it trains on with the others, as in 'fluidtool train'.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--inputs", metavar="NAME...", rich_help_panel=ROLES, help="As in 'fluidtool train'."),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", metavar="N", min=1, rich_help_panel=ROLES, help="Examples in a mini-batch of each trainer."
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", min=1, rich_help_panel=ROLES, help="How often to go over the data.")
    ] = 1,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", rich_help_panel=ROLES, help="Another order in every epoch.")
    ] = True,
    drop_last: Annotated[
        bool, typer.Option("--drop-last", rich_help_panel=ROLES, help="Leave an incomplete last mini-batch out.")
    ] = False,
    loss: Annotated[
        str | None,
        typer.Option("--loss", metavar="NAME", rich_help_panel=ROLES, help="The loss, where the program has several."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", rich_help_panel=ROLES, help="Trainer 0 saves the parameters at the end."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="FILE", rich_help_panel=ROLES, help="Trainer 0 writes a line of JSON for each step."
        ),
    ] = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Run a model; show, save or compare its outputs. Or play a role: a server's folder serves, a trainer's trains.

    Without --output a table of the outputs is shown. Exit codes: 1 if --expect finds a difference, 4 for an operator that
    is not implemented, 5 if --check-nan finds something; 'fluidtool --help' lists all.
    """
    if threads is not None:
        from fluidtool.cli.engines import use_threads

        use_threads(threads)  # before numpy comes in
    if data or has_role(Path(model)):
        from fluidtool.cli import roles

        roles.play(
            roles.Request(
                folder=Path(model),
                data=data or [],
                lods=lod or [],
                inputs=inputs or [],
                batch_size=batch_size,
                epochs=epochs,
                shuffle=shuffle,
                drop_last=drop_last,
                loss=loss,
                fetch=fetch or [],
                save=save,
                log=log,
                json=json,
                force=force,
                device=device,
                seed=seed,
                allow_files=allow_files or [],
                allow_network=allow_network,
            )
        )
        return
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
            precision=precision,
            repeat=repeat,
            warmup=warmup,
            allow_files=allow_files or [],
            allow_network=allow_network,
        )
    )


def has_role(folder: Path) -> bool:
    """Whether a folder holds the programs of a role of a distributed job."""
    if not all((folder / name).is_file() for name in ("main.pb", "startup.pb")):
        return False
    from fluidtool.training import open_programs
    from fluidtool.training.roles import role_kind

    return role_kind(open_programs(folder, any_role=True)) is not None
