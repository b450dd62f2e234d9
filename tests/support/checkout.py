"""Which fluidtool is tested, by this process and by those that it starts: the one that is installed, with its engine.

`python -m pytest` puts the working folder first in `sys.path`, and with it the sources, in which no engine is built. Here the
checkout comes last: `tests` and `benchmarks` are found in it, and `fluidtool` only where none is installed.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def put_the_checkout_last() -> None:
    """Have this process, and whatever it starts, import what is installed."""
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ROOT] + [str(ROOT)]
    os.environ.update(child_environment())


def child_environment(**changes: str) -> dict[str, str]:
    """The environment of a process that imports the same fluidtool as this one, and `tests`, wherever it is started.

    A script that imports files beside it takes PYTHONSAFEPATH="".
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = [str(package_folder().parent), *filter(None, given), str(ROOT)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(found)),
        "PYTHONSAFEPATH": "1",  # else -m and -c put the working folder first
        **changes,
    }


def paddle_environment() -> dict[str, str]:
    """The environment of another interpreter, one with real Paddle; its gRPC would ask a proxy for local addresses."""
    kept = os.environ.items()
    return {name: value for name, value in kept if not name.startswith("PYTHON") and "proxy" not in name.lower()}


def package_folder() -> Path:
    """Where the fluidtool that is tested stands."""
    spec = find_spec("fluidtool")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no fluidtool, neither installed nor at {ROOT}", name="fluidtool")
    return Path(spec.origin).resolve().parent


def differing_sources() -> list[str]:
    """The files of the checkout that the fluidtool that is tested has otherwise, or not at all."""
    package = package_folder()
    copies = {"fluidtool": package, "ops": package / "ops", "proto": package / "proto"}
    pairs = [
        (path, copy / path.relative_to(ROOT / folder))
        for folder, copy in copies.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".c", ".h")
    ]
    return [
        str(path.relative_to(ROOT))
        for path, other in pairs
        if not other.is_file() or path.read_bytes() != other.read_bytes()
    ]
