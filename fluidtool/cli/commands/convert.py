"""`fluidtool convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.failures import Shown
from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath
from fluidtool.cli.options.outputs import Force, Json, RequiredOutput
from fluidtool.cli.options.panels import NO_PANEL
from fluidtool.cli.options.passes import Verify
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.errors import EXIT_FINDING, NotConvertibleError, UsageError

ONNX, VERIFYING = "ONNX", "Verification"


def convert(
    model: ModelPath,
    output: Annotated[
        RequiredOutput,
        Changed(panel=NO_PANEL, metavar="OUT", help="Where to save the result: a file, a folder, or a prefix."),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="onnx; paddle1 or separate (a folder with one file per parameter), combined (a folder with __params__), "
            "paddle2 (.pdmodel and .pdiparams); parameters alone: pdparams, npz, safetensors.",
        ),
    ] = "onnx",
    opset: Annotated[
        int | None,
        typer.Option(
            "--opset", metavar="N", rich_help_panel=ONNX, help="The version of ONNX's operators, 13 to 23 (17)."
        ),
    ] = None,
    external_data: Annotated[
        bool,
        typer.Option(
            "--external-data",
            rich_help_panel=ONNX,
            help="Parameters in a separate file, OUT.data; above 2 GB they always are.",
        ),
    ] = False,
    several_sequences: Annotated[
        bool,
        typer.Option(
            "--several-sequences",
            rich_help_panel=ONNX,
            help="Inputs with sequences take several at once, whose lengths are an input NAME.lengths; one at a time by "
            "default.",
        ),
    ] = False,
    verify: Annotated[
        Verify,
        Changed(
            panel=VERIFYING,
            help="Run the result with ONNX Runtime and the model itself on the same inputs (random ones, unless --feed "
            "gives them) and compare; exit code 1 if they differ.",
        ),
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="X",
            rich_help_panel=VERIFYING,
            help="The difference that --verify accepts, relative to the largest number of an output (0.0001).",
        ),
    ] = None,
    feed: Annotated[Feeds, Changed(panel=VERIFYING)] = None,
    lod: Annotated[Lods, Changed(panel=VERIFYING)] = None,
    shape: Annotated[Shapes, Changed(panel=VERIFYING)] = None,
    batch: Annotated[Batch, Changed(panel=VERIFYING)] = None,
    seed: Annotated[Seed, Changed(panel=VERIFYING)] = 0,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Save a model in another format: all of it, or nothing.

    The layouts of Paddle and the files of parameters keep every byte (docs/convert.md). What the format cannot express is a
    blocker: all of them are listed with their places and reasons, nothing is written, and the exit code is 4 (docs/onnx.md
    has the operators that ONNX export knows).
    """
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.convert import show_refused, show_result
    from fluidtool.onnx_export.exporter import DEFAULT_OPSET
    from fluidtool.workflows.conversion import TOLERANCE, OnnxOptions
    from fluidtool.workflows.convert import convert as convert_model
    from fluidtool.workflows.inputs import Inputs

    for option, given in {"--feed": feed, "--lod": lod, "--shape": shape, "--tolerance": tolerance is not None}.items():
        if given and not verify:
            raise UsageError(f"{option} applies to verification; give --verify too")
    opened = open_model(
        model,
        model_file,
        params,
        allow_files=allow_files or (),
        allow_network=allow_network,
        validate=to == "onnx",
    )
    inputs = Inputs(feed or (), lod or (), True, shape or (), batch, seed) if verify else None
    chosen = OnnxOptions(DEFAULT_OPSET if opset is None else opset, external_data, several_sequences)
    options = chosen if external_data or several_sequences or opset is not None else None
    try:
        result = convert_model(
            opened,
            Path(output),
            to=to,
            overwrite=force,
            onnx=options,
            verify=inputs,
            tolerance=TOLERANCE if tolerance is None else tolerance,
            watcher=TERMINAL,
        )
    except NotConvertibleError as error:
        show_refused(to, error, json)
        raise Shown(error) from error
    show_result(result, json)
    if result.differing:
        raise typer.Exit(EXIT_FINDING)
