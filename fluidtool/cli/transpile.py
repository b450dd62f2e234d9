"""`fluidtool transpile`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fluidtool.cli.options import INPUTS, OUTPUT, Batch, Force, Json, ModelFile, ModelPath, ParamsPath, Shapes
from fluidtool.errors import UsageError

PASSES = "Passes (they run in the order in which they are given)"
CHECKS = "Checks and figures"
DISTRIBUTED = "Distributed training (what is left out comes from PADDLE_* variables)"
ORDER = "fluidtool.order"  # where app.py leaves the order of the options
NAMES = {
    "fuse_bn": "fuse-batch-norm",
    "all_inference": "all-inference",
    "memory_optimize": "memory-optimize",
    "release_memory": "release-memory",
}


class Mode(StrEnum):
    """How trainers exchange gradients."""

    PSERVER = "pserver"
    NCCL2 = "nccl2"
    COLLECTIVE = "collective"


class SplitMethod(StrEnum):
    """How slices of parameters are placed on servers."""

    ROUND_ROBIN = "RoundRobin"
    HASH_NAME = "HashName"


def _list_passes(names: list[str] | None) -> list[str] | None:
    """`--fuse help` lists what there is, whatever else is on the command line."""
    if names and "help" in names:
        from fluidtool.cli.rewriting_tables import show_passes

        show_passes()
        raise typer.Exit
    return names


def transpile(
    ctx: typer.Context,
    model: ModelPath,
    fuse_bn: Annotated[
        bool,
        typer.Option("--fuse-bn", rich_help_panel=PASSES, help="Fold batch_norm into the operators before it."),
    ] = False,
    fuse: Annotated[
        list[str] | None,
        typer.Option(
            "--fuse",
            metavar="PASS...",
            rich_help_panel=PASSES,
            callback=_list_passes,
            is_eager=True,
            help="Inference rewrites by name; '--fuse help' lists them.",
        ),
    ] = None,
    all_inference: Annotated[
        bool,
        typer.Option(
            "--all-inference",
            rich_help_panel=PASSES,
            help="Every inference rewrite whose result Paddle itself runs too, until nothing is left to do.",
        ),
    ] = False,
    memory_optimize: Annotated[
        bool,
        typer.Option(
            "--memory-optimize", rich_help_panel=PASSES, help="Let variables share memory; for training programs too."
        ),
    ] = False,
    level: Annotated[
        int | None,
        typer.Option(
            "--level",
            metavar="0|1",
            rich_help_panel=PASSES,
            help="What may share: variables of equal shape (0, the default), or smaller ones with larger ones (1).",
        ),
    ] = None,
    release_memory: Annotated[
        bool,
        typer.Option(
            "--release-memory",
            rich_help_panel=PASSES,
            help="Put delete_var behind the last use of variables; for training programs too.",
        ),
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            metavar="NAME...",
            rich_help_panel=PASSES,
            help="Variables that must keep their names and values, since they are fetched (the outputs always do).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            rich_help_panel=OUTPUT,
            help="Where the result goes, laid out like MODEL. Without it nothing is written.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", rich_help_panel=OUTPUT, help="What was done with each candidate, or why not."),
    ] = False,
    json: Json = False,
    force: Force = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            rich_help_panel=CHECKS,
            help="Run both programs and compare; exit code 1 and nothing written when outputs differ.",
        ),
    ] = False,
    rtol: Annotated[
        float | None,
        typer.Option(
            "--rtol",
            metavar="X",
            min=0,
            rich_help_panel=CHECKS,
            help="What --verify allows, relative to each element and to the largest (default: 1e-5; 0 where every pass "
            "keeps every bit).",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", rich_help_panel=CHECKS, help="Show the memory of activations and the time of a run."),
    ] = False,
    feed: Annotated[
        list[str] | None,
        typer.Option(
            "--feed",
            metavar="[NAME=]FILE",
            rich_help_panel=INPUTS,
            help="What to verify and measure with, as of 'fluidtool run' (default: random values).",
        ),
    ] = None,
    lod: Annotated[
        list[str] | None,
        typer.Option("--lod", metavar="NAME=[[2,3]]", rich_help_panel=INPUTS, help="The sequence lengths of an input."),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", rich_help_panel=INPUTS, help="Random values for every input that is not fed.")
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, rich_help_panel=INPUTS, help="The seed of random values.")
    ] = 0,
    batch: Batch = 1,
    shape: Shapes = None,
    startup: Annotated[
        Path | None,
        typer.Option(
            "--startup",
            metavar="FILE",
            rich_help_panel=INPUTS,
            help="The program that initializes the parameters, where MODEL is a training program.",
        ),
    ] = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    distribute: Annotated[
        bool,
        typer.Option(
            "--distribute", rich_help_panel=DISTRIBUTED, help="Write the programs of each role of a distributed job."
        ),
    ] = False,
    pservers: Annotated[
        str | None,
        typer.Option("--pservers", metavar="HOST:PORT,...", rich_help_panel=DISTRIBUTED, help="The parameter servers."),
    ] = None,
    trainers: Annotated[
        str | None,
        typer.Option(
            "--trainers",
            metavar="N|HOST:PORT,...",
            rich_help_panel=DISTRIBUTED,
            help="How many trainers there are; their endpoints in the modes without servers.",
        ),
    ] = None,
    trainer_id: Annotated[
        int | None,
        typer.Option(
            "--trainer-id", metavar="N", min=0, rich_help_panel=DISTRIBUTED, help="The programs of this trainer only."
        ),
    ] = None,
    all_roles: Annotated[
        bool, typer.Option("--all", rich_help_panel=DISTRIBUTED, help="The programs of every trainer and server.")
    ] = False,
    mode: Annotated[
        Mode | None,
        typer.Option("--mode", rich_help_panel=DISTRIBUTED, help="How gradients are exchanged (default: pserver)."),
    ] = None,
    sync: Annotated[
        bool | None,
        typer.Option(
            "--sync/--async", rich_help_panel=DISTRIBUTED, help="Whether trainers wait for each other (default: sync)."
        ),
    ] = None,
    no_slice: Annotated[
        bool,
        typer.Option("--no-slice", rich_help_panel=DISTRIBUTED, help="Do not slice parameters over servers."),
    ] = False,
    split_method: Annotated[
        SplitMethod | None,
        typer.Option(
            "--split-method",
            case_sensitive=False,
            rich_help_panel=DISTRIBUTED,
            help="How slices are placed on servers (default: RoundRobin).",
        ),
    ] = None,
    min_block_size: Annotated[
        int | None,
        typer.Option(
            "--min-block-size",
            metavar="N",
            min=1,
            rich_help_panel=DISTRIBUTED,
            help="The least number of elements of a slice (default: 8192).",
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", rich_help_panel=DISTRIBUTED, help="Show what goes where; write nothing."),
    ] = False,
) -> None:
    """Rewrite a program: for faster inference, for less memory, or for distributed training.

    MODEL itself is never changed. Names of outputs stay, and so do their values; --verify shows that they do. Nothing is
    written if anything fails.
    """
    from fluidtool.cli.rewriting import Request, rewrite

    passes = ordered(ctx.meta.get(ORDER, []), fuse or [])
    only_distributed: dict[str, Any] = {
        "--pservers": pservers,
        "--trainers": trainers,
        "--trainer-id": trainer_id,
        "--all": all_roles,
        "--mode": mode,
        "--sync/--async": None if sync is None else "given",
        "--no-slice": no_slice,
        "--split-method": split_method,
        "--min-block-size": min_block_size,
        "--plan": plan,
    }
    if not distribute:
        for option, value in only_distributed.items():
            if value is not None and value is not False:
                raise UsageError(f"{option} is about distributed training; give --distribute too")
        if level not in (None, 0, 1):
            raise UsageError(f"--level {level} is none; expected 0 or 1")
        if level is not None and not memory_optimize:
            raise UsageError("--level is about --memory-optimize; give that too")
        rewrite(
            Request(
                model=model,
                params=params,
                model_file=model_file,
                passes=passes,
                level=level or 0,
                skip=skip or [],
                output=output,
                explain=explain,
                json=json,
                force=force,
                verify=verify,
                rtol=rtol,
                measure=measure,
                feeds=feed or [],
                lods=lod or [],
                random=random,
                seed=seed,
                batch=batch,
                shapes=shape or [],
                startup=startup,
            )
        )
        return
    from fluidtool.cli import distribute as distribution

    if passes:
        raise UsageError(f"--distribute and {passes[0]} are two transpilers; run one and then the other on its result")
    if startup is None:
        raise UsageError("--distribute takes the startup program too; give --startup FILE")
    only_passes: dict[str, Any] = {
        "--verify": verify,
        "--measure": measure,
        "--explain": explain,
        "--rtol": rtol is not None,
        "--level": level is not None,
        "--skip": skip,
        "--feed": feed,
        "--lod": lod,
        "--random": random,
        "--shape": shape,
        "--params": params,
    }
    for option, given in only_passes.items():
        if given:
            raise UsageError(f"{option} is about passes; leave it out with --distribute")
    distribution.distribute(
        Path(model),
        startup=startup,
        pservers=pservers,
        trainers=trainers,
        trainer_id=trainer_id,
        all_roles=all_roles,
        mode=(mode or Mode.PSERVER).value,
        sync=sync is not False,
        slice_variables=not no_slice,
        split_method=(split_method or SplitMethod.ROUND_ROBIN).value,
        min_block_size=8192 if min_block_size is None else min_block_size,
        plan=plan,
        output=output,
        force=force,
        json=json,
    )


def ordered(order: list[str], fused: list[str]) -> list[str]:
    """The names of passes in the order of the command line: `order` has the parameter of each option that was given."""
    names, waiting = [], iter(fused)
    for parameter in order:
        name = next(waiting, None) if parameter == "fuse" else NAMES.get(parameter)
        if name is not None:
            names.append(name)
    return names
