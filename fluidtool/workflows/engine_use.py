"""Which engine computed the runs of a plan."""

from __future__ import annotations

from typing import Any

from fluidtool.runtime.executor import Executor
from fluidtool.runtime.partition import Region, reasons
from fluidtool.runtime.plan import Plan
from fluidtool.tensor import CUDAPlace


def engine_used(executor: Executor, plan: Plan, watched: str) -> dict[str, Any]:
    """What computed the runs of a plan: engine, operators, and how many of them in how many calls of a compiled engine.

    watched: the option that had every operator run by itself, or ''.
    """
    block = plan.block(0)
    used: dict[str, Any] = {"name": "numpy", "operators": len(block.steps)}
    if isinstance(executor.place, CUDAPlace):
        return used | {"name": "cupy"}
    engine = executor.engine
    if engine is None:
        return used
    if watched:
        return used | {"reason": f"{watched} runs every operator separately"}
    regions = [step for step in block.work if isinstance(step, Region)]
    called = [region for region in regions if region.specializations.kept]
    why = reasons(regions)
    if not called:
        return used | {"reason": next(iter(why.values()), "no operators worth a region")}
    done: dict[str, Any] = {
        "native_operators": sum(len(region.steps) for region in called),
        "regions": len(called),
        **({"left_to_numpy": dict(why)} if why else {}),
    }
    version = "instructions" if engine.name == "native" else "version"
    name = {"name": engine.name, version: engine.version, "threads": engine.threads}
    return used | name | ({} if engine.precision == "float32" else {"precision": engine.precision}) | done
