"""Build the library of the native engine: `python -m fluidtool.runtime.engines.native.build` (automatic during installation).

setup.py uses this file, too, so it imports only the standard library. The kernels are compiled once for each instruction
set, all units at the same time. On Windows the compiler is GCC of MinGW-w64: MSVC does not know the vector language that the
kernels are written in.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
SOURCES = FOLDER / "src"
CHOICE = "FLUIDTOOL_BUILD_INSTRUCTIONS"
COMPILING = ("-O2", "-g0", "-std=gnu11", "-fvisibility=hidden", "-fPIC", "-pthread", "-Wno-psabi")
LINKING = ("-lm", "-pthread")
# On Windows the stack is aligned to 16 bytes only, and GCC spills vectors of 32 and 64 as if it were to more: the assembler makes
# these moves unaligned ones (binutils 2.38). Everything but the system itself is linked in.
WINDOWS_COMPILING = ("-O2", "-g0", "-std=gnu11", "-Wno-psabi", "-Wa,-muse-unaligned-vector-move")
WINDOWS_LINKING = ("-lm", "-static")


class Variant(NamedTuple):
    """The kernels for one instruction set.

    lanes, tile, unroll: VL, TILE and UNROLL of src/kernels.h; needs: macros that a compiler defines for a processor that has
    the instructions (a processor without any of them runs `portable`); units: files of src/. Units that it lacks are those of
    the variants before it with as many lanes.
    """

    name: str
    units: tuple[str, ...]
    lanes: int = 8
    tile: int = 6
    unroll: int = 2
    flags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def defines(self, unit: str) -> list[str]:
        """The preprocessor definitions for a unit."""
        table = f"ft_{self.name}_{unit}"
        sizes = [f"-DVL={self.lanes}", f"-DTILE={self.tile}", f"-DUNROLL={self.unroll}", f"-DTABLE={table}"]
        return [*sizes, *self.flags, *OF_UNITS.get(unit, {}).get("", ()), *OF_UNITS.get(unit, {}).get(self.name, ())]


COMMON_UNITS = ("images", "matrices", "int8")
OF_UNITS = {"int8": {"": ("-ffp-contract=off",), "avx512": ("-mavx512bw",)}}
"""Further flags of a unit, of every variant ('') or of one. Rounding to 8 bits must not depend on the instructions."""
AVX512 = ("-mavx512f", "-mavx512dq", "-mavx2", "-mfma")
VNNI = (*AVX512, "-mavx512bw", "-mavx512vnni")
# The sums of a tile fill the registers: 16 of 8 lanes (12 sums, 2 weights, 1 pixel), 32 of 16 lanes (28 sums). On ARM the compiler
# makes two NEON registers of a vector of `portable`.
PORTABLE = Variant("portable", COMMON_UNITS)
X86_64 = (
    Variant("avx2", COMMON_UNITS, 8, 6, 8, ("-mavx2", "-mfma"), ("__AVX2__", "__FMA__")),
    Variant(
        "avx2_vnni",
        ("int8",),
        *(8, 6, 8),
        ("-mavx2", "-mfma", "-mavxvnni"),
        ("__AVX2__", "__FMA__", "__AVXVNNI__"),
    ),
    Variant("avx512", COMMON_UNITS, 16, 14, 16, AVX512, ("__AVX512F__", "__AVX512DQ__", "__AVX512BW__")),
    Variant(
        "avx512_vnni",
        ("int8",),
        *(16, 14, 16),
        VNNI,
        ("__AVX512F__", "__AVX512DQ__", "__AVX512BW__", "__AVX512VNNI__"),
    ),
    Variant(
        "avx512_bf16",
        ("pairs",),
        *(16, 14, 16),
        (*VNNI, "-mavx512bf16"),
        ("__AVX512F__", "__AVX512DQ__", "__AVX512BW__", "__AVX512VNNI__", "__AVX512BF16__"),
    ),
    Variant(
        "amx",
        ("int8", "pairs"),
        *(16, 14, 16),
        (*VNNI, "-mavx512vbmi", "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
        (
            "__AVX512F__",
            "__AVX512DQ__",
            "__AVX512BW__",
            "__AVX512VNNI__",
            "__AVX512VBMI__",
            "__AVX512BF16__",
            "__AMX_INT8__",
            "__AMX_BF16__",
        ),
    ),
)


def compiler() -> list[str]:
    """The compiler that CC names, else that of this Python, else the system's; on Windows GCC."""
    if named := shlex.split(os.environ.get("CC", "")):
        return named
    of_python = shlex.split(sysconfig.get_config_var("CC") or "")[:1]
    usual = ["gcc"] if sys.platform == "win32" else [*of_python, "cc", "gcc", "clang"]
    return [next((name for name in usual if shutil.which(name)), usual[-1])]


def macros(command: list[str], *words: str) -> set[str]:
    """The macros that a compiler, called with `words`, predefines; none if it fails or does not exist."""
    asked = [*command, *words, "-dM", "-E", "-xc", os.devnull]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return set()
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return {line.split()[1] for line in lines if line.startswith("#define ")}


