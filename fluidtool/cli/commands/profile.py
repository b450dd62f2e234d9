"""`fluidtool profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Draw, Fetch, Force, Json
from fluidtool.cli.options.panels import OUTPUT
from fluidtool.cli.options.running import Device, Engine, Precision, Repeat, Threads, Warmup
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork


def profile(
    model: ModelPath,
    feed: Annotated[Feeds, Changed(help="The value of an input, as for 'run'.")] = None,
    lod: Annotated[Lods, Changed(help="Sequence lengths, as for 'run'.")] = None,
    random: Random = False,
    seed: Seed = 0,
    batch: Batch = None,
    shape: Shapes = None,
    fetch: Fetch = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            rich_help_panel=OUTPUT,
            help="Show the N slowest; 0 shows all, in order.",
        ),
    ] = 12,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Write the last run as a Chrome trace, for chrome://tracing or Perfetto.",
        ),
    ] = None,
    draw: Annotated[Draw, Changed(help="Draw the time of each operator and step as bars.")] = None,
    json: Json = False,
    force: Force = False,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
    threads: Threads = None,
    repeat: Annotated[Repeat, Changed(help="The number of runs for the median.")] = 10,
    warmup: Warmup = 1,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Show how long each operator and kernel call takes.

    For every operator, and every step within the native engine: time, share, and speed compared with the measured peak of
    this machine or of the GPU; and the live memory along the way. The model runs the same number of times with the profiler
    as without.
    """
    if threads is not None:
        from fluidtool.cli.threads import use_threads

        use_threads(threads)  # before numpy comes in
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.profile import show_profile
    from fluidtool.workflows.inputs import Inputs
    from fluidtool.workflows.outputs import require_picture
    from fluidtool.workflows.profile import draw_times, require_free_trace, save_trace
    from fluidtool.workflows.profile import profile as profile_model

    if trace is not None:
        require_free_trace(trace, overwrite=force)
    if draw is not None:
        require_picture(draw, overwrite=force)
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
    inputs = Inputs(feed or (), lod or (), random, shape or (), batch, seed)
    result = profile_model(opened, inputs, fetch or (), repeat=repeat, warmup=warmup, watcher=TERMINAL)
    if trace is not None:
        save_trace(result.profile, trace, model, overwrite=force)
        say(f"trace saved to {trace}")
    if draw is not None:
        draw_times(result.profile, draw, Path(model).name, overwrite=force)
        say(f"drawing saved to {draw}")
    show_profile(result, top, json)
