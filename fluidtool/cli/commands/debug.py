"""`fluidtool debug`."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, RequiredOutput
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.errors import UsageError

ACTIONS = ("reduce",)


def debug(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="reduce.")],
    model: ModelPath,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...",
            help="Succeeds (exit code 0) while the fault shows. {model} is the folder of a part of MODEL, {feed} a .npz file with "
            "its inputs. One word is run by the shell.",
        ),
    ],
    output: Annotated[
        RequiredOutput, Changed(panel=NO_PANEL, metavar="OUT", help="A new folder for the reduced model.")
    ],
    feed: Annotated[
        Feeds, Changed(help="The model's inputs, from which {feed} is computed (default: random values).")
    ] = None,
    lod: Lods = None,
    random: Random = False,
    seed: Seed = 0,
    batch: Batch = None,
    shape: Shapes = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="A command that takes longer counts as failed.")
    ] = 60.0,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Save the smallest part so far after N commands.")
    ] = 500,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Reduce a model to the smallest part that still shows a fault.

    COMMAND decides: it must succeed on MODEL, and operators are taken out for as long as it succeeds, first from both
    ends by bisection, then in chunks. What a part reads and does not compute becomes its input. Exit code 2 if
    COMMAND fails on MODEL.
    """
    if action not in ACTIONS:
        raise UsageError(f"there is no action {action!r}; expected reduce")
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.debug import show_reduced
    from fluidtool.workflows.debug import reduce
    from fluidtool.workflows.inputs import Inputs

    result = reduce(
        open_model(model, model_file, params, engine="numpy", seed=seed),
        command,
        output,
        Inputs(feed or (), lod or (), random, shape or (), batch, seed),
        timeout=timeout,
        limit=limit,
        overwrite=force,
        watcher=TERMINAL,
    )
    show_reduced(result, output, json)
