"""The pytest plugin, in a pytest of its own as another project runs it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fluidtool.testing.plugin import LONGEST, file_name
from tests.cli.support import DIGITS
from tests.support.checkout import ROOT, child_environment

PLUGIN = "fluidtool.testing.plugin"
TEST = f"def test_digits(fluidtool_golden):\n    fluidtool_golden({str(DIGITS)!r}, {str(DIGITS / 'x.npy')!r})\n"


def run_pytest(folder: Path, *options: str, source: str = TEST) -> subprocess.CompletedProcess[str]:
    (folder / "test_models.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", "--rootdir", str(folder)]
    environment = child_environment(PYTEST_ADDOPTS="", PYTEST_XDIST_WORKER="")
    environment.pop("PYTEST_XDIST_WORKER")
    return subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_outputs_are_written_then_compared(tmp_path: Path) -> None:
    missing = run_pytest(tmp_path)
    assert missing.returncode == 1 and "write them: pytest --fluidtool-update" in missing.stdout
    assert not (tmp_path / "golden").exists()
    assert run_pytest(tmp_path, "--fluidtool-update").returncode == 0
    assert run_pytest(tmp_path).returncode == 0


@pytest.mark.slow
def test_changed_outputs_fail(tmp_path: Path) -> None:
    run_pytest(tmp_path, "--fluidtool-update")
    (path,) = (tmp_path / "golden").iterdir()
    assert path.name == "test_digits.npz"
    with np.load(path) as archive:
        values = dict(archive)
    np.savez(path, **{name: value + np.float32(1) for name, value in values.items()})
    failed = run_pytest(tmp_path)
    assert failed.returncode == 1 and "1 of 1 outputs of " in failed.stdout


@pytest.mark.slow
def test_two_calls_need_two_names(tmp_path: Path) -> None:
    call = TEST.splitlines()[1].strip()
    twice = TEST + f"    {call}\n"
    failed = run_pytest(tmp_path, "--fluidtool-update", source=twice)
    assert failed.returncode == 1 and "give this one a name=" in failed.stdout
    named = TEST + f"    {call[:-1]}, name='again')\n"
    assert run_pytest(tmp_path, "--fluidtool-update", source=named).returncode == 0
    assert sorted(path.name for path in (tmp_path / "golden").iterdir()) == ["test_digits-again.npz", "test_digits.npz"]


def test_file_names_are_safe_and_distinct() -> None:
    names = ["a/b", "a:b", "\x1b[2J", "..", "n" * 10_000, "n" * 10_001]
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert all("/" not in name and name.isprintable() and len(name) <= LONGEST + 9 for name in made)
    assert file_name("test_digits[1-x]") == "test_digits[1-x]"


def test_the_plugin_is_registered_by_its_own_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        f"import sys, {PLUGIN}; print([m for m in ('numpy', 'google.protobuf', 'fluidtool.model') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert done.stdout == "[]\n"
