"""`fluidtool transpile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fluidtool.cli.app import ORDER
from fluidtool.cli.opening import policy_of, source_of
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
    Tls,
    TrainerId,
    Trainers,
)
from fluidtool.cli.options.inputs import Batch, Feeds, Lods, Random, Seed, Shapes
from fluidtool.cli.options.model import ModelFile, ModelPath, ParamsPath, Startup
from fluidtool.cli.options.outputs import Draw, Force, Json, Output
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
from fluidtool.errors import EXIT_FINDING, UsageError

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
    draw: Annotated[
        Draw,
        Changed(help="Draw the memory of activations before and after, for --memory-optimize and --release-memory."),
    ] = None,
    json: Json = False,
    force: Force = False,
    verify: Verify = False,
    rtol: Rtol = None,
    measure: Measure = False,
    feed: Annotated[
        Feeds,
        Changed(help="The inputs to verify and measure with, as for 'fluidtool run' (default: random values)."),
    ] = None,
    lod: Annotated[Lods, Changed(help="The sequence lengths of an input.")] = None,
    random: Random = False,
    seed: Annotated[Seed, Changed(help="The seed of the random values.")] = 0,
    batch: Batch = None,
    shape: Shapes = None,
    startup: Annotated[
        Startup,
        Changed(
            panel=INPUTS,
            help="The program that initializes the parameters, if MODEL is a training program.",
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
    tls: Tls = None,
    plan: PlanOnly = False,
) -> None:
    """Rewrite a program: for faster inference, for less memory, or for distributed training.

    MODEL itself is never changed. The outputs keep their names and values, which --verify checks. Nothing is written if
    anything fails.
    """
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
        "--tls/--no-tls": None if tls is None else "given",
        "--plan": plan,
    }
    if not distribute:
        for option, value in only_distributed.items():
            if value is not None and value is not False:
                raise UsageError(f"{option} applies to distributed training; give --distribute too")
        if level not in (None, 0, 1):
            raise UsageError(f"--level must be 0 or 1, found {level}")
        if level is not None and not memory_optimize:
            raise UsageError("--level applies to --memory-optimize; give that too")
        if not passes:
            raise UsageError(
                "say what to do: --fuse-bn, --fuse PASS, --all-inference, --memory-optimize, --release-memory or "
                "--distribute"
            )
        if draw is not None and not (memory_optimize or release_memory):
            raise UsageError("--draw shows what --memory-optimize and --release-memory save; give one of them too")
        if not (verify or measure):
            _check_unrun({"--feed": feed, "--lod": lod, "--random": random, "--shape": shape}, rtol, startup)
        from fluidtool.cli.terminal import TERMINAL
        from fluidtool.cli.views.transpile import show_result
        from fluidtool.workflows.inputs import Inputs
        from fluidtool.workflows.transpile import transpile as transpile_model

        result = transpile_model(
            source_of(model),
            passes,
            level=level or 0,
            skip=skip or (),
            output=output,
            draw=draw,
            overwrite=force,
            verify=verify,
            measure=measure,
            rtol=rtol,
            inputs=Inputs(feed or (), lod or (), random, shape or (), batch, seed),
            startup=None if startup is None else Path(startup),
            params=params,
            model_filename=model_file,
            policy=policy_of(allow_files or (), allow_network),
            watcher=TERMINAL,
        )
        show_result(result, output, verified=verify, explain=explain, json=json)
        if result.differing:
            raise typer.Exit(EXIT_FINDING)
        return
    if passes:
        raise UsageError(f"--distribute and {passes[0]} are two transpilers; run one, then the other on its result")
    if startup is None:
        raise UsageError("--distribute takes the startup program too; give --startup FILE")
    only_passes: dict[str, Any] = {
        "--verify": verify,
        "--measure": measure,
        "--explain": explain,
        "--draw": draw,
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
            raise UsageError(f"{option} applies to passes; omit it with --distribute")
    from fluidtool.cli.views.job import show_job, show_plan
    from fluidtool.workflows.job import JobRequest, make_job, plan_job

    request = JobRequest(
        pservers=pservers,
        trainers=trainers,
        trainer_id=trainer_id,
        all_roles=all_roles,
        mode=(mode or Mode.PSERVER).value,
        sync=sync is not False,
        slice_variables=not no_slice,
        split_method=(split_method or SplitMethod.ROUND_ROBIN).value,
        min_block_size=8192 if min_block_size is None else min_block_size,
        tls=tls,
    )
    if plan:
        show_plan(plan_job(Path(model), Path(startup), request), json)
    elif output is None:
        raise UsageError(
            "transpile --distribute writes a folder of programs: give -o DIR, or --plan to only show the plan"
        )
    else:
        made = make_job(Path(model), Path(startup), output, request, overwrite=force)
        show_job(made, output, json)


def _check_unrun(feeding: Mapping[str, Any], rtol: float | None, startup: str | None) -> None:
    """Refuse options that say how to run the programs where they are not run."""
    for option, value in feeding.items():
        if value:
            raise UsageError(f"{option} applies to running the programs; give --verify or --measure too")
    if rtol is not None:
        raise UsageError("--rtol applies to --verify; give that too")
    if startup is not None:
        raise UsageError("--startup initializes parameters for a run; give --verify, --measure or --distribute too")


def ordered(order: list[str], fused: list[str]) -> list[str]:
    """The names of passes in the order of the command line: `order` has the parameter of each option that was given."""
    names, waiting = [], iter(fused)
    for parameter in order:
        name = next(waiting, None) if parameter == "fuse" else NAMES.get(parameter)
        if name is not None:
            names.append(name)
    return names
