"""`fluidtool profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Fetch, Force, Json
from fluidtool.cli.options.panels import OUTPUT
from fluidtool.cli.options.running import Engine, Precision, Repeat, Threads, Warmup
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork


def profile(
    model: ModelPath,
    feed: Annotated[Feeds, Changed(help="The value of an input, as 'run' takes it.")] = None,
    lod: Annotated[Lods, Changed(help="Sequence lengths, as 'run' takes them.")] = None,
    random: Random = False,
    seed: Seed = 0,
    batch: Batch = 1,
    shape: Shapes = None,
    fetch: Fetch = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            rich_help_panel=OUTPUT,
            help="Show the N that take longest; 0 shows all, in order.",
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
    json: Json = False,
    force: Force = False,
    engine: Engine = "auto",
    precision: Precision = "float32",
    threads: Threads = None,
    repeat: Annotated[Repeat, Changed(help="Runs that a median is taken of.")] = 10,
    warmup: Warmup = 1,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Show how long each operator and native step takes.

    Every operator, and within the native engine every step: time, share, and speed against what this machine was measured
    to reach; and the memory that is alive along the way. The model runs on the CPU, as often with the profiler as without.
    """
    if threads is not None:
        from fluidtool.cli.engines import use_threads

        use_threads(threads)  # before numpy comes in
    from fluidtool.cli.views.profile import Request, show_profile

    show_profile(
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
            top=top,
            trace=trace,
            json=json,
            force=force,
            engine=engine,
            precision=precision,
            repeat=repeat,
            warmup=warmup,
            allow_files=allow_files or [],
            allow_network=allow_network,
        )
    )
