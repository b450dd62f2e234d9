"""The random programs that other tests of passes are given: they run, repeatably, and are in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.verify import verify
from tests.support.random_programs import pick_from, random_program

OPTIONS: list[dict[str, Any]] = [
    {},
    {"blocks": True},
    {"trains": True},
    {"trains": True, "in_place": False},
    {"blocks": True, "feed_fetch": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_a_random_program_is_in_order_and_runs_repeatably(seed: int, options: dict[str, Any]) -> None:
    case = random_program(pick_from(seed), **options)
    unread = "FC103"  # what nothing reads is there on purpose
    assert [finding for finding in verify(case.program) if finding.code != unread] == []
    first, second = case.run(), case.run(case.program.clone())
    for a, b in zip(first, second, strict=True):
        assert np.isfinite(a).all()
        assert a.tobytes() == b.tobytes()


def test_the_same_seed_gives_the_same_program() -> None:
    one, other = random_program(pick_from(4)), random_program(pick_from(4))
    assert one.program.serialize_to_string() == other.program.serialize_to_string()
    assert one.fetches == other.fetches


def test_training_changes_parameters() -> None:
    case = random_program(pick_from(1), trains=True)
    scope = case.scope()
    case.run(scope=scope)
    changed = [
        n for n, before in case.parameters.items() if not np.array_equal(before, scope.find_var(n).value.numpy())
    ]  # type: ignore[union-attr]
    assert changed


def test_blocks_appear_when_asked_for() -> None:
    types = {
        op.type for seed in range(12) for op in random_program(pick_from(seed), blocks=True).program.global_block().ops
    }
    assert {"while", "conditional_block"} <= types
