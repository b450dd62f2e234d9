"""Build the library in place: `python -m fluidtool.runtime.engines.native.build` (an installation does it by itself).

Sources and flags are those of pyproject.toml.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fluidtool.runtime.engines.native.library import FOLDER

PROJECT = FOLDER.parents[3] / "pyproject.toml"


def recipe() -> dict[str, Any]:
    """How pyproject.toml says that the library is built; raises FileNotFoundError outside of a checkout."""
    (extension,) = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["ext-modules"]
    found: dict[str, Any] = extension
    return found


def build(target: Path | None = None, extra: tuple[str, ...] = ()) -> Path:
    """Compile the sources into one shared library by the compiler that CC names, else by that of this Python.

    Raises CalledProcessError, or OSError without a compiler or outside of a checkout.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
    path = target or FOLDER / f"_engine{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"
    extension = recipe()
    flags = [*extension["extra-compile-args"], "-fPIC", *extra]
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:

        def compiled(name: str) -> str:
            made = str(Path(scratch, Path(name).name).with_suffix(".o"))
            subprocess.run([*compiler, *flags, "-c", str(PROJECT.parent / name), "-o", made], check=True)
            return made

        objects = list(pool.map(compiled, extension["sources"]))
        linking = [*flags, "-shared", "-o", str(path), *objects, *extension["extra-link-args"]]
        subprocess.run([*compiler, *linking], check=True)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
