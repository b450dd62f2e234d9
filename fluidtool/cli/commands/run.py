"""`fluidtool run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import Shown
from fluidtool.cli.opening import open_model, parse_device, policy_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Feeds, InputNames, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Fetch, Force, Json, Output
from fluidtool.cli.options.running import Device, Engine, Precision, Repeat, Threads, Warmup
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.cli.options.training import BatchSize, Data, DropLast, Epochs, Log, Loss, Save, Shuffle
from fluidtool.cli.render import counted
from fluidtool.errors import EXIT_FINDING, NotFiniteError, UsageError

if TYPE_CHECKING:
    from fluidtool.workflows.expectation import Tolerance

STDOUT = Path("-")
OUTPUTS, CHECKS, ROLES = "Which outputs", "Checks", "A role of a distributed job"


def run(
    model: ModelPath,
    feed: Feeds = None,
    lod: Lods = None,
    random: Random = False,
    seed: Seed = 0,
    batch: Batch = None,
    shape: Shapes = None,
    fetch: Annotated[
        Fetch,
        Changed(
            panel=OUTPUTS,
            help="Variables to fetch instead of the model's outputs: any intermediate variable, or a pattern such "
            "as 'fc_*'.",
        ),
    ] = None,
    fetch_all: Annotated[
        bool, typer.Option("--fetch-all", rich_help_panel=OUTPUTS, help="Fetch everything that is computed.")
    ] = False,
    output: Annotated[
        Output,
        Changed(
            metavar="FILE|DIR",
            help="Save the outputs: FILE.npz by name, FILE.npy if there is only one, a new folder with one .npy each, or - for "
            ".npz on stdout.",
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
            help="Compare with these values, by name; if they differ, show the worst in a table and exit with code 1.",
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
            help="Stop at the first operator that produces NaN or infinity; show it and its inputs; exit code 5.",
        ),
    ] = False,
    check_nan_all: Annotated[
        bool,
        typer.Option(
            "--check-nan-all",
            rich_help_panel=CHECKS,
            help="Run to the end and list every variable that an operator wrote with NaN or infinity; exit code 5.",
        ),
    ] = False,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
    threads: Threads = None,
    repeat: Repeat = 1,
    warmup: Warmup = 0,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    data: Annotated[
        Data,
        Changed(
            panel=ROLES,
            help="If MODEL is a trainer's folder: the training examples, shared with the other trainers, as in "
            "'fluidtool train'.",
        ),
    ] = None,
    inputs: Annotated[InputNames, Changed(panel=ROLES, help="As in 'fluidtool train'.")] = None,
    batch_size: Annotated[BatchSize, Changed(panel=ROLES, help="Examples per mini-batch of each trainer.")] = None,
    epochs: Annotated[Epochs, Changed(panel=ROLES)] = 1,
    shuffle: Annotated[Shuffle, Changed(panel=ROLES)] = True,
    drop_last: Annotated[DropLast, Changed(panel=ROLES)] = False,
    loss: Annotated[Loss, Changed(panel=ROLES, help="The loss, if the program has several.")] = None,
    save: Annotated[Save, Changed(panel=ROLES, help="Trainer 0 saves the parameters at the end.")] = None,
    log: Annotated[Log, Changed(panel=ROLES, help="Trainer 0 writes one line of JSON per step.")] = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Run a model; show, save or compare its outputs.

    By default a table of the outputs is shown. If MODEL is the folder of a role of a distributed job, the command plays that
    role: a server serves, a trainer trains. Exit codes: 1 if --expect finds a difference, 4 for an operator that is not
    implemented, 5 if --check-nan finds something; 'fluidtool --help' lists all.
    """
    if threads is not None:
        from fluidtool.cli.threads import use_threads

        use_threads(threads)  # before numpy comes in
    if data or has_role(Path(model)):
        from fluidtool.cli.views.train import TrainingView
        from fluidtool.workflows.role import play_role
        from fluidtool.workflows.train import TrainingRequest
        from fluidtool.workflows.training_data import DataFiles

        request = TrainingRequest(
            folder=Path(model),
            data=DataFiles(data or (), lod or (), inputs or ()),
            batch_size=batch_size,
            epochs=epochs,
            shuffle=shuffle,
            drop_last=drop_last,
            loss=loss,
            fetch=fetch or (),
            save=save,
            log=log,
            overwrite=force,
            place=parse_device(device),
            policy=policy_of(allow_files or (), allow_network),
            seed=seed or 1,
        )
        play_role(request, TrainingView(json))
        return
    if output == STDOUT and json:
        raise UsageError("--output - and --json both write to standard output; choose one of them")
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.run import say_saved, say_verdict, show_result
    from fluidtool.io.arrays import archive_bytes
    from fluidtool.workflows.inputs import Inputs
    from fluidtool.workflows.outputs import require_free, require_known_format, save_outputs
    from fluidtool.workflows.run import run as run_model

    # A negative tolerance is refused even if nothing is compared.
    tolerance = None if expect is None and min(rtol, atol) >= 0 else _tolerance(rtol, atol)
    if output == STDOUT and sys.stdout.isatty():
        raise UsageError("--output - writes a .npz, which is binary, to a terminal; redirect it, or name a file")
    if output not in (None, STDOUT):
        require_known_format(output)
        require_free(output, overwrite=force)
    opened = open_model(
        model,
        model_file,
        params,
        device=device,
        engine=engine,
        precision=precision,
        seed=seed,
        allow_files=allow_files or (),
        allow_network=allow_network,
    )
    with _shown_if_not_finite(json):
        result = run_model(
            opened,
            Inputs(feed or (), lod or (), random, shape or (), batch, seed),
            fetch or (),
            everything=fetch_all,
            expected=expect,
            tolerance=tolerance,
            check_nan=check_nan,
            check_nan_all=check_nan_all,
            repeat=repeat,
            warmup=warmup,
            watcher=TERMINAL,
        )
    if output == STDOUT:
        sys.stdout.buffer.write(archive_bytes(result.outputs))
    elif output is not None:
        save_outputs(result.outputs, output, overwrite=force)
        say_saved(result, output)
    show_result(
        result, saved=output is not None, quiet=output == STDOUT, compared=tolerance, timed=repeat > 1, json=json
    )
    if expect is not None and tolerance is not None:
        say_verdict(result, expect, tolerance)
    if result.not_finite:
        raise Shown(NotFiniteError(f"{counted(len(result.not_finite), 'variable')} with NaN or infinity, listed above"))
    if result.differing:
        raise typer.Exit(EXIT_FINDING)


@contextmanager
def _shown_if_not_finite(json: bool) -> Iterator[None]:
    """Show the operator that --check-nan has found, and its inputs."""
    try:
        yield
    except NotFiniteError as error:
        if error.found is None:
            raise
        from fluidtool.cli.views.not_finite import show_found

        show_found(error, json)
        raise Shown(error) from error


def has_role(folder: Path) -> bool:
    """Whether a folder holds the programs of a role of a distributed job."""
    if not all((folder / name).is_file() for name in ("main.pb", "startup.pb")):
        return False
    from fluidtool.training import open_programs
    from fluidtool.training.roles import role_kind

    return role_kind(open_programs(folder, any_role=True)) is not None


def _tolerance(rtol: float, atol: float) -> Tolerance:
    from fluidtool.workflows.expectation import Tolerance

    return Tolerance(rtol, atol)
