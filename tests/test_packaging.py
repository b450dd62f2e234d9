"""What is installed, under which names; the wheel itself is looked into by .ci/run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fluidtool
from tests.support.checkout import ROOT, child_environment, package_folder

LINKS = ("ops", "proto")


def python(code: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Run code in the checkout, by the fluidtool that is tested."""
    environment = child_environment(**options)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", LINKS)
def test_tools_find_the_folder_at_the_top_where_it_is_imported(name: str) -> None:
    if not (ROOT / "fluidtool" / name).is_symlink():
        pytest.skip("this copy of the sources is one without symbolic links; nothing needs them")
    assert os.readlink(ROOT / "fluidtool" / name) == f"../{name}"


@pytest.mark.parametrize("name", LINKS)
def test_folder_at_the_top_refuses_to_be_imported_by_its_own_name(name: str) -> None:
    done = python(f"import {name}", PYTHONSAFEPATH="")
    assert done.returncode == 1
    assert f"ImportError: this package is imported as fluidtool.{name}, never as {name}" in done.stderr


@pytest.mark.parametrize("name", LINKS)
def test_package_is_imported_below_fluidtool(name: str) -> None:
    assert python(f"import fluidtool.{name}").stderr == ""


def test_every_folder_with_modules_is_a_package() -> None:
    folders = [folder for top in ("fluidtool", *LINKS) for folder, _, names in os.walk(ROOT / top) if any_module(names)]
    assert [folder for folder in folders if not Path(folder, "__init__.py").exists()] == []


def any_module(names: list[str]) -> bool:
    return any(name.endswith(".py") for name in names)


def test_types_are_advertised() -> None:
    assert (package_folder() / "py.typed").exists()


def test_version_is_a_release_number() -> None:
    assert all(part.isdigit() for part in fluidtool.__version__.split("."))


# ---------------------------------------------------------------- what is tested
def test_a_child_imports_the_fluidtool_that_is_tested() -> None:
    done = python("import fluidtool, tests, os; print(os.path.dirname(fluidtool.__file__))")
    assert Path(done.stdout.strip()).resolve() == package_folder(), done.stderr


def test_a_child_finds_no_sources_before_what_is_installed(tmp_path: Path) -> None:
    """As `python -m` in a checkout would, by putting the working folder first."""
    (tmp_path / "fluidtool").mkdir()
    (tmp_path / "fluidtool" / "__init__.py").write_text("raise ImportError('the working folder came first')")
    command = [sys.executable, "-m", "fluidtool", "version"]
    done = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"fluidtool {fluidtool.__version__}\n"), done.stderr


def test_a_process_of_multiprocessing_imports_the_fluidtool_that_is_tested() -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(package_folder).result() == package_folder()


def test_importing_fluidtool_is_cheap() -> None:
    done = python(
        "import sys, fluidtool; print(sorted({'numpy', 'google.protobuf', 'typer', 'rich'} & sys.modules.keys()))"
    )
    assert done.stdout.strip() == "[]"


def test_importing_fluid_imports_what_most_programs_need() -> None:
    parts = ("contrib", "incubate", "transpiler", "communicator", "trainer")
    done = python(
        "import sys; from fluidtool import fluid; ours = [n for n in sys.modules if n.startswith('fluidtool.')];"
        f"print(len(ours), [n for n in ours if n.startswith(tuple('fluidtool.fluid.' + part for part in {parts}))],"
        "'fluidtool.distribute.rpc' in ours)"
    )
    count, rest = done.stdout.strip().split(maxsplit=1)
    assert rest == "[] False" and int(count) <= 295


def test_names_of_fluid_that_come_late_are_there() -> None:
    done = python(
        "from fluidtool import fluid; from fluidtool.fluid import Trainer, contrib;"
        "print(set(fluid.__all__) - set(dir(fluid)), [name for name in fluid.__all__ if not hasattr(fluid, name)])"
    )
    assert done.stdout.strip() == "set() []"


def test_importing_the_operators_imports_none_of_them() -> None:
    done = python(
        "import sys, fluidtool.ops; print([name for name in sys.modules if name.startswith('fluidtool.ops.')])"
    )
    assert done.stdout.strip() == "[]"
