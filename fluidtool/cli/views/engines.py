"""What is said about engines: whether they are here, and which one computed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluidtool.cli.render import counted

if TYPE_CHECKING:
    from fluidtool.runtime.engines.registry import EngineRow


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


def delegate_texts() -> dict[str, str]:
    """'1.31.1; …' for each delegate that is installed, or how to install it; no delegate is imported for that."""
    from fluidtool.runtime.engines.registry import DELEGATES

    return {f"engine {row.name}": _delegate_text(row) for row in DELEGATES}


def _delegate_text(row: EngineRow) -> str:
    from importlib.metadata import PackageNotFoundError, version  # with a parser of mail

    try:
        found, *_ = [version(package) for package in row.packages]
    except PackageNotFoundError:
        return f"not installed (pip install 'fluidtool[{row.extra}]')"
    return f"{found}; for those regions of a program that it can compute, with --engine {row.name}"


def native_text(found: Mapping[str, Any]) -> str:
    """'avx2, 8 floats in a vector, 2 threads; …/_engine.so', or why not."""
    if not found["in_use"]:
        return str(found["why_not"])
    return f"{found['instructions']}, {found['vector_width']} floats in a vector, {threads(found)}; {found['library']}"


def threads(found: Mapping[str, Any]) -> str:
    """'2 threads'."""
    return counted(found["threads"], "thread")


def used_text(used: Mapping[str, Any]) -> str:
    """'native (avx2, 2 threads), 12 of 13 operators in 1 region'."""
    from fluidtool.runtime.engines.native.library import PAIRS

    if "regions" not in used:
        return f"{used['name']} ({used['reason']})" if "reason" in used else str(used["name"])
    regions = counted(used["regions"], "region")
    part = f"{used['native_operators']} of {used['operators']} operators in {regions}"
    how = used.get("instructions") or used["version"]
    rounded = "pairs" if used.get("instructions") == PAIRS else "weights"
    precision = f", {used['precision']} {rounded}" if "precision" in used else ""
    return f"{used['name']} ({how}, {threads(used)}{precision}), {part}"
