"""Print what an extra of pyproject.toml needs, to install it without building. Usage: python .ci/extras.py NAME"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(extra: str) -> list[str]:
    """The requirements of one extra."""
    needs: list[str] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"][extra]
    return needs


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
