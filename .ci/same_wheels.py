"""Check that wheels hold the same files. Usage: python .ci/same_wheels.py WHEEL WHEEL …"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path


def contents(path: Path) -> dict[str, int]:
    """The check sum of every file of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        return {entry.filename: entry.CRC for entry in wheel.infolist()}


def main() -> int:
    """Print how many files differ, and which; 1 when one does."""
    first, *others = (Path(name) for name in sys.argv[1:])
    expected = contents(first)
    differing = sorted(
        f"{other}: {name}"
        for other in others
        for found in [contents(other)]
        for name in expected | found
        if expected.get(name) != found.get(name)
    )
    print(f"{len(expected)} files, {len(others) + 1} wheels, {len(differing)} differing files", *differing, sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
