"""`fluidtool train`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.opening import parse_device, policy_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import InputNames, Lods, Seed
from fluidtool.cli.options.model import Startup
from fluidtool.cli.options.outputs import Fetch, Force, Json, Targets
from fluidtool.cli.options.panels import CHECKPOINTS, OUTPUT, RUNNING
from fluidtool.cli.options.running import Device
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.cli.options.training import (
    BatchSize,
    Checkpoint,
    DropLast,
    Epochs,
    Keep,
    Log,
    Loss,
    RequiredData,
    Resume,
    Save,
    Shuffle,
)
from fluidtool.errors import UsageError

if TYPE_CHECKING:
    from fluidtool.training import CheckpointPlan

PROGRAMS = "Programs"


def train(
    program_dir: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM_DIR",
            help="A folder with a main program (main.pb, main_program, __model__) and a startup program (startup.pb, "
            "startup_program), or the main program's file.",
        ),
    ],
    data: RequiredData,
    lod: Lods = None,
    inputs: InputNames = None,
    batch_size: BatchSize = None,
    epochs: Epochs = 1,
    shuffle: Shuffle = True,
    drop_last: DropLast = False,
    main: Annotated[
        str | None,
        typer.Option("--main", metavar="FILE", rich_help_panel=PROGRAMS, help="The main program's file."),
    ] = None,
    startup: Annotated[Startup, Changed(panel=PROGRAMS)] = None,
    loss: Annotated[Loss, Changed(panel=PROGRAMS)] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            "--init",
            metavar="DIR|FILE",
            rich_help_panel=PROGRAMS,
            help="Parameters to start from: a folder with one file each, a model, a combined or a pickled file. "
            "Parameters that it lacks keep the startup program's values.",
        ),
    ] = None,
    fetch: Annotated[Fetch, Changed(help="More variables to log with the loss.")] = None,
    save: Save = None,
    save_inference_model: Annotated[
        Path | None,
        typer.Option(
            "--save-inference-model",
            metavar="DIR",
            rich_help_panel=OUTPUT,
            help="At the end, save a model that computes --targets.",
        ),
    ] = None,
    targets: Targets = None,
    log: Log = None,
    json: Annotated[Json, Changed(help="Write one line of JSON per step to stdout instead of the table.")] = False,
    log_every: Annotated[
        int,
        typer.Option(
            "--log-every", metavar="N", min=1, rich_help_panel=OUTPUT, help="Log only every Nth step of an epoch."
        ),
    ] = 1,
    force: Force = False,
    checkpoint: Checkpoint = None,
    checkpoint_every: Annotated[
        str,
        typer.Option(
            "--checkpoint-every",
            metavar="N|Nepochs",
            rich_help_panel=CHECKPOINTS,
            help="Save after this many steps or epochs.",
        ),
    ] = "1epoch",
    keep: Keep = 3,
    resume: Resume = False,
    device: Device = "cpu",
    seed: Annotated[Seed, Changed(min=1, panel=RUNNING, help="The random seed, also for the order of examples.")] = 1,
    allow_nan: Annotated[
        bool, typer.Option("--allow-nan", rich_help_panel=RUNNING, help="Continue if the loss is NaN or infinite.")
    ] = False,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Train programs completed by optimizer.minimize, and save their parameters.

    A table with the loss of each epoch is shown. Exit codes: 4 for an operator that is not implemented, 5 for a loss that
    is NaN or infinite; 'fluidtool --help' lists all.
    """
    from fluidtool.cli.views.train import TrainingView
    from fluidtool.workflows.train import TrainingRequest
    from fluidtool.workflows.train import train as train_programs
    from fluidtool.workflows.training_data import DataFiles

    request = TrainingRequest(
        folder=program_dir,
        data=DataFiles(data, lod or (), inputs or ()),
        main=main,
        startup=startup,
        batch_size=batch_size,
        epochs=epochs,
        shuffle=shuffle,
        drop_last=drop_last,
        loss=loss,
        init=init,
        fetch=fetch or (),
        save=save,
        save_inference_model=save_inference_model,
        targets=targets or (),
        log=log,
        log_every=log_every,
        overwrite=force,
        checkpoints=None if checkpoint is None else _checkpoint_plan(checkpoint, checkpoint_every, keep),
        resume=resume,
        place=parse_device(device),
        policy=policy_of(allow_files or (), allow_network),
        seed=seed,
        allow_nan=allow_nan,
    )
    train_programs(request, TrainingView(json, log_every))


def _checkpoint_plan(folder: Path, every: str, keep: int) -> CheckpointPlan:
    """'100', '100steps' or '2epochs' in a folder."""
    from fluidtool.training import CheckpointPlan

    match = re.fullmatch(r"(\d+)\s*(steps?|epochs?)?", every)
    if match is None or int(match[1]) < 1:
        raise UsageError(f"--checkpoint-every {every}: expected a number of steps, or of epochs such as 2epochs")
    in_epochs = (match[2] or "").startswith("epoch")
    return CheckpointPlan(folder, int(match[1]), "epochs" if in_epochs else "steps", keep)
