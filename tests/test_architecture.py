"""docs/architecture.svg is what its script draws, and the files that it names are there."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.support.checkout import ROOT

SCRIPT = ROOT / "docs" / "draw_architecture.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the documents are not part of this copy (docs/)")


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_architecture", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_current(draw: ModuleType) -> None:
    assert draw.main(["--check"]) == 0


def test_every_box_names_a_file_that_is_there(draw: ModuleType) -> None:
    assert [box.file for box in draw.BOXES.values() if not (ROOT / box.file).exists()] == []


def test_every_arrow_runs_between_neighbors(draw: ModuleType) -> None:
    for arrow in draw.ARROWS:
        start, end = draw.BOXES[arrow.start], draw.BOXES[arrow.end]
        assert start.row == end.row or (start.column == end.column and end.row == start.row + 1), arrow
