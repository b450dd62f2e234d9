"""The options of `transpile`, in groups."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fluidtool.cli.options import INPUTS, OUTPUT

PASSES = "Passes (they run in the order in which they are given)"
CHECKS = "Checks and figures"
DISTRIBUTED = "Distributed training (what is left out comes from PADDLE_* variables)"


class Mode(StrEnum):
    """How trainers exchange gradients."""

    PSERVER = "pserver"
    NCCL2 = "nccl2"
    COLLECTIVE = "collective"


class SplitMethod(StrEnum):
    """How slices of parameters are placed on servers."""

    ROUND_ROBIN = "RoundRobin"
    HASH_NAME = "HashName"


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
        help="Every inference rewrite whose result Paddle itself runs too, until nothing is left to do.",
    ),
]
MemoryOptimize = Annotated[
    bool,
    typer.Option(
        "--memory-optimize", rich_help_panel=PASSES, help="Let variables share memory; for training programs too."
    ),
]
Level = Annotated[
    int | None,
    typer.Option(
        "--level",
        metavar="0|1",
        rich_help_panel=PASSES,
        help="What may share: variables of equal shape (0, the default), or smaller ones with larger ones (1).",
    ),
]
ReleaseMemory = Annotated[
    bool,
    typer.Option(
        "--release-memory",
        rich_help_panel=PASSES,
        help="Put delete_var behind the last use of variables; for training programs too.",
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        "--skip",
        metavar="NAME...",
        rich_help_panel=PASSES,
        help="Variables that must keep their names and values, since they are fetched (the outputs always do).",
    ),
]
OutputPath = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        rich_help_panel=OUTPUT,
        help="Where the result goes, laid out like MODEL. Without it nothing is written.",
    ),
]
Explain = Annotated[
    bool,
    typer.Option("--explain", rich_help_panel=OUTPUT, help="What was done with each candidate, or why not."),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        rich_help_panel=CHECKS,
        help="Run both programs and compare; exit code 1 and nothing written when outputs differ.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="X",
        min=0,
        rich_help_panel=CHECKS,
        help="What --verify allows, relative to each element and to the largest (default: 1e-5; 0 where every pass "
        "keeps every bit).",
    ),
]
Measure = Annotated[
    bool,
    typer.Option("--measure", rich_help_panel=CHECKS, help="Show the memory of activations and the time of a run."),
]
Feeds = Annotated[
    list[str] | None,
    typer.Option(
        "--feed",
        metavar="[NAME=]FILE",
        rich_help_panel=INPUTS,
        help="What to verify and measure with, as of 'fluidtool run' (default: random values).",
    ),
]
Lods = Annotated[
    list[str] | None,
    typer.Option("--lod", metavar="NAME=[[2,3]]", rich_help_panel=INPUTS, help="The sequence lengths of an input."),
]
RandomInputs = Annotated[
    bool, typer.Option("--random", rich_help_panel=INPUTS, help="Random values for every input that is not fed.")
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, rich_help_panel=INPUTS, help="The seed of random values.")
]
Startup = Annotated[
    Path | None,
    typer.Option(
        "--startup",
        metavar="FILE",
        rich_help_panel=INPUTS,
        help="The program that initializes the parameters, where MODEL is a training program.",
    ),
]
Distribute = Annotated[
    bool,
    typer.Option(
        "--distribute", rich_help_panel=DISTRIBUTED, help="Write the programs of each role of a distributed job."
    ),
]
Pservers = Annotated[
    str | None,
    typer.Option("--pservers", metavar="HOST:PORT,...", rich_help_panel=DISTRIBUTED, help="The parameter servers."),
]
Trainers = Annotated[
    str | None,
    typer.Option(
        "--trainers",
        metavar="N|HOST:PORT,...",
        rich_help_panel=DISTRIBUTED,
        help="How many trainers there are; their endpoints in the modes without servers.",
    ),
]
TrainerId = Annotated[
    int | None,
    typer.Option(
        "--trainer-id", metavar="N", min=0, rich_help_panel=DISTRIBUTED, help="The programs of this trainer only."
    ),
]
AllRoles = Annotated[
    bool, typer.Option("--all", rich_help_panel=DISTRIBUTED, help="The programs of every trainer and server.")
]
ModeOption = Annotated[
    Mode | None,
    typer.Option("--mode", rich_help_panel=DISTRIBUTED, help="How gradients are exchanged (default: pserver)."),
]
Sync = Annotated[
    bool | None,
    typer.Option(
        "--sync/--async", rich_help_panel=DISTRIBUTED, help="Whether trainers wait for each other (default: sync)."
    ),
]
NoSlice = Annotated[
    bool,
    typer.Option("--no-slice", rich_help_panel=DISTRIBUTED, help="Do not slice parameters over servers."),
]
SplitMethodOption = Annotated[
    SplitMethod | None,
    typer.Option(
        "--split-method",
        case_sensitive=False,
        rich_help_panel=DISTRIBUTED,
        help="How slices are placed on servers (default: RoundRobin).",
    ),
]
MinBlockSize = Annotated[
    int | None,
    typer.Option(
        "--min-block-size",
        metavar="N",
        min=1,
        rich_help_panel=DISTRIBUTED,
        help="The least number of elements of a slice (default: 8192).",
    ),
]
PlanOnly = Annotated[
    bool,
    typer.Option("--plan", rich_help_panel=DISTRIBUTED, help="Show what goes where; write nothing."),
]
