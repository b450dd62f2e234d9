"""Building the library: which flags for which compiler, where the library is looked for, what setup.py does on Windows."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from fluidtool.runtime.engines.native import library
from tests.support.checkout import ROOT, module_of_checkout

build = module_of_checkout("fluidtool/runtime/engines/native/build.py")
SETUP = ROOT / "setup.py"


@pytest.fixture
def mingw(tmp_path: Path) -> str:
    """A compiler that says that it is GCC of MinGW-w64."""
    script = tmp_path / "gcc"
    script.write_text(f"#!/bin/sh\necho {build.MINGW}\n")
    script.chmod(0o755)
    return str(script)


def test_a_compiler_for_windows_is_told_by_what_it_says(mingw: str, tmp_path: Path) -> None:
    assert build.makes_windows_code([mingw])
    assert not build.makes_windows_code([str(tmp_path / "no-such-compiler")])
    Path(mingw).write_text("#!/bin/sh\necho i686-w64-mingw32\n")  # of 32 bits: this Python could not load what it makes
    assert not build.makes_windows_code([mingw])


def test_windows_gets_a_library_that_needs_no_other_and_moves_vectors_unaligned(mingw: str) -> None:
    compiling, linking = build.flags([mingw])
    assert "-static" in linking and "-Wa,-muse-unaligned-vector-move" in compiling
    assert not {"-fPIC", "-pthread"} & {*compiling, *linking}
    compiling, linking = build.flags(["cc"])
    assert "-fPIC" in compiling and "-pthread" in linking and "-static" not in linking


@pytest.mark.parametrize(("platform", "name"), [("win32", "_engine.dll"), ("linux", "_engine.abi3.so")])
def test_the_library_is_found_by_the_kind_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, name: str
) -> None:
    for each in ("_engine.dll", "_engine.abi3.so"):
        (tmp_path / each).touch()
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setattr(library.sys, "platform", platform)
    monkeypatch.delenv(library.SWITCH, raising=False)
    assert library.library_path() == tmp_path / name


def classes_of_setup(monkeypatch: pytest.MonkeyPatch, platform: str, compiler: str) -> dict[str, Any]:
    """What setup.py hands to setuptools, on a system with a compiler."""
    setuptools = pytest.importorskip("setuptools")
    pytest.importorskip("setuptools.command.bdist_wheel")  # asks the system once
    pytest.importorskip("setuptools.command.build_ext")
    handed: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: handed.update(given))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("CC", compiler)
    runpy.run_path(str(SETUP))
    return handed


def extensions_of_setup(monkeypatch: pytest.MonkeyPatch, platform: str, compiler: str) -> bool:
    """Whether setup.py builds the engine."""
    from setuptools import Extension

    distribution = classes_of_setup(monkeypatch, platform, compiler)["distclass"]
    return bool(distribution({"ext_modules": [Extension("engine", [])]}).has_ext_modules())


def test_setup_builds_the_engine_on_windows_where_mingw_is(monkeypatch: pytest.MonkeyPatch, mingw: str) -> None:
    assert extensions_of_setup(monkeypatch, "win32", mingw)


def test_setup_goes_without_the_engine_on_windows_with_msvc_alone_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not extensions_of_setup(monkeypatch, "win32", "no-such-compiler")
    assert "MSVC cannot compile it" in capsys.readouterr().err


def test_setup_tries_the_engine_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extensions_of_setup(monkeypatch, "linux", "no-such-compiler")  # the extension is optional


def test_a_change_of_any_source_builds_the_library_anew() -> None:
    recipe = build.recipe()
    listed = sorted(Path(name).name for name in (*recipe["sources"], *recipe["depends"]))
    assert listed == sorted(path.name for path in (build.FOLDER / "src").iterdir() if path.suffix in {".c", ".h"})
