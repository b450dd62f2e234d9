"""`fluidtool view`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.opening import source_of
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.model import ModelFile, ParamsPath, WithParams
from fluidtool.cli.options.outputs import Force, Json, RequiredOutput
from fluidtool.cli.options.panels import OUTPUT
from fluidtool.errors import UsageError

STDOUT = Path("-")
COLORS = "Colors"


class Format(StrEnum):
    """How `view` writes."""

    HTML = "html"
    SVG = "svg"
    DOT = "dot"


class Fold(StrEnum):
    """What `view` folds."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class ColorBy(StrEnum):
    """What the colors of `view` say."""

    KIND = "kind"
    TIME = "time"
    DIFFERENCE = "difference"


def view(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder, a program file, the common prefix of .pdmodel and .pdiparams, or - for a program on standard input.",
        ),
    ],
    output: Annotated[
        RequiredOutput,
        Changed(
            help="The file to write: .html is a page, .svg a picture, .dot for Graphviz; - is standard output.",
            metavar="FILE",
        ),
    ],
    format: Annotated[
        Format | None,
        typer.Option("--format", rich_help_panel=OUTPUT, help="The format, if the file's suffix does not say."),
    ] = None,
    fold: Annotated[
        Fold,
        typer.Option(
            "--fold",
            rich_help_panel=OUTPUT,
            help="Draw operators that belong together as one node: in large models (auto), always or never.",
        ),
    ] = Fold.AUTO,
    with_params: Annotated[
        WithParams, Changed(panel=OUTPUT, help="Show statistics of the parameters on the page; reads the weights.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            rich_help_panel=COLORS,
            help="Color by time: what 'profile MODEL --json' wrote.",
        ),
    ] = None,
    diff: Annotated[
        Path | None,
        typer.Option(
            "--diff",
            metavar="FILE",
            rich_help_panel=COLORS,
            help="Color by difference: what 'diff' or 'compare' wrote with --json.",
        ),
    ] = None,
    color_by: Annotated[
        ColorBy | None,
        typer.Option(
            "--color-by", rich_help_panel=COLORS, help="What the colors show (default: whichever file is given)."
        ),
    ] = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw a model as a graph: a page to explore in a browser, or a picture.

    The page is one file that loads nothing: pan, zoom, search, groups and blocks that open, shapes, attributes.
    Operators that fluidtool does not support are drawn too.
    """
    from fluidtool.cli.terminal import TERMINAL
    from fluidtool.cli.views.view import show_drawing
    from fluidtool.workflows.view import FORMATS, format_of
    from fluidtool.workflows.view import view as draw

    wanted = FORMATS[f".{format.value}"] if format else "html" if output == STDOUT else format_of(output)
    if output == STDOUT:
        _check_stdout(json)
    drawing = draw(
        source_of(model),
        None if output == STDOUT else output,
        format=wanted,
        fold=fold.value,
        with_params=with_params,
        profile=profile,
        difference=diff,
        color_by=color_by.value if color_by else None,
        overwrite=force,
        params=params,
        model_filename=model_file,
        watcher=TERMINAL,
    )
    if output == STDOUT:
        sys.stdout.buffer.write(drawing.text(wanted).encode("utf-8", "backslashreplace"))
    show_drawing(drawing, wanted, json)


def _check_stdout(json: bool) -> None:
    """Refuse to fill a terminal, and to write two things to one place."""
    if json:
        raise UsageError("--output - and --json both write to standard output; choose one of them")
    if sys.stdout.isatty():
        raise UsageError("--output - would fill the terminal with the drawing; give a file, or pipe it somewhere")
