"""`fluidtool reshape`."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.failures import Shown
from fluidtool.cli.opening import source_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, Output
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.errors import BakedSizeError


def reshape(
    model: ModelPath,
    shapes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME:[SIZES]...",
            help="The new shape of an input; -1 is a size known only at run time. NAME: may be omitted if there is only "
            "one input.",
        ),
    ],
    output: Annotated[Output, Changed(panel=NO_PANEL)] = None,
    fix_baked_batch: Annotated[
        bool,
        typer.Option("--fix-baked-batch", help="Repair operators that contain an old size, such as a batch of 2."),
    ] = False,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Change the shapes of a model's inputs, such as its batch size, infer everything again, and save it.

    An operator that contains an old size (reshape, expand, fill_constant, ...) and contradicts the new one is listed with
    its place. Unless --fix-baked-batch repairs all of them, nothing is written, and the exit code is 4.
    """
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.reshape import show_refused, show_reshaped
    from fluidtool.workflows.reshape import parse_new_shapes
    from fluidtool.workflows.reshape import reshape as reshape_model

    try:
        result = reshape_model(
            source_of(model),
            parse_new_shapes(shapes),
            output,
            fix_baked_batch=fix_baked_batch,
            overwrite=force,
            params=params,
            model_filename=model_file,
            watcher=TERMINAL,
        )
    except BakedSizeError as error:
        show_refused(error, json)
        raise Shown(error) from error
    show_reshaped(result, output, json)
