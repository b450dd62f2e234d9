"""What pyproject.toml cannot say: one wheel for every Python, and how the engine is built on Windows.

The native engine is loaded by ctypes and knows nothing of Python, so a wheel depends on the platform alone. MSVC, which
setuptools would call on Windows, does not know the vector language that the engine is written in: GCC of MinGW-w64 compiles
it there. Without it a wheel for Windows is without the engine, and for any platform.
"""

import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

WINDOWS = sys.platform == "win32"
RECIPE = runpy.run_path(str(Path(__file__).parent / "fluidtool/runtime/engines/native/build.py"))


@cache
def may_be_built() -> bool:
    """Whether the engine is tried at all."""
    if not WINDOWS or RECIPE["makes_windows_code"](RECIPE["compiler"]()):
        return True
    sys.stderr.write("without the native engine: MSVC cannot compile it, and there is no gcc of MinGW-w64 for x86-64\n")
    return False


class Platform(Distribution):
    """No extension where there is no compiler for it."""

    def has_ext_modules(self) -> bool:
        return may_be_built() and super().has_ext_modules()


class Engine(build_ext):
    """On Windows a plain library, by GCC."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', '/')}.dll" if WINDOWS else super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        if not WINDOWS:
            super().build_extension(ext)
            return
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            RECIPE["build"](path)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(str(error)) from error


class AnyPython(bdist_wheel):
    """A wheel for a platform, or for any."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=Platform, cmdclass={"bdist_wheel": AnyPython, "build_ext": Engine})
