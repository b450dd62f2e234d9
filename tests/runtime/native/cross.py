"""The native engine for other platforms, on this machine: python -m tests.runtime.native.cross [arm] [windows].

Compiles the sources by a cross compiler and runs kernels without Python: for aarch64 in an emulator (Debian:
gcc-aarch64-linux-gnu and qemu-user-static), as a DLL for Windows in Wine (gcc-mingw-w64-x86-64 and wine64). What there is no
compiler or nothing to run it for is said and left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fluidtool.runtime.engines.native.build import SOURCES, build, flags, objects

CHECK = str(Path(__file__).with_suffix(".c"))
ARM, EMULATORS = "aarch64-linux-gnu-gcc", ("qemu-aarch64-static", "qemu-aarch64")
WINDOWS, WINES = "x86_64-w64-mingw32-gcc", ("wine64", "wine")


def first(names: tuple[str, ...]) -> str | None:
    """The first of the programs that is installed."""
    return next((name for name in names if shutil.which(name)), None)


def arm(folder: Path) -> int | None:
    """The exit code of the kernels on an emulated ARM processor; None where that cannot be had."""
    emulator = first(EMULATORS)
    if shutil.which(ARM) is None or emulator is None:
        print(f"not run: ARM: there is no {ARM}, or none of {', '.join(EMULATORS)}")
        return None
    compiling, linking = flags([ARM])
    program = str(folder / "kernels")
    made = objects(folder, [ARM], extra=("-Wall",))
    subprocess.run(
        [ARM, *compiling, "-Wall", "-static", "-I", str(SOURCES), "-o", program, CHECK, *made, *linking], check=True
    )
    return subprocess.run([emulator, program], check=False).returncode


def windows(folder: Path) -> int | None:
    """The exit code of the kernels in a DLL in Wine; None where that cannot be had."""
    wine = first(WINES)
    if shutil.which(WINDOWS) is None or wine is None:
        print(f"not run: Windows: there is no {WINDOWS}, or none of {', '.join(WINES)}")
        return None
    library = build(folder / "_engine.dll", command=[WINDOWS])
    compiling, linking = flags([WINDOWS])
    program = str(folder / "kernels.exe")
    subprocess.run(
        [WINDOWS, *compiling, "-Wall", "-I", str(SOURCES), "-o", program, CHECK, str(library), *linking], check=True
    )
    environment = {**os.environ, "WINEPREFIX": str(folder / "prefix"), "WINEDEBUG": "-all"}
    code = subprocess.run([wine, program], env=environment, check=False).returncode
    if server := first(("wineserver", "/usr/lib/wine/wineserver")):
        subprocess.run([server, "-k"], env=environment, check=False)
    return code


PLATFORMS = {"arm": arm, "windows": windows}


def main(wanted: list[str]) -> int:
    codes = []
    for name in wanted or PLATFORMS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            codes.append(PLATFORMS[name](Path(folder)))
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
