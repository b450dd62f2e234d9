"""What is said about engines: whether they are here, and which one computed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fluidtool.cli.render import counted

if TYPE_CHECKING:
    from fluidtool.report.common import EngineUse, NativeEngine
    from fluidtool.runtime.engines.registry import EngineRow


def native_fields() -> NativeEngine:
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


def delegate_texts() -> dict[str, str]:
    """By name '1.31.1; …' for each delegate that is installed, or how to install it; no delegate is imported for that."""
    from fluidtool.runtime.engines.registry import DELEGATES

    return {row.name: _delegate_text(row) for row in DELEGATES}


def _delegate_text(row: EngineRow) -> str:
    from importlib.metadata import PackageNotFoundError, version  # with a parser of mail

    try:
        found, *_ = [version(package) for package in row.packages]
    except PackageNotFoundError:
        return f"not installed (pip install 'fluidtool[{row.extra}]')"
    return f"{found}; for those regions of a program that it can compute, with --engine {row.name}"


def native_text(found: NativeEngine) -> str:
    """'avx2, 8 floats in a vector, 2 threads; …/_engine.so', or why not."""
    if not found["in_use"]:
        return str(found["why_not"])
    return f"{found['instructions']}, {found['vector_width']} floats in a vector, {threads(found)}; {found['library']}"


def threads(found: NativeEngine | EngineUse) -> str:
    """'2 threads'."""
    return counted(found["threads"], "thread")


def used_text(used: EngineUse) -> str:
    """'native (avx2, 2 threads), 12 of 13 operators in 1 region'."""
    from fluidtool.runtime.engines.native.library import PAIRS, TILES

    if "regions" not in used:
        return f"{used['name']} ({used['reason']})" if "reason" in used else str(used["name"])
    regions = counted(used["regions"], "region")
    part = f"{used['operators_in_regions']} of {used['operators']} operators in {regions}"
    how = used.get("instructions") or used["version"]
    rounded = "pairs" if used.get("instructions") in (PAIRS, TILES) else "weights"
    precision = f", {used['precision']} {rounded}" if "precision" in used else ""
    return f"{used['name']} ({how}, {threads(used)}{precision}), {part}"
