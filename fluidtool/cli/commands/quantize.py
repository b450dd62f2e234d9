"""`fluidtool quantize`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import source_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, Output
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.cli.options.passes import Skip
from fluidtool.cli.options.training import RequiredData
from fluidtool.cli.render import counted
from fluidtool.cli.terminal import TERMINAL


class Method(StrEnum):
    """Where activations are cut off."""

    ABS_MAX = "abs_max"
    KL = "kl"
    PERCENTILE = "percentile"


def quantize(
    model: ModelPath,
    data: Annotated[
        RequiredData,
        Changed(
            panel=NO_PANEL,
            help="Representative inputs, one file per batch: .npz (arrays by name), or .npy if there is only one "
            "input. Activations are measured on them, and outputs compared.",
        ),
    ],
    output: Annotated[Output, Changed(panel=NO_PANEL)] = None,
    method: Annotated[
        Method,
        typer.Option(
            "--method",
            help="Where activations are cut off: abs_max nowhere, kl where the distribution of the values loses least "
            "(Kullback-Leibler divergence), percentile beyond a share of the values.",
        ),
    ] = Method.ABS_MAX,
    percentile: Annotated[
        float,
        typer.Option("--percentile", metavar="P", help="The share of the values to keep, for --method percentile."),
    ] = 99.99,
    skip: Annotated[
        Skip,
        Changed(
            panel=NO_PANEL,
            help="Operators that keep computing in float32, by their results or patterns such as 'fc_*'.",
        ),
    ] = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make convolutions and products of a model compute in 8 bits, save it, and show how its outputs change.

    Weights are rounded to 8 bits per output channel, activations within the range that the data shows. The result is a program
    with fake quantization, as Paddle's own tools write it: Paddle 1.8 and 2.x run it, and the native engine computes it in 8
    bits.
    """
    from fluidtool.cli.views.quantize import show_result
    from fluidtool.workflows.quantize import quantize as quantize_model

    result = quantize_model(
        source_of(model),
        data,
        output,
        method=method.value,
        percentile=percentile,
        skip=skip or (),
        overwrite=force,
        params=params,
        model_filename=model_file,
        watcher=TERMINAL,
    )
    show_result(result, json)
    if output is not None:
        say(f"{counted(len(result.files), 'file')} saved to {output}")
