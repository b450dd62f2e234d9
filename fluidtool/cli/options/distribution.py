"""The roles of a distributed job, and how they exchange gradients."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

DISTRIBUTED = "Distributed training (PADDLE_* variables provide what is not given)"


class Mode(StrEnum):
    """How trainers exchange gradients."""

    PSERVER = "pserver"
    NCCL2 = "nccl2"
    COLLECTIVE = "collective"


class SplitMethod(StrEnum):
    """How shards of parameters are placed on servers."""

    ROUND_ROBIN = "RoundRobin"
    HASH_NAME = "HashName"


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
        help="The number of trainers; in the modes without servers, their endpoints.",
    ),
]
TrainerId = Annotated[
    int | None,
    typer.Option(
        "--trainer-id", metavar="N", min=0, rich_help_panel=DISTRIBUTED, help="Write only this trainer's programs."
    ),
]
AllRoles = Annotated[
    bool, typer.Option("--all", rich_help_panel=DISTRIBUTED, help="Write the programs of every trainer and server.")
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
    typer.Option("--no-slice", rich_help_panel=DISTRIBUTED, help="Do not split parameters across servers."),
]
SplitMethodOption = Annotated[
    SplitMethod | None,
    typer.Option(
        "--split-method",
        case_sensitive=False,
        rich_help_panel=DISTRIBUTED,
        help="How shards are placed on servers (default: RoundRobin).",
    ),
]
MinBlockSize = Annotated[
    int | None,
    typer.Option(
        "--min-block-size",
        metavar="N",
        min=1,
        rich_help_panel=DISTRIBUTED,
        help="The minimum number of elements in a shard (default: 8192).",
    ),
]
Tls = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        rich_help_panel=DISTRIBUTED,
        help="Whether to make certificates, with which roles recognize each other and encrypt (default: if an endpoint is "
        "not on this machine). Real Paddle's roles do not support TLS: for jobs with them, use --no-tls.",
    ),
]
PlanOnly = Annotated[
    bool,
    typer.Option("--plan", rich_help_panel=DISTRIBUTED, help="Show how shards are placed, and write nothing."),
]
