"""Build the library in place: `python -m fluidtool.runtime.engines.native.build` (an installation does it by itself).

Sources and flags are those of pyproject.toml. On Windows the compiler is GCC of MinGW-w64 (setup.py takes this file for it, so
it imports nothing but the standard library): MSVC does not know the vector language that the kernels are written in.
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

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parents[3] / "pyproject.toml"
MINGW = "x86_64-w64-mingw32"
# There the stack is aligned to 16 bytes only, and GCC spills vectors of 32 and 64 as if it were to more: the assembler makes
# these moves unaligned ones (binutils 2.38). Everything but the system itself is linked in.
WINDOWS_COMPILING, WINDOWS_LINKING = ("-Wa,-muse-unaligned-vector-move",), ("-static",)


def recipe() -> dict[str, Any]:
    """How pyproject.toml says that the library is built; raises FileNotFoundError outside of a checkout."""
    (extension,) = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["ext-modules"]
    found: dict[str, Any] = extension
    return found


def compiler() -> list[str]:
    """The compiler that CC names, else that of this Python; on Windows GCC."""
    usual = "gcc" if sys.platform == "win32" else "cc"
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or usual)[:1]


def makes_windows_code(command: list[str]) -> bool:
    """Whether a compiler is GCC for Windows on x86-64."""
    try:
        asked = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return asked.stdout.strip() == MINGW


def flags(command: list[str]) -> tuple[list[str], list[str]]:
    """(for compiling, for linking) by a compiler."""
    extension = recipe()
    compiling, linking = extension["extra-compile-args"], extension["extra-link-args"]
    if not makes_windows_code(command):
        return [*compiling, "-fPIC"], linking
    without = [flag for flag in compiling if flag not in {"-pthread", "-fvisibility=hidden"}]
    return [*without, *WINDOWS_COMPILING], [*(flag for flag in linking if flag != "-pthread"), *WINDOWS_LINKING]


def build(target: Path | None = None, extra: tuple[str, ...] = (), command: list[str] | None = None) -> Path:
    """Compile the sources into one shared library, by `command` or else by the usual compiler.

    Raises CalledProcessError, or OSError without a compiler or outside of a checkout.
    """
    command = command or compiler()
    suffix = ".dll" if makes_windows_code(command) else sysconfig.get_config_var("EXT_SUFFIX") or ".so"
    path = target or FOLDER / f"_engine{suffix}"
    compiling, linking = flags(command)
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:

        def compiled(name: str) -> str:
            made = str(Path(scratch, Path(name).name).with_suffix(".o"))
            subprocess.run([*command, *compiling, *extra, "-c", str(PROJECT.parent / name), "-o", made], check=True)
            return made

        objects = list(pool.map(compiled, recipe()["sources"]))
        subprocess.run([*command, *compiling, *extra, "-shared", "-o", str(path), *objects, *linking], check=True)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
