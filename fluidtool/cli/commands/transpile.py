"""`fluidtool transpile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fluidtool.cli.app import ORDER
from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.distribution import (
    AllRoles,
    Distribute,
    MinBlockSize,
    Mode,
    ModeOption,
    NoSlice,
    PlanOnly,
    Pservers,
    SplitMethod,
    SplitMethodOption,
    Sync,
    TrainerId,
    Trainers,
)
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath, Startup
from fluidtool.cli.options.outputs import Force, Json, Output
from fluidtool.cli.options.panels import INPUTS
from fluidtool.cli.options.passes import (
    AllInference,
    Explain,
    Fuse,
    FuseBn,
    Level,
    Measure,
    MemoryOptimize,
    ReleaseMemory,
    Rtol,
    Skip,
    Verify,
)
from fluidtool.cli.options.safety import AllowFiles, AllowNetwork
from fluidtool.errors import UsageError

NAMES = {
    "fuse_bn": "fuse-batch-norm",
    "all_inference": "all-inference",
    "memory_optimize": "memory-optimize",
    "release_memory": "release-memory",
}


def transpile(
    ctx: typer.Context,
    model: ModelPath,
    fuse_bn: FuseBn = False,
    fuse: Fuse = None,
    all_inference: AllInference = False,
    memory_optimize: MemoryOptimize = False,
    level: Level = None,
    release_memory: ReleaseMemory = False,
    skip: Skip = None,
    output: Output = None,
    explain: Explain = False,
    json: Json = False,
    force: Force = False,
    verify: Verify = False,
    rtol: Rtol = None,
    measure: Measure = False,
    feed: Annotated[
        Feeds,
        Changed(help="What to verify and measure with, as of 'fluidtool run' (default: random values)."),
    ] = None,
    lod: Annotated[Lods, Changed(help="The sequence lengths of an input.")] = None,
    random: Random = False,
    seed: Annotated[Seed, Changed(help="The seed of random values.")] = 0,
    batch: Batch = 1,
    shape: Shapes = None,
    startup: Annotated[
        Startup,
        Changed(
            panel=INPUTS,
            help="The program that initializes the parameters, where MODEL is a training program.",
        ),
    ] = None,
    params: ParamsPath = None,
    model_file: ModelFile = None,
    allow_files: AllowFiles = None,
    allow_network: AllowNetwork = False,
    distribute: Distribute = False,
    pservers: Pservers = None,
    trainers: Trainers = None,
    trainer_id: TrainerId = None,
    all_roles: AllRoles = False,
    mode: ModeOption = None,
    sync: Sync = None,
    no_slice: NoSlice = False,
    split_method: SplitMethodOption = None,
    min_block_size: MinBlockSize = None,
    plan: PlanOnly = False,
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
                startup=None if startup is None else Path(startup),
                allow_files=allow_files or [],
                allow_network=allow_network,
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
        startup=Path(startup),
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
