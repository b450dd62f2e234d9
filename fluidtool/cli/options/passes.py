"""Which passes rewrite a program, and how their result is checked."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.options.panels import OUTPUT

PASSES = "Passes (they run in the order given)"
CHECKS = "Checks and figures"


def list_passes(names: list[str] | None) -> list[str] | None:
    """`--fuse help` lists what there is, whatever else is on the command line."""
    if names and "help" in names:
        from fluidtool.cli.views.transpile import show_passes

        show_passes()
        raise typer.Exit
    return names


FuseBn = Annotated[
    bool,
    typer.Option("--fuse-bn", rich_help_panel=PASSES, help="Fold batch_norm into the operators before it."),
]
Fuse = Annotated[
    list[str] | None,
    typer.Option(
        "--fuse",
        metavar="PASS...",
        rich_help_panel=PASSES,
        callback=list_passes,
        is_eager=True,
        help="Inference rewrites by name; '--fuse help' lists them.",
    ),
]
AllInference = Annotated[
    bool,
    typer.Option(
        "--all-inference",
        rich_help_panel=PASSES,
        help="Run every inference rewrite whose result Paddle itself can run, repeatedly until nothing changes.",
    ),
]
MemoryOptimize = Annotated[
    bool,
    typer.Option(
        "--memory-optimize", rich_help_panel=PASSES, help="Let variables share memory; also for training programs."
    ),
]
Level = Annotated[
    int | None,
    typer.Option(
        "--level",
        metavar="0|1",
        rich_help_panel=PASSES,
        help="What may share memory: variables of equal shape (0, the default), or also smaller with larger ones (1).",
    ),
]
ReleaseMemory = Annotated[
    bool,
    typer.Option(
        "--release-memory",
        rich_help_panel=PASSES,
        help="Insert delete_var after the last use of variables; also for training programs.",
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        "--skip",
        metavar="NAME...",
        rich_help_panel=PASSES,
        help="Variables that must keep their names and values because they are fetched (the outputs always do).",
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain", rich_help_panel=OUTPUT, help="Show what was done with each candidate, or why nothing was done."
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        rich_help_panel=CHECKS,
        help="Run both programs and compare; if outputs differ, write nothing and exit with code 1.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="X",
        min=0,
        rich_help_panel=CHECKS,
        help="The tolerance of --verify, relative to each element and to the largest (default: 1e-5; 0 if every "
        "pass keeps every bit).",
    ),
]
Measure = Annotated[
    bool,
    typer.Option("--measure", rich_help_panel=CHECKS, help="Show the memory of activations and the time of a run."),
]
