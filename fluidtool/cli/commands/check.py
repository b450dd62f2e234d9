"""`fluidtool check`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluidtool.cli.failures import say
from fluidtool.cli.opening import policy_of, source_of
from fluidtool.cli.options.inputs import Batch
from fluidtool.cli.options.model import ModelFile, ModelPaths, ParamsPath, ProgramOnly
from fluidtool.cli.options.outputs import Force, Json
from fluidtool.cli.options.panels import MODEL, OUTPUT
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.cli.render import show, show_json
from fluidtool.cli.terminal import TERMINAL
from fluidtool.errors import EXIT_FINDING, EXIT_UNREADABLE, UsageError

if TYPE_CHECKING:
    from fluidtool.workflows.check import Checked


class Format(StrEnum):
    """How findings are written."""

    table, json, junit, sarif, github = "table", "json", "junit", "sarif", "github"


NAMES_ITS_FAULTS = frozenset({Format.junit, Format.sarif, Format.github})  # also that its only program cannot be read


def check(
    models: ModelPaths,
    recursive: Annotated[
        bool,
        typer.Option(
            "--recursive", "-r", rich_help_panel=MODEL, help="Check every program in the folders and their subfolders."
        ),
    ] = False,
    program_only: ProgramOnly = False,
    security: Annotated[
        bool,
        typer.Option(
            "--security",
            rich_help_panel=OUTPUT,
            help="Instead of faults, list what the program could do: files, network, Python functions, endless loops, "
            "and the memory that it declares.",
        ),
    ] = False,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            rich_help_panel=OUTPUT,
            help="How findings are written: a table (default), JSON, a JUnit report, SARIF 2.1.0, or annotations of "
            "GitHub Actions.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="A file of accepted findings, not reported again.",
        ),
    ] = None,
    write_baseline: Annotated[
        bool,
        typer.Option(
            "--write-baseline",
            rich_help_panel=OUTPUT,
            help="Accept all findings: write them to the file of --baseline.",
        ),
    ] = False,
    force: Force = False,
    batch: Batch = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    json: Json = False,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
) -> None:
    """Find faults in models without running them, for instance in continuous integration.

    It checks data flow, shapes and data types, parameters, operators and their attributes, and whether the program uses
    files or the network, which a run refuses by default. Each finding has a stable code (docs/check.md). The exit code is 1
    if there is any finding, 3 if a program cannot be read at all.
    """
    from fluidtool.io.search import find_models
    from fluidtool.workflows.check import CheckOptions, accept, check_models, without_accepted

    chosen = _format(format, json)
    if write_baseline and baseline is None:
        raise UsageError("--write-baseline needs the file to write; name it with --baseline FILE")
    paths = find_models(models, recursive=recursive)
    sources = [source_of(path) for path in paths]
    if len(paths) > 1 and params is not None:
        raise UsageError(f"--params applies to one model, but there are {len(paths)}; check them one at a time")
    policy = policy_of(allow_files or (), allow_network)
    checked = check_models(
        sources, CheckOptions(program_only, security, batch or 1, params, model_file, policy), TERMINAL
    )
    alone = paths == list(models) and len(paths) == 1
    if checked[0].error is not None and alone and chosen not in NAMES_ITS_FAULTS:
        raise checked[0].error
    if write_baseline and baseline is not None:
        accept(checked, baseline, overwrite=force, watcher=TERMINAL)
        return
    left = checked if baseline is None else without_accepted(checked, baseline, TERMINAL)
    _write(left, chosen, alone, batch or 1)
    if any(each.error is not None for each in left):
        raise typer.Exit(EXIT_UNREADABLE)
    if any(each.findings for each in left):
        raise typer.Exit(EXIT_FINDING)


def _format(format: Format | None, json: bool) -> Format:
    """--json is short for --format json."""
    if json and format not in (None, Format.json):
        raise UsageError("--json is short for --format json; give only one format")
    return Format.json if json else format or Format.table


def _write(checked: Sequence[Checked], format: Format, alone: bool, batch: int) -> None:
    """The findings on stdout, and a line for each model on stderr."""
    from fluidtool.cli.views.check import document, summary, tables
    from fluidtool.cli.views.check_formats import github, junit, sarif

    match format:
        case Format.table:
            show(*tables(checked, batch))
        case Format.json:
            show_json(document(checked, alone))
        case Format.sarif:
            show_json(sarif(checked))
        case Format.junit:
            sys.stdout.write(junit(checked))
        case Format.github:
            sys.stdout.writelines(f"{line}\n" for line in github(checked))
    for each in checked:
        say(summary(each))
