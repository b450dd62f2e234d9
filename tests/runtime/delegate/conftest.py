import pytest

from fluidtool.ir.operator import hooks


@pytest.fixture(autouse=True)
def operators_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks, defaults and declarations that building a program with `fluidtool.fluid` adds."""
    monkeypatch.setattr(hooks, "prepare", None)
    monkeypatch.setattr(hooks, "infer", None)
