"""What is installed, under which names; the wheel itself is looked into by .ci/run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fluidtool

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fluidtool"


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["ops", "proto"])
def test_package_is_a_link_to_the_folder_at_the_top(name: str) -> None:
    assert os.readlink(PACKAGE / name) == f"../{name}"


@pytest.mark.parametrize("name", ["ops", "proto"])
def test_folder_at_the_top_refuses_to_be_imported_by_its_own_name(name: str) -> None:
    done = python(f"import {name}")
    assert done.returncode == 1
    assert f"ImportError: this package is imported as fluidtool.{name}, never as {name}" in done.stderr


@pytest.mark.parametrize("name", ["ops", "proto"])
def test_package_is_imported_below_fluidtool(name: str) -> None:
    assert python(f"import fluidtool.{name}").stderr == ""


def test_every_folder_with_modules_is_a_package() -> None:
    folders = [Path(folder) for folder, _, names in os.walk(PACKAGE, followlinks=True) if any_module(names)]
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def any_module(names: list[str]) -> bool:
    return any(name.endswith(".py") for name in names)


def test_types_are_advertised() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_version_is_a_release_number() -> None:
    assert all(part.isdigit() for part in fluidtool.__version__.split("."))


def test_importing_fluidtool_is_cheap() -> None:
    done = python(
        "import sys, fluidtool; print(sorted({'numpy', 'google.protobuf', 'typer', 'rich'} & sys.modules.keys()))"
    )
    assert done.stdout.strip() == "[]"


def test_importing_the_operators_imports_none_of_them() -> None:
    done = python(
        "import sys, fluidtool.ops; print([name for name in sys.modules if name.startswith('fluidtool.ops.')])"
    )
    assert done.stdout.strip() == "[]"
