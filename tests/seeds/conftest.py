"""Every test of the documented API starts with fresh default programs, a fresh scope and names from 0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fluidtool.fluid as fluid


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield
