"""These tests need the compiled library: `python -m fluidtool.runtime.engines.native.build` builds it in place."""

import pytest

from fluidtool.ir.operator import hooks
from fluidtool.runtime.engines.native.library import Library, library


@pytest.fixture
def native() -> Library:
    found = library()
    if found is None:
        pytest.skip("the native engine is not built: python -m fluidtool.runtime.engines.native.build")
    return found


@pytest.fixture(autouse=True)
def operators_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks, defaults and declarations that building a program with `fluidtool.fluid` adds."""
    monkeypatch.setattr(hooks, "prepare", None)
    monkeypatch.setattr(hooks, "infer", None)
