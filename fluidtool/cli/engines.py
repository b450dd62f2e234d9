"""What the commands say about engines, and the option --threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fluidtool.cli.failures import say
from fluidtool.processors import processors

if TYPE_CHECKING:
    from fluidtool.runtime.executor import Executor
    from fluidtool.runtime.plan import Plan

# Read by the libraries that numpy multiplies matrices with, when numpy is imported.
DELEGATES = ("onnxruntime", "openvino")
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def use_threads(count: int) -> None:
    """Set the threads of the native engine, and of numpy's products as long as numpy is not imported.

    Never more than there are processors.
    """
    count = min(count, processors())
    os.environ["FLUIDTOOL_THREADS"] = str(count)
    if "numpy" in sys.modules:
        say(
            "note: numpy is imported already, so --threads sets the native engine's threads and not those of numpy's "
            "products; set OMP_NUM_THREADS before the start for these"
        )
        from fluidtool.runtime.engines.native.library import library

        if (found := library()) is not None:
            found.use_threads(count)
    else:
        os.environ.update(dict.fromkeys(BLAS, str(count)))


def native_fields() -> dict[str, Any]:
    """Whether the native engine is here: library, instructions, floats in a vector, threads; or why it is not."""
    from fluidtool.runtime.engines.native.library import SWITCH, absence, library, library_path, switched_off

    if switched_off():
        path = library_path()
        return {
            "in_use": False,
            "library": None if path is None else str(path),
            "why_not": f"switched off by {SWITCH}={os.environ[SWITCH]}",
        }
    found = library()
    if found is None:
        path = library_path()
        return {"in_use": False, "library": None if path is None else str(path), "why_not": absence()}
    return {
        "in_use": True,
        "library": str(found.path),
        "instructions": found.instructions,
        "vector_width": found.width,
        "threads": found.threads,
    }


def delegate_text(name: str) -> str:
    """'1.31.1; …' for an engine outside that is installed, or how to install it. Nothing is imported for that."""
    try:
        found = version(name)
        if name == "onnxruntime":
            version("onnx")
    except PackageNotFoundError:
        return f"not installed (pip install 'fluidtool[{name}]')"
    return f"{found}; for those regions of a program that it can compute, with --engine {name}"


def native_text(found: Mapping[str, Any]) -> str:
    """'avx2, 8 floats in a vector, 2 threads; …/_engine.so', or why not."""
    if not found["in_use"]:
        return str(found["why_not"])
    return f"{found['instructions']}, {found['vector_width']} floats in a vector, {threads(found)}; {found['library']}"


def threads(found: Mapping[str, Any]) -> str:
    """'2 threads'."""
    return f"{found['threads']} thread{'s' if found['threads'] != 1 else ''}"


def engine_used(executor: Executor, plan: Plan, watched: str) -> dict[str, Any]:
    """What computed the runs of a plan: engine, operators, and how many of them in how many calls of a compiled engine.

    watched: the option that had every operator run by itself, or ''.
    """
    from fluidtool.runtime.partition import Region, reasons
    from fluidtool.tensor import CUDAPlace

    block = plan.block(0)
    used: dict[str, Any] = {"name": "numpy", "operators": len(block.steps)}
    if isinstance(executor.place, CUDAPlace):
        return used | {"name": "cupy"}
    engine = executor.engine
    if engine is None:
        return used
    if watched:
        return used | {"reason": f"{watched} looks at every operator by itself"}
    regions = [step for step in block.work if isinstance(step, Region)]
    called = [region for region in regions if region.specializations.kept]
    why = reasons(regions)
    if not called:
        return used | {"reason": next(iter(why.values()), "no operators that are worth a region")}
    done: dict[str, Any] = {
        "native_operators": sum(len(region.steps) for region in called),
        "regions": len(called),
        **({"left_to_numpy": dict(why)} if why else {}),
    }
    version = "instructions" if engine.name == "native" else "version"
    name = {"name": engine.name, version: engine.version, "threads": engine.threads}
    return used | name | ({} if engine.precision == "float32" else {"precision": engine.precision}) | done


def used_text(used: Mapping[str, Any]) -> str:
    """'native (avx2, 2 threads), 12 of 13 operators in 1 region'."""
    from fluidtool.runtime.engines.native.library import PAIRS

    if "regions" not in used:
        return f"{used['name']} ({used['reason']})" if "reason" in used else str(used["name"])
    regions = f"{used['regions']} region{'s' if used['regions'] != 1 else ''}"
    part = f"{used['native_operators']} of {used['operators']} operators in {regions}"
    how = used.get("instructions") or used["version"]
    rounded = "pairs" if used.get("instructions") == PAIRS else "weights"
    precision = f", {used['precision']} {rounded}" if "precision" in used else ""
    return f"{used['name']} ({how}, {threads(used)}{precision}), {part}"
