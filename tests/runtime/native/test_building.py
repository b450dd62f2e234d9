"""Building the library: which flags for which compiler, where the library is looked for, what setup.py does on Windows."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fluidtool.runtime.engines.native import build, library
from tests.support.checkout import ROOT

SETUP = ROOT / "setup.py"


@pytest.fixture
def mingw(tmp_path: Path) -> str:
    """A compiler that says that it is GCC of MinGW-w64."""
    return compiler_for(tmp_path, "gcc", "__MINGW64__ _WIN64 __x86_64__")[0]


def test_a_compiler_for_windows_is_told_by_what_it_defines(mingw: str, tmp_path: Path) -> None:
    assert build.makes_windows_code([mingw])
    assert not build.makes_windows_code([str(tmp_path / "no-such-compiler")])
    compiler_for(tmp_path, "gcc", "__MINGW32__ _WIN32 __i386__")  # of 32 bits: this Python could not load what it makes
    assert not build.makes_windows_code([mingw])


def test_windows_gets_a_library_that_needs_no_other_and_moves_vectors_unaligned(mingw: str) -> None:
    compiling, linking = build.flags([mingw])
    assert "-static" in linking and "-Wa,-muse-unaligned-vector-move" in compiling
    assert not {"-fPIC", "-pthread"} & {*compiling, *linking}
    compiling, linking = build.flags(["cc"])
    assert "-fPIC" in compiling and "-pthread" in linking and "-static" not in linking


@pytest.mark.parametrize(("platform", "name"), [("win32", "_engine.dll"), ("linux", "_engine.so")])
def test_the_library_is_found_by_the_kind_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, name: str
) -> None:
    for each in ("_engine.dll", "_engine.so"):
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


def test_every_source_is_a_unit_or_included_by_one() -> None:
    """A file that nothing includes would be compiled by nobody."""
    sources = {path.name: path.read_text() for path in build.SOURCES.iterdir() if path.suffix in {".c", ".h"}}
    reached = {source.name for source, _ in build.units([build.PORTABLE, *build.X86_64])}
    while more := {name for each in reached for name in re.findall(r'#include "(.+?)"', sources[each])} - reached:
        reached |= more
    assert reached == set(sources)


def compiler_for(folder: Path, name: str, macros: str, of_this_processor: str = "") -> list[str]:
    """A compiler that defines `macros`, and `of_this_processor` for the processor of this machine."""
    script = folder / name
    script.write_text(
        f"""#!/bin/sh
case "$*" in *-march=native*) more="{of_this_processor}" ;; esac
for macro in {macros} $more; do echo "#define $macro 1"; done
"""
    )
    script.chmod(0o755)
    return [str(script)]


def names(variants: list[build.Variant]) -> list[str]:
    return [variant.name for variant in variants]


@pytest.mark.parametrize(
    ("macros", "made"),
    [
        ("__linux__ __x86_64__", ["portable", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"]),
        ("__MINGW64__ _WIN64 __x86_64__", ["portable", "avx2", "avx512"]),
        ("__APPLE__ __x86_64__", ["portable", "avx2", "avx512"]),
        ("__linux__ __aarch64__", ["portable"]),
    ],
)
def test_a_compiler_makes_the_instructions_of_its_machine(tmp_path: Path, macros: str, made: list[str]) -> None:
    assert names(build.variants(compiler_for(tmp_path, "cc", macros))) == made


AVX2, AVX512 = "__AVX2__ __FMA__", "__AVX2__ __FMA__ __AVX512F__ __AVX512DQ__ __AVX512BW__"


@pytest.mark.parametrize(
    ("macros", "built"),
    [
        ("", ["portable"]),
        ("__AVX2__", ["portable"]),
        (AVX2, ["avx2"]),
        (f"{AVX2} __AVX512F__", ["avx2"]),
        (AVX512, ["avx512"]),
        (f"{AVX2} __AVXVNNI__", ["avx2", "avx2_vnni"]),
        (f"{AVX512} __AVX512VNNI__", ["avx512", "avx512_vnni"]),
        (f"{AVX512} __AVX512VNNI__ __AVXVNNI__ __AVX512BF16__", ["avx512", "avx512_vnni", "avx512_bf16"]),
        (f"{AVX512} __AVX512VNNI__ __AVX512BF16__ __AMX_INT8__", ["avx512", "avx512_vnni", "avx512_bf16"]),
        (
            f"{AVX512} __AVX512VNNI__ __AVX512VBMI__ __AVX512BF16__ __AMX_INT8__ __AMX_BF16__",
            ["avx512", "avx512_vnni", "avx512_bf16", "amx"],
        ),
    ],
)
def test_an_installation_from_source_builds_for_this_processor(tmp_path: Path, macros: str, built: list[str]) -> None:
    command = compiler_for(tmp_path, "cc", "__x86_64__", macros)
    assert names(build.chosen_variants(command, "")) == built


def test_the_kernels_that_others_build_on_come_with_them(tmp_path: Path) -> None:
    command = compiler_for(tmp_path, "cc", "__x86_64__")
    assert names(build.chosen_variants(command, "avx512_bf16")) == ["avx512", "avx512_vnni", "avx512_bf16"]
    assert names(build.chosen_variants(command, "amx")) == ["avx512", "avx512_vnni", "avx512_bf16", "amx"]
    assert names(build.chosen_variants(command, "avx2_vnni")) == ["avx2", "avx2_vnni"]
    assert names(build.chosen_variants(command, "all")) == names(build.variants(command))


def test_instructions_that_a_compiler_cannot_make_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"FLUIDTOOL_BUILD_INSTRUCTIONS: avx2: this compiler supports all, or some of portable"
    ):
        build.chosen_variants(compiler_for(tmp_path, "cc", "__aarch64__"), "portable,avx2")


def test_a_compiler_that_fails_leaves_the_library_that_was_there(tmp_path: Path) -> None:
    script = tmp_path / "failing"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *images.c*|*matrices.c*) exit 1 ;; *) exec cc -fsyntax-only "$@" ;; esac\n'
    )
    script.chmod(0o755)
    target = tmp_path / "library" / "_engine.so"
    target.parent.mkdir()
    target.write_text("the old one")
    with pytest.raises(subprocess.CalledProcessError):
        build.build(target, ("-O0",), [str(script)], "portable")
    assert [path.read_text() for path in target.parent.iterdir()] == ["the old one"]


def test_a_unit_that_fails_is_the_last_that_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, log = tmp_path / "failing", tmp_path / "log"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *-dM*) exec cc "$@" ;; *) echo unit >>{log}; sleep 0.5; exit 1 ;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(build, "processors", lambda: 1)
    with pytest.raises(subprocess.CalledProcessError):
        build.objects(tmp_path, [str(script)], "portable")
    # The next one may have begun before the failure was seen.
    assert len(log.read_text().splitlines()) <= 2 < len(build.units([build.PORTABLE]))


def test_the_environment_names_a_compiler_of_several_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "ccache gcc -m64")
    assert build.compiler() == ["ccache", "gcc", "-m64"]
