"""Rewrites in any order, on random programs: loops, branches, operators in place, shared weights, names written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.passes.catalogue import INFERENCE_PASSES, InferencePass
from fluidtool.passes.verify import verify
from tests.support.random_programs import RandomProgram, programs

SEQUENCES = st.lists(st.sampled_from(INFERENCE_PASSES), min_size=1, max_size=6)
EXACT = st.lists(st.sampled_from([known for known in INFERENCE_PASSES if known.exact]), min_size=1, max_size=6)
ROUNDING = 1e-5


def fetched_after(made: RandomProgram, sequence: Sequence[InferencePass]) -> tuple[list[Any], list[Any]]:
    """The fetched values before and after the passes; the verifier finds no new fault."""
    before, scope = made.run(), made.scope()
    faults = {(found.code, found.variable) for found in verify(made.program)}
    for known in sequence:
        known.run(made.program, scope, made.fetches)
        new = {(found.code, found.variable) for found in verify(made.program) if found.code != "FC103"}
        assert new <= faults, known.name
    return before, made.run(scope=scope)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(made=programs(), sequence=SEQUENCES)
def test_fetched_values_stay(made: RandomProgram, sequence: list[InferencePass]) -> None:
    for old, new in zip(*fetched_after(made, sequence), strict=True):
        scale = float(np.abs(old).max()) if old.size and old.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(new, old, rtol=ROUNDING, atol=ROUNDING * scale)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(made=programs(blocks=True, feed_fetch=True), sequence=SEQUENCES)
def test_fetched_values_stay_with_loops_branches_and_fetch_operators(
    made: RandomProgram, sequence: list[InferencePass]
) -> None:
    for old, new in zip(*fetched_after(made, sequence), strict=True):
        scale = float(np.abs(old).max()) if old.size and old.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(new, old, rtol=ROUNDING, atol=ROUNDING * scale)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(made=programs(blocks=True), sequence=EXACT)
def test_passes_that_promise_it_keep_every_bit(made: RandomProgram, sequence: list[InferencePass]) -> None:
    for old, new in zip(*fetched_after(made, sequence), strict=True):
        np.testing.assert_array_equal(new, old)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(made=programs(), sequence=SEQUENCES)
def test_each_pass_is_idempotent(made: RandomProgram, sequence: list[InferencePass]) -> None:
    scope = made.scope()
    for known in sequence:
        known.run(made.program, scope, made.fetches)
        assert not known.run(made.program, scope, made.fetches).changed, known.name
