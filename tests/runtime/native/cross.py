"""The native engine for ARM, on any machine: python -m tests.runtime.native.cross.

Compiles the sources for aarch64 by a cross compiler, warnings as errors, and runs some kernels in an emulator (Debian:
gcc-aarch64-linux-gnu and qemu-user-static). Without these it says so and does nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fluidtool.runtime.engines.native.build import PROJECT, recipe

COMPILER, EMULATORS = "aarch64-linux-gnu-gcc", ("qemu-aarch64-static", "qemu-aarch64")


def main() -> int:
    emulator = next((name for name in EMULATORS if shutil.which(name)), None)
    if shutil.which(COMPILER) is None or emulator is None:
        print(f"not run: there is no {COMPILER}, or none of {', '.join(EMULATORS)}")
        return 0
    extension = recipe()
    sources = [str(PROJECT.parent / name) for name in extension["sources"]]
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "kernels"))
        flags = [*extension["extra-compile-args"], "-Wall", "-static", "-I", str(Path(sources[0]).parent)]
        check = str(Path(__file__).with_suffix(".c"))
        subprocess.run([COMPILER, *flags, "-o", program, *sources, check, *extension["extra-link-args"]], check=True)
        return subprocess.run([emulator, program], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
