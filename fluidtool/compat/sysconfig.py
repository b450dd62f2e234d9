"""`paddle.sysconfig`: where the headers and libraries for operators of one's own would be; fluidtool has none."""

from __future__ import annotations

from pathlib import Path

import fluidtool

__all__ = ["get_include", "get_lib"]


def get_include() -> str:
    """The folder of C++ headers, which does not exist: `load_op_library` is not offered."""
    return str(Path(fluidtool.__file__).parent / "include")


def get_lib() -> str:
    """The folder of libraries to link with, which does not exist."""
    return str(Path(fluidtool.__file__).parent / "libs")
