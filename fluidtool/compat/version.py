"""`paddle.version`."""

import sys

__all__ = ["full_version", "major", "minor", "mkl", "patch", "rc", "show"]

full_version = "1.8.5"
major, minor, patch = full_version.split(".")
commit = "8e1712a71057e3ca06a2927ceec51c18cb171fdc"
rc, istaged, with_mkl = "0", True, "OFF"


def show() -> None:
    """Print the version."""
    names = ("full_version", "major", "minor", "patch", "rc")
    sys.stdout.write("".join(f"{name}: {globals()[name]}\n" for name in names))


def mkl() -> str:
    """'OFF'."""
    return with_mkl
