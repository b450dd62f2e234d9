"""These tests append operators as they stand in files, whatever other tests of the same process have imported."""

import pytest

from fluidtool.ir.operator import hooks
from fluidtool.runtime.engines.native.library import PAIRS, library


@pytest.fixture(autouse=True)
def operators_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks, defaults and declarations that building a program with `fluidtool.fluid` adds."""
    monkeypatch.setattr(hooks, "prepare", None)
    monkeypatch.setattr(hooks, "infer", None)


@pytest.fixture
def pairs() -> None:
    """Only where blocks of halves are as wide as a vector."""
    found = library()
    assert found is not None
    if found.instructions != PAIRS:
        pytest.skip(f"this processor ({found.instructions}) has no kernels for such halves")
