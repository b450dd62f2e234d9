"""Check that a wheel holds every module of the checkout and installs nothing beside `fluidtool`.

Usage: python .ci/check_wheel.py WHEEL
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = (".py", ".pyi", ".proto", ".typed")


def expected_files() -> set[str]:
    """Paths, relative to the checkout, of all that a wheel must hold; follows the symbolic links."""
    return {
        Path(folder, name).relative_to(ROOT).as_posix()
        for folder, _, names in os.walk(ROOT / "fluidtool", followlinks=True)
        for name in names
        if name.endswith(SHIPPED)
    }


def findings(names: set[str]) -> list[str]:
    """What is wrong with a wheel that holds `names`; empty when nothing is."""
    missing = sorted(expected_files() - names)
    tops = {name.split("/")[0] for name in names}
    strangers = sorted(top for top in tops if top != "fluidtool" and not top.endswith(".dist-info"))
    license_files = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    return [
        *(f"missing from the wheel: {name} (does its folder have an __init__.py?)" for name in missing),
        *(f"the wheel would install a top-level '{top}'" for top in strangers),
        *([] if license_files else ["the wheel has no LICENSE"]),
    ]


def main() -> int:
    """Print the findings for the wheel that the command line names; 1 when there are any."""
    (path,) = sys.argv[1:]
    names = set(zipfile.ZipFile(path).namelist())
    problems = findings(names)
    print(*(problems or [f"{Path(path).name}: {len(names)} files, all modules of the checkout"]), sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
