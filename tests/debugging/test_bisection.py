"""The search for the last cut that shows a difference, and which cuts there are."""

from __future__ import annotations

import pytest

from fluidtool.debugging.bisection import find_cuts, last_that_shows, source_of
from fluidtool.ir import Program


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_the_last_position_that_shows_is_found_in_few_tries(size: int, share: float) -> None:
    last = int(share * size)
    tried: list[int] = []

    def show(position: int) -> object:
        tried.append(position)
        return position if position <= last else None

    assert last_that_shows(range(size), show) == last  # type: ignore[arg-type,comparison-overlap]
    assert len(tried) == len(set(tried)) <= 2 * size.bit_length() + 2


def test_nothing_is_found_if_nothing_shows() -> None:
    assert last_that_shows(range(9), lambda _: None) is None
    assert last_that_shows([], lambda _: None) is None


def residual() -> Program:
    """x -> a -> b -> c, and sum = a + c."""
    program = Program()
    block = program.global_block()
    for name in ("x", "a", "b", "c", "sum", "other"):
        block.create_var(name=name, shape=[-1, 2], dtype="float32")
    for source, target in (("x", "a"), ("a", "b"), ("x", "other"), ("b", "c")):
        block.append_op(type="relu", inputs={"X": [source]}, outputs={"Out": [target]})
    block.append_op(type="elementwise_add", inputs={"X": ["a"], "Y": ["c"]}, outputs={"Out": ["sum"]})
    return program


def test_operators_of_other_branches_are_not_on_the_way() -> None:
    cuts = find_cuts(source_of(residual(), ["x"]), "sum", {"x", "a", "b", "c"})
    assert cuts.live == [0, 1, 3, 4]
    assert [sorted(cuts.boundary(position)) for position in cuts.positions] == [["x"], ["a"], ["a", "b"], ["a", "c"]]


def test_a_value_that_cannot_be_fed_is_not_cut_at() -> None:
    cuts = find_cuts(source_of(residual(), ["x"]), "sum", {"x", "b", "c"})
    assert [cuts.boundary(position) for position in cuts.positions] == [["x"]]
    cuts = find_cuts(source_of(residual(), ["x"]), "sum", {"x", "a", "c"})
    assert [cuts.boundary(position) for position in cuts.positions] == [["x"], ["a"], ["a", "c"]]
