"""`fluidtool compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.opening import open_model
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ParamsPath
from fluidtool.cli.options.outputs import Fetch, Force, Json, Output
from fluidtool.cli.options.running import Device, Engine, Precision, Threads
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.errors import EXIT_FINDING, UsageError

if TYPE_CHECKING:
    from fluidtool.model import Model

SIDES, JUDGING, NARROWING = "What is compared", "What counts as a difference", "Narrowing a difference"
HELP = "A folder, a program file, or the prefix of .pdmodel and .pdiparams."


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=HELP)],
    b: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="The model to compare A with; A itself if other options say what differs."),
    ] = None,
    feed: Feeds = None,
    lod: Lods = None,
    random: Annotated[
        Random, Changed(help="Use random values for inputs that are not fed; the default without --feed.")
    ] = False,
    seed: Seed = 0,
    batch: Batch = None,
    shape: Shapes = None,
    engine: Annotated[
        Engine,
        Changed(
            panel=SIDES, help="What computes A: numpy (operator by operator), native, auto, onnxruntime or openvino."
        ),
    ] = "numpy",
    engine_b: Annotated[
        str | None,
        typer.Option(
            "--engine-b", metavar="NAME", rich_help_panel=SIDES, help="What computes B (default: the engine of A)."
        ),
    ] = None,
    precision: Annotated[Precision, Changed(panel=SIDES, help="The precision of A.")] = "float32",
    precision_b: Annotated[
        str | None,
        typer.Option(
            "--precision-b",
            metavar="float32|bf16",
            rich_help_panel=SIDES,
            help="The precision of B (default: that of A); bf16 needs the native engine.",
        ),
    ] = None,
    device: Annotated[Device, Changed(panel=SIDES, help="Where to compute A.")] = "cpu",
    device_b: Annotated[
        str | None,
        typer.Option(
            "--device-b",
            metavar="cpu|gpu|gpu:N",
            rich_help_panel=SIDES,
            help="Where to compute B (default: where A is computed).",
        ),
    ] = None,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--recorded",
            metavar="FILE.npz|DIR",
            rich_help_panel=SIDES,
            help="Compare A with these values by name, as 'run --fetch-all -o' writes them; inputs among them are fed.",
        ),
    ] = None,
    paddle: Annotated[
        str | None,
        typer.Option(
            "--paddle",
            metavar="PYTHON",
            rich_help_panel=SIDES,
            help="Run B in the real Paddle of this Python interpreter.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0, rich_help_panel=SIDES, help="How long --paddle may take for a run."
        ),
    ] = 300.0,
    fetch: Annotated[
        Fetch, Changed(panel=JUDGING, help="Outputs to compare instead of the model's, or patterns such as 'fc_*'.")
    ] = None,
    all_values: Annotated[
        bool,
        typer.Option(
            "--all-values",
            rich_help_panel=JUDGING,
            help="Also fetch values that an engine would fuse away, which keeps it from fusing them.",
        ),
    ] = False,
    rtol: Annotated[
        float,
        typer.Option("--rtol", rich_help_panel=JUDGING, help="The allowed difference, relative to the element of A."),
    ] = 1e-4,
    atol: Annotated[
        float | None,
        typer.Option(
            "--atol",
            rich_help_panel=JUDGING,
            help="The allowed absolute difference (default: rtol times the largest element of the value).",
        ),
    ] = None,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect",
            rich_help_panel=NARROWING,
            help="Save the smallest part of the program that shows the first difference, with its feeds, to --output.",
        ),
    ] = False,
    output: Annotated[Output, Changed(panel=NARROWING, metavar="DIR", help="A new folder for --bisect.")] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=0, help="Show at most N rows of a table.")] = 10,
    json: Json = False,
    force: Force = False,
    threads: Threads = None,
    params: Annotated[ParamsPath, Changed(help="Where the parameters of A are, as for 'run'.")] = None,
    params_b: Annotated[
        str | None,
        typer.Option("--params-b", metavar="FILE|DIR", rich_help_panel="Model", help="Where the parameters of B are."),
    ] = None,
    model_file: ModelFile = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Run two models, engines or precisions on the same feeds, and find the first value that differs.

    Outputs are compared as both sides normally compute them, then all values that both have by name. Values that
    disappear into a fused operator of B are listed as not in B. Exit code 1 if anything differs (docs/compare.md).
    """
    if threads is not None:
        from fluidtool.cli.threads import use_threads

        use_threads(threads)  # before numpy comes in
    _check(b, engine_b, precision_b, params_b, device_b, recorded, paddle, bisect, output)
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.compare import show_compared
    from fluidtool.workflows.compare import compare as compare_models
    from fluidtool.workflows.inputs import Inputs

    def opened(path: str, engine: str, precision: str, params: str | None, device: str) -> Model:
        return open_model(
            path,
            model_file,
            params,
            device=device,
            engine=engine,
            precision=precision,
            seed=seed,
            allow_files=allow_files or (),
            allow_network=allow_network,
        )

    other = None
    if recorded is None:
        by = engine_b or ("native" if precision_b == "bf16" else "numpy" if paddle else engine)
        other = opened(
            b or a,
            by,
            precision_b or ("float32" if paddle else precision),
            params_b or (None if b else params),
            device_b or ("cpu" if paddle else device),
        )
    result = compare_models(
        opened(a, engine, precision, params, device),
        other,
        Inputs(feed or (), lod or (), random, shape or (), batch, seed),
        fetch or (),
        recorded=recorded,
        paddle=paddle,
        timeout=timeout,
        rtol=rtol,
        atol=atol,
        every=all_values,
        bisect=output if bisect else None,
        overwrite=force,
        watcher=TERMINAL,
    )
    show_compared(result, top, json)
    if not result.equal:
        raise typer.Exit(EXIT_FINDING)


def _check(
    b: str | None,
    engine_b: str | None,
    precision_b: str | None,
    params_b: str | None,
    device_b: str | None,
    recorded: Path | None,
    paddle: str | None,
    bisect: bool,
    output: Path | None,
) -> None:
    """Raise UsageError for options that contradict each other, or that leave nothing to compare with."""
    if bisect and output is None:
        raise UsageError("--bisect writes a folder: give -o DIR")
    if output is not None and not bisect:
        raise UsageError("--output is the folder of --bisect; give that too")
    side = {
        "B": b, "--engine-b": engine_b, "--precision-b": precision_b, "--params-b": params_b, "--device-b": device_b,
    }  # fmt: skip
    if recorded is not None:
        other = next((name for name, value in {**side, "--paddle": paddle}.items() if value is not None), None)
        if other is not None:
            raise UsageError(f"--recorded is what A is compared with; omit {other}")
    elif paddle is None and all(value is None for value in side.values()):
        raise UsageError(
            "name what to compare A with: a model B, --engine-b, --precision-b, --params-b, --device-b, --recorded or "
            "--paddle"
        )
    if paddle is not None and any(given is not None for given in (engine_b, precision_b, device_b)):
        raise UsageError("--paddle computes B; omit --engine-b, --precision-b and --device-b")
