"""Campaigns, however short, take minutes: they are run by `python -m pytest -m campaign`, and by .ci/run."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("campaign")
