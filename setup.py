"""What pyproject.toml cannot say: where the packages lie, one wheel for every Python, and how the native engine is built.

`ops/` and `proto/` stand at the top and are installed below `fluidtool` (docs/adr/0001-ops-and-proto-at-the-top.md). The mapping is
written here, so that a copy without symbolic links - a zip, a checkout on Windows - installs the same files.

The engine is loaded by ctypes and knows nothing of Python, so a wheel depends on the platform alone. It is optional: without a
compiler, or with one that fails, the package is installed without it, and numpy computes everything.
"""

import atexit
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
MAPPED = {"fluidtool.ops": "ops", "fluidtool.proto": "proto"}
NATIVE = "fluidtool.runtime.engines.native"
VERSION = runpy.run_path(str(ROOT / "fluidtool/_version.py"))["__version__"]
RECIPE = runpy.run_path(str(ROOT / NATIVE.replace(".", "/") / "build.py"))


def packages_below(name: str, folder: str) -> list[str]:
    """The package `name` in `folder` and those inside it; what is mapped from elsewhere is left out."""
    found = [name]
    for path in sorted((ROOT / folder).iterdir()):
        inner = f"{name}.{path.name}"
        if inner not in MAPPED and (path / "__init__.py").is_file():
            found += packages_below(inner, f"{folder}/{path.name}")
    return found


def packages() -> list[str]:
    """Every package, by the name that it is imported by."""
    roots = {"fluidtool": "fluidtool", **MAPPED}
    return [package for name, folder in roots.items() for package in packages_below(name, folder)]


def home() -> str:
    """The address of the public repository, as docs/releasing.md has it; '' as long as there is none."""
    found = re.search(
        r"^Public home: <(https://[^>]+)>$", (ROOT / "docs/releasing.md").read_text("utf-8"), re.MULTILINE
    )
    return found.group(1).rstrip("/") if found else ""


def readme(address: str) -> str:
    """README.md for a package index, where a relative link leads nowhere: absolute, or its text alone, or no picture."""
    link = r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)"
    made = rf"[\1]({address}/blob/v{VERSION}/\2)" if address else r"\1"
    picture = r"!\[([^\]]*)\]\((?!https?://)([^)]+)\)"
    shown = rf"![\1]({address}/raw/v{VERSION}/\2)" if address else ""
    return re.sub(picture, shown, re.sub(link, made, (ROOT / "README.md").read_text("utf-8")))


def build_options() -> dict[str, dict[str, str]]:
    """Where setuptools writes: beside the source tree, which may be read-only or hold what an older build left."""
    folder = tempfile.mkdtemp(prefix="fluidtool-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"build": {"build_base": folder}, "egg_info": {"egg_base": folder}}


@cache
def may_be_built() -> bool:
    """Whether the engine is tried at all."""
    if sys.platform != "win32" or RECIPE["makes_windows_code"](RECIPE["compiler"]()):
        return True
    sys.stderr.write("without the native engine: MSVC cannot compile it, and there is no gcc of MinGW-w64 for x86-64\n")
    return False


class Platform(Distribution):
    """No extension where there is no compiler for it."""

    def has_ext_modules(self) -> bool:
        return may_be_built() and super().has_ext_modules()


class Engine(build_ext):
    """A plain library, for this processor alone unless FLUIDTOOL_BUILD_INSTRUCTIONS asks for more."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', '/')}{Path(RECIPE['library_name'](RECIPE['compiler']())).suffix}"

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            RECIPE["build"](path, wanted=os.environ.get(RECIPE["CHOICE"], ""))
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(f"{error}; going on without the native engine: numpy computes everything") from error


class AnyPython(bdist_wheel):
    """A wheel for a platform, or for any."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=Platform,
    cmdclass={"bdist_wheel": AnyPython, "build_ext": Engine},
    packages=packages(),
    package_dir=MAPPED,
    version=VERSION,
    long_description=readme(home()),
    long_description_content_type="text/markdown",
    project_urls={"Source": home()} if home() else {},
    options=build_options(),
    ext_modules=[Extension(f"{NATIVE}._engine", [], optional=True)],
)