def makes_windows_code(command: list[str]) -> bool:
    """Whether a compiler is GCC of MinGW-w64 for x86-64."""
    return macros(command) >= {"__MINGW64__", "__x86_64__"}


def flags(command: list[str]) -> tuple[list[str], list[str]]:
    """(for compiling, for linking) by a compiler; CFLAGS, LDFLAGS and, on macOS, ARCHFLAGS of the environment come last."""
    compiling, linking = (WINDOWS_COMPILING, WINDOWS_LINKING) if makes_windows_code(command) else (COMPILING, LINKING)
    machine = shlex.split(os.environ.get("ARCHFLAGS", "")) if sys.platform == "darwin" else []
    more, last = (shlex.split(os.environ.get(name, "")) for name in ("CFLAGS", "LDFLAGS"))
    return [*compiling, *machine, *more], [*linking, *machine, *last]


def variants(command: list[str]) -> list[Variant]:
    """Every variant that a compiler supports. Those that add to others are untested on Windows and macOS, and left out."""
    compiling, _ = flags(command)
    machine = macros(command, *compiling)
    if "__x86_64__" not in machine:
        return [PORTABLE]
    untried = bool(machine & {"_WIN64", "__APPLE__"})
    known = [each for each in X86_64 if each.units == COMMON_UNITS or not untried]
    return [PORTABLE, *(each for each in known if macros(command, *each.flags))]


def variants_of_this_processor(command: list[str]) -> list[Variant]:
    """The best variant for this machine's processor, with the one that it builds on."""
    there = variants(command)
    machine = macros(command, "-march=native")
    usable = [each for each in there if each.needs and machine >= set(each.needs)]
    if not usable:
        return [PORTABLE]
    return with_their_base(usable, {usable[-1].name})


def with_their_base(there: list[Variant], names: set[str]) -> list[Variant]:
    """The variants of these names, and those that they add to."""
    added = {each.lanes for each in there if each.name in names and each.units != COMMON_UNITS}
    last = max((number for number, each in enumerate(there) if each.name in names), default=-1)
    return [
        each
        for number, each in enumerate(there)
        if each.name in names or (each.lanes in added and each is not PORTABLE and number < last)
    ]


def chosen_variants(command: list[str], wanted: str) -> list[Variant]:
    """The variants in FLUIDTOOL_BUILD_INSTRUCTIONS: '' for this processor, `all`, or names separated by commas.

    Raises ValueError for an unknown name, or one that the compiler does not support.
    """
    if not wanted:
        return variants_of_this_processor(command)
    there = variants(command)
    if wanted == "all":
        return there
    names = [name.strip() for name in wanted.split(",")]
    if unknown := set(names) - {each.name for each in there}:
        known = ", ".join(each.name for each in there)
        raise ValueError(f"{CHOICE}: {', '.join(sorted(unknown))}: this compiler supports all, or some of {known}")
    return with_their_base(there, set(names))


def units(chosen: list[Variant]) -> list[tuple[Path, list[str]]]:
    """The units to compile, the slowest first: (source, flags)."""
    built = [f"-DFT_BUILT_{each.name.upper()}=1" for each in chosen]
    kernels = [(SOURCES / f"{unit}.c", each.defines(unit)) for each in chosen for unit in each.units]
    return [*kernels, (SOURCES / "engine.c", built), (SOURCES / "pool.c", [])]


def processors() -> int:
    """The number of parallel compiler processes."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def library_name(command: list[str]) -> str:
    """The file name of the library: it does not depend on Python, so one serves every version."""
    return "_engine.dll" if makes_windows_code(command) else "_engine.so"


def objects(folder: Path, command: list[str], wanted: str = "all", extra: tuple[str, ...] = ()) -> list[str]:
    """Compile every unit into `folder`, one process per processor; the paths of the objects.

    wanted: as for chosen_variants. No unit is begun after one that failed. Raises CalledProcessError if the compiler fails,
    OSError without one, and ValueError for instructions that it does not support.
    """
    compiling, _ = flags(command)

    def compiled(number: int, source: Path, defines: list[str]) -> str:
        made = str(folder / f"{number}.o")
        subprocess.run([*command, *compiling, *extra, *defines, "-c", str(source), "-o", made], check=True)
        return made

    with ThreadPoolExecutor(processors()) as pool:
        numbered = enumerate(units(chosen_variants(command, wanted)))
        started = [pool.submit(compiled, number, source, defines) for number, (source, defines) in numbered]
        try:
            return [unit.result() for unit in started]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def build(
    target: Path | None = None,
    extra: tuple[str, ...] = (),
    command: list[str] | None = None,
    wanted: str = "all",
) -> Path:
    """Compile the sources into one shared library, at `target` or in place, and return its path.

    The library is written atomically. Raises the errors of `objects`.
    """
    command = command or compiler()
    path = target or FOLDER / library_name(command)
    compiling, linking = flags(command)
    with TemporaryDirectory() as scratch:
        made = Path(scratch, path.name)
        linked = [*objects(Path(scratch), command, wanted, extra), *linking]
        subprocess.run([*command, *compiling, *extra, "-shared", "-o", str(made), *linked], check=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.chmod(0o755)
        os.replace(beside, path)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{build(wanted=os.environ.get(CHOICE, 'all'))}\n")
