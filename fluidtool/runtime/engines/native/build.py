"""Build the library in place: `python -m fluidtool.runtime.engines.native.build` (an installation does it by itself)."""

from __future__ import annotations

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from fluidtool.runtime.engines.native.library import FOLDER

SOURCES = ("engine.c", "pool.c", "portable.c", "avx2.c", "avx512.c")
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wno-psabi")


def build(target: Path | None = None, extra: tuple[str, ...] = ()) -> Path:
    """Compile the sources into one shared library; raises CalledProcessError, or OSError without a compiler."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[:1]
    path = target or FOLDER / f"_engine{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"
    sources = [str(FOLDER / "src" / name) for name in SOURCES]
    subprocess.run([*compiler, *FLAGS, *extra, "-shared", "-o", str(path), *sources, "-lm"], check=True)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
