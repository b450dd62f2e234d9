"""`fluidtool train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options import INPUTS, OUTPUT, AllowFiles, AllowNetwork, Force

PROGRAMS, DATA, CHECKPOINTS, RUNNING = "Programs", INPUTS, "Checkpoints", "How to run"


def train(
    program_dir: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM_DIR",
            help="A folder with a main program (main.pb, main_program, __model__) and a startup program (startup.pb, "
            "startup_program), or the main program's file.",
        ),
    ],
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            metavar="[NAME=]FILE...",
            rich_help_panel=DATA,
            help="The examples: .npz (an array for each input, NAME.lod with the sequence lengths), .npy, or a folder of "
            "NAME.npy. The leading axis counts the examples; files for the same input are put together. Arrays called "
            "step0_feed0, step0_feed1, ... are mini-batches as they are.",
        ),
    ],
    lod: Annotated[
        list[str] | None,
        typer.Option(
            "--lod",
            metavar="NAME=[[2,3]]",
            rich_help_panel=DATA,
            help="The sequence lengths of an input, a list for each level; or a JSON file with the lengths by name.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            metavar="NAME...",
            rich_help_panel=DATA,
            help="The inputs that feed0, feed1, ... of ready mini-batches are for (default: in order of their use).",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            min=1,
            rich_help_panel=DATA,
            help="Examples in a mini-batch (default: what the program declares, else 32).",
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", min=1, rich_help_panel=DATA, help="How often to go over the data.")
    ] = 1,
    shuffle: Annotated[
        bool, typer.Option("--shuffle/--no-shuffle", rich_help_panel=DATA, help="Another order in every epoch.")
    ] = True,
    drop_last: Annotated[
        bool, typer.Option("--drop-last", rich_help_panel=DATA, help="Leave an incomplete last mini-batch out.")
    ] = False,
    main: Annotated[
        str | None,
        typer.Option("--main", metavar="FILE", rich_help_panel=PROGRAMS, help="The main program's file."),
    ] = None,
    startup: Annotated[
        str | None,
        typer.Option("--startup", metavar="FILE", rich_help_panel=PROGRAMS, help="The startup program's file."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            "--loss",
            metavar="NAME",
            rich_help_panel=PROGRAMS,
            help="The loss (default: where the backward pass starts).",
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            "--init",
            metavar="DIR|FILE",
            rich_help_panel=PROGRAMS,
            help="Parameters to start from: a folder with a file for each, a model, a combined or a pickled file. What it "
            "lacks stays as the startup program makes it.",
        ),
    ] = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            "--fetch", metavar="NAME...", rich_help_panel=OUTPUT, help="Further variables to log with the loss."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="DIR", rich_help_panel=OUTPUT, help="Save all that persists at the end, a file each."
        ),
    ] = None,
    save_inference_model: Annotated[
        Path | None,
        typer.Option(
            "--save-inference-model",
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="Save a model that computes --targets at the end.",
        ),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--targets", metavar="NAME...", rich_help_panel=OUTPUT, help="The outputs of the inference model."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", rich_help_panel=OUTPUT, help="Write a line of JSON for each step here."),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=OUTPUT, help="A line of JSON for each step on stdout instead of the table."
        ),
    ] = False,
    log_every: Annotated[
        int,
        typer.Option(
            "--log-every", metavar="N", min=1, rich_help_panel=OUTPUT, help="Lines for every Nth step of an epoch only."
        ),
    ] = 1,
    force: Force = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", rich_help_panel=CHECKPOINTS, help="Save checkpoints below DIR."),
    ] = None,
    checkpoint_every: Annotated[
        str,
        typer.Option(
            "--checkpoint-every",
            metavar="N|Nepochs",
            rich_help_panel=CHECKPOINTS,
            help="After how many steps or epochs.",
        ),
    ] = "1epoch",
    keep: Annotated[
        int,
        typer.Option("--keep", metavar="K", min=1, rich_help_panel=CHECKPOINTS, help="How many checkpoints are kept."),
    ] = 3,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            rich_help_panel=CHECKPOINTS,
            help="Go on from the latest checkpoint, if there is one; the result is that of an unbroken run.",
        ),
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|gpu|gpu:N", rich_help_panel=RUNNING, help="Where to compute.")
    ] = "cpu",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=1,
            rich_help_panel=RUNNING,
            help="The seed of the order, and of all that is random.",
        ),
    ] = 1,
    allow_nan: Annotated[
        bool, typer.Option("--allow-nan", rich_help_panel=RUNNING, help="Go on when the loss is NaN or infinite.")
    ] = False,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Train programs that optimizer.minimize has completed; save their parameters.

    A table with the loss of each epoch is shown. Exit codes: 4 for an operator that is not implemented, 5 for a loss that
    is NaN or infinite; 'fluidtool --help' lists all.
    """
    from fluidtool.cli.training import Request, train_and_save

    train_and_save(
        Request(
            program_dir=program_dir,
            main=main,
            startup=startup,
            data=data,
            lods=lod or [],
            inputs=inputs or [],
            batch_size=batch_size,
            epochs=epochs,
            shuffle=shuffle,
            drop_last=drop_last,
            loss=loss,
            init=init,
            fetch=fetch or [],
            save=save,
            save_inference_model=save_inference_model,
            targets=targets or [],
            log=log,
            json=json,
            log_every=log_every,
            force=force,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            keep=keep,
            resume=resume,
            device=device,
            seed=seed,
            allow_nan=allow_nan,
            allow_files=allow_files or [],
            allow_network=allow_network,
        )
    )
