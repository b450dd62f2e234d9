"""Variables into buffers: who may share, and how little memory the buffers need."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fluidtool.passes.buffers import Buffer, Candidate, share


def candidate(name: str, first: int, last: int, size: int = 8, kind: str = "k") -> Candidate:
    return Candidate(name, kind, size, ((first, last),))


def members(candidates: list[Candidate]) -> list[set[str]]:
    return [{c.name for c in buffer.members} for buffer in share(candidates)]


def in_use(c: Candidate) -> set[int]:
    return {position for first, last in c.occupied for position in range(first, last + 1)}


def total(candidates: list[Candidate]) -> int:
    return sum(buffer.size for buffer in share(candidates))


def test_one_after_the_other_share() -> None:
    assert members([candidate("a", 0, 1), candidate("b", 2, 3)]) == [{"a", "b"}]


def test_the_input_and_the_output_of_an_operator_do_not_share() -> None:
    assert members([candidate("a", 0, 1), candidate("b", 1, 2)]) == [{"a"}, {"b"}]


def test_other_kinds_do_not_share() -> None:
    assert len(members([candidate("a", 0, 1), candidate("b", 2, 3, kind="other")])) == 2


def test_a_variable_fits_between_two_uses_of_another_one() -> None:
    gap = Candidate("gap", "k", 8, ((0, 1), (6, 7)))
    assert members([gap, candidate("b", 2, 5)]) == [{"gap", "b"}]
    assert len(members([gap, candidate("b", 2, 6)])) == 2


def test_a_buffer_is_as_large_as_its_largest_user() -> None:
    buffers = share([candidate("a", 0, 1, 3), candidate("b", 2, 3, 9), candidate("c", 4, 5, 5)])
    assert [buffer.size for buffer in buffers] == [9]


def test_a_small_variable_does_not_take_the_large_buffer_that_a_large_one_needs() -> None:
    large, small = candidate("large", 0, 1, 100), candidate("small", 0, 1, 10)
    assert total([large, small, candidate("next_small", 2, 4, 10), candidate("next_large", 3, 4, 100)]) == 110


def test_nothing_gives_no_buffers() -> None:
    assert share([]) == []


intervals = st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(1, 9))


@given(st.lists(intervals, max_size=14))
def test_users_of_a_buffer_are_never_in_use_together(spans: list[tuple[int, int, int]]) -> None:
    candidates = [candidate(str(i), first, first + more, size) for i, (first, more, size) in enumerate(spans)]
    buffers = share(candidates)
    assert sorted(c.name for buffer in buffers for c in buffer.members) == sorted(c.name for c in candidates)
    for buffer in buffers:
        assert all(in_use(a).isdisjoint(in_use(b)) for a, b in itertools.combinations(buffer.members, 2))
        assert buffer.size == max(c.size for c in buffer.members)


@given(st.lists(intervals, max_size=14))
def test_equal_sizes_need_no_more_than_are_in_use_at_once(spans: list[tuple[int, int, int]]) -> None:
    candidates = [candidate(str(i), first, first + more) for i, (first, more, _) in enumerate(spans)]
    most = max((sum(position in in_use(c) for c in candidates) for position in range(20)), default=0)
    assert len(share(candidates)) == most


@given(st.lists(intervals, max_size=14))
def test_no_two_buffers_could_be_one(spans: list[tuple[int, int, int]]) -> None:
    buffers = share([candidate(str(i), first, first + more, size) for i, (first, more, size) in enumerate(spans)])

    def together(buffer: Buffer) -> set[int]:
        return set[int]().union(*map(in_use, buffer.members))

    assert all(together(a) & together(b) for a, b in itertools.combinations(buffers, 2))
