"""Check that a wheel holds every module of the checkout, the native engine where a C compiler is, and nothing but `fluidtool`.

Usage: python .ci/check_wheel.py WHEEL [SDIST]
"""

from __future__ import annotations

import fnmatch
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (".py", ".pyi", ".proto", ".toml", ".c", ".h", ".html", ".css", ".js")
FOLDERS = {"fluidtool": "fluidtool", "ops": "fluidtool/ops", "proto": "fluidtool/proto"}  # where they are installed
ENGINE = "fluidtool/runtime/engines/native/_engine*.*"


def expected_files() -> set[str]:
    """Paths, as installed, of all that a wheel must hold."""
    return {
        (Path(installed) / path.relative_to(ROOT / folder)).as_posix()
        for folder, installed in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SHIPPED or path.name == "py.typed"
    }


def has_compiler() -> bool:
    """Whether the C compiler that an installation would call answers."""
    recipe = runpy.run_path(str(ROOT / "fluidtool/runtime/engines/native/build.py"))
    return bool(recipe["macros"](recipe["compiler"]()))


def findings_of_source(names: set[str]) -> list[str]:
    """What is wrong with a source distribution that holds `names`: it must be a whole copy, tests and samples too."""
    held = {name.partition("/")[2] for name in names}
    links = set(FOLDERS.values()) - {"fluidtool"}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = {name for name in listed.split("\0") if name and name not in links}
    return [f"missing from the source distribution: {name}" for name in sorted(expected - held)]


def findings(name: str, names: set[str], compiler: bool) -> list[str]:
    """What is wrong with the wheel `name` that holds `names`, built where there is a C compiler or not; empty when nothing is."""
    missing = sorted(expected_files() - names)
    tops = {name.split("/")[0] for name in names}
    strangers = sorted(top for top in tops if top != "fluidtool" and not top.endswith(".dist-info"))
    license_files = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    engine = fnmatch.filter(names, ENGINE)
    return [
        *(f"missing from the wheel: {name} (does its folder have an __init__.py?)" for name in missing),
        *(f"the wheel would install a top-level '{top}'" for top in strangers),
        *(
            []
            if engine or not compiler
            else ["the wheel lacks the compiled native engine, though a C compiler is here"]
        ),
        *([] if name.startswith("fluidtool-") and "-py3-none-" in name else [f"{name} is not for every Python 3"]),
        *([] if license_files else ["the wheel has no LICENSE"]),
    ]


def main() -> int:
    """Print the findings for what the command line names; 1 when there are any."""
    path, *source = sys.argv[1:]
    names = set(zipfile.ZipFile(path).namelist())
    problems = findings(Path(path).name, names, has_compiler())
    for archive in source:
        with tarfile.open(archive) as held:
            problems += findings_of_source(set(held.getnames()))
    engine = "with" if fnmatch.filter(names, ENGINE) else "without"
    summary = f"{Path(path).name}: {len(names)} files, all modules of the checkout, {engine} the compiled native engine"
    print(*(problems or [summary]), sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
