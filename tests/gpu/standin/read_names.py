"""Write names.json.xz from the real package, which needs no GPU for this: python read_names.py, where cupy is installed."""

from __future__ import annotations

import inspect
import json
import lzma
from pathlib import Path
from types import ModuleType
from typing import Any

FUNCTIONS = ("function", "builtin_function_or_method", "method_descriptor")


def entry(value: Any) -> dict[str, Any]:
    """What is known of a name."""
    found: dict[str, Any] = {"kind": type(value).__name__, "params": parameters(value)}
    if found["kind"] == "ufunc":
        found["types"] = list(value.types)
    return found


def parameters(value: Any) -> list[tuple[str, int, bool]] | None:
    """Name, kind, and whether it has a default; None where Python cannot say."""
    if type(value).__name__ not in FUNCTIONS:
        return None
    try:
        found = inspect.signature(value).parameters.values()
    except ValueError:
        return None
    return [(each.name, int(each.kind), each.default is not each.empty) for each in found]


def public(module: ModuleType) -> dict[str, Any]:
    """The public names of a module."""
    return {name: entry(getattr(module, name)) for name in dir(module) if not name.startswith("_")}


def main() -> None:
    """Write the file beside this one."""
    import cupy
    import cupy.fft
    import cupy.lib.stride_tricks
    import cupy.linalg
    from cupyx.scipy import special

    found = {
        "cupy": public(cupy),
        "linalg": public(cupy.linalg),
        "fft": public(cupy.fft),
        "stride_tricks": {
            name: entry(getattr(cupy.lib.stride_tricks, name)) for name in ("as_strided", "sliding_window_view")
        },
        "special": public(special),
    }
    with lzma.open(Path(__file__).with_name("names.json.xz"), "wt", preset=9) as file:
        json.dump(found, file, sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
