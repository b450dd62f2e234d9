"""Models to work on, and a watcher that remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.checkout import ROOT


class Notebook:
    """A watcher."""

    shows_progress = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[str] = []

    def progress(self, title: str, total: int | None = None) -> AbstractContextManager[Callable[..., Any]]:
        self.stages.append(title)
        return nullcontext(lambda *_: None)

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def watcher() -> Notebook:
    return Notebook()


@pytest.fixture
def digits() -> Path:
    """An inference model of 13 operators, with two batch norms."""
    return ROOT / "samples/digits"


@pytest.fixture
def digits_training() -> Path:
    """A folder with main.pb, startup.pb and data.npz."""
    return ROOT / "samples/digits_training"


@pytest.fixture
def images(digits: Path) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.load(digits / "x.npy")
    return found
