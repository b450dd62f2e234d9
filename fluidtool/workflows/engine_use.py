"""Which engine computed the runs of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluidtool.runtime.executor import Executor
from fluidtool.runtime.partition import Region, reasons
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.training_regions import TrainingRegion, reasons_of, reasons_of_loops
from fluidtool.tensor import CUDAPlace

if TYPE_CHECKING:
    from fluidtool.report.common import EngineUse


def is_region(part: object) -> bool:
    """Whether a part of a block's work is a region."""
    return isinstance(part, Region)


def engine_used(executor: Executor, plan: Plan, watched: str) -> EngineUse:
    """What computed the runs of a plan: engine, operators, and how many of them in how many calls of a compiled engine.

    watched: the option that had every operator run by itself, or ''.
    """
    block = plan.block(0)
    used: EngineUse = {"name": "numpy", "operators": len(block.steps)}
    engine = executor.engine
    if isinstance(executor.place, CUDAPlace):
        used["name"] = "cupy"
    if engine is None:
        return used
    if watched:
        return {**used, "reason": f"{watched} runs every operator separately"}
    inner = [
        plan.blocks[index] for index in sorted(plan.blocks) if index and any(map(is_region, plan.blocks[index].work))
    ]
    used["operators"] += sum(len(each.steps) for each in inner)
    regions = [step for each in (block, *inner) for step in each.work if isinstance(step, Region)]
    trained = [step for step in block.work if isinstance(step, TrainingRegion)]
    called = [region for region in regions if region.specializations.kept]
    called_to_train = [region for region in trained if region.has_run]
    why = {**reasons(regions), **reasons_of(trained), **reasons_of_loops(block.work, engine.step_compiler)}
    if not called and not called_to_train:
        return {**used, "reason": next(iter(why.values()), "no operators worth a region")}
    used["name"], used["threads"] = engine.name, engine.threads
    used["instructions" if engine.name == "native" else "version"] = engine.version
    used["operators_in_regions"] = sum(len(region.steps) for region in called)
    used["operators_in_regions"] += sum(len(region.steps) for region in called_to_train)
    used["regions"] = len(called) + len(called_to_train)
    if engine.precision != "float32":
        used["precision"] = engine.precision
    if why:
        used["left_to_numpy"] = dict(why)
    return used
