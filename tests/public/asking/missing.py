"""Reads dotted names from stdin, a line each, and writes those that `paddle` here does not have, up to the part it lacks.

It runs under `fluidtool exec` and under real Paddle, on Python 3.7, too.
"""

import importlib
import sys
import types


def lacking(name):
    """The name up to its first part that is not there; '' when all of it is. Only modules and classes are looked into."""
    parts = name.split(".")
    held = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        if not isinstance(held, (types.ModuleType, type)):
            return ""
        below = ".".join(parts[:number])
        try:
            held = getattr(held, part)
        except AttributeError:
            try:
                held = importlib.import_module(below)
            except (ImportError, AttributeError):
                return below
    return ""


if __name__ == "__main__":
    import paddle.fluid  # noqa: F401

    names = sys.stdin.read().split()
    print("\n".join(sorted({lacking(name) for name in names} - {""})))
