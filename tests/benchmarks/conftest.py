"""Programs before and after a pass are compared bit by bit here: by numpy, since the native engine fuses by itself."""

import pytest


@pytest.fixture(autouse=True)
def numbers_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")
