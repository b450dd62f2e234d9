"""`distutils.spawn`."""

from shutil import which as find_executable

__all__ = ["find_executable"]
