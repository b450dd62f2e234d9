"""Which protobuf is needed, and what is said where it is another."""

from __future__ import annotations

import sys
import tomllib
from types import SimpleNamespace

import pytest

from fluidtool.errors import EXIT_USAGE, DependencyError
from fluidtool.proto.protobuf import OLDEST, check_protobuf
from tests.support.checkout import ROOT


def found(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """Have this process find protobuf in a version, or not at all."""
    monkeypatch.setitem(sys.modules, "google.protobuf", version and SimpleNamespace(__version__=version))


@pytest.mark.parametrize("version", ["4.25.0", "4.25.9", "5.29.1", "7.36.2", "10.0.0rc1"])
def test_a_protobuf_that_is_new_enough_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    found(monkeypatch, version)
    check_protobuf()


@pytest.mark.parametrize("version", ["3.20.3", "4.21.12", "4.24.4"])
def test_an_older_one_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    found(monkeypatch, version)
    with pytest.raises(DependencyError) as caught:
        check_protobuf()
    assert str(caught.value) == (
        f"fluidtool needs protobuf 4.25 or later, found {version}; install it: python -m pip install 'protobuf>=4.25'"
    )
    assert caught.value.exit_code == EXIT_USAGE


def test_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, None)
    with pytest.raises(DependencyError, match="found none"):
        check_protobuf()


def test_the_package_asks_for_the_same_one() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"protobuf>={'.'.join(map(str, OLDEST))}" in wanted
