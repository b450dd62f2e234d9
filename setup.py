"""What pyproject.toml cannot say: one wheel for every Python, and none of the engine where no compiler understands it.

The native engine is loaded by ctypes and knows nothing of Python, so a wheel depends on the platform alone. MSVC has
neither the vector language nor the threads that it is written with: wheels for Windows are without it, and for any platform.
"""

import sys

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Platform(Distribution):
    """No extension on Windows."""

    def has_ext_modules(self) -> bool:
        return sys.platform != "win32" and super().has_ext_modules()


class AnyPython(bdist_wheel):
    """A wheel for a platform, or for any."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=Platform, cmdclass={"bdist_wheel": AnyPython})
