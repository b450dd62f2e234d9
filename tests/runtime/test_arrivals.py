"""Which inputs of a region in a loop are worth a specialization."""

from __future__ import annotations

from collections import OrderedDict

from fluidtool.runtime.arrivals import EAGER, MOST_SEEN, Arrivals

ROOM = 16  # specializations that are kept here


class Kept:
    """What is compiled when, and what has to go."""

    def __init__(self) -> None:
        self.arrivals, self.kept = Arrivals(), OrderedDict[int, None]()
        self.compiled: list[int] = []

    def comes(self, *keys: int) -> list[int]:
        """What is compiled of inputs that come in this order."""
        before = len(self.compiled)
        for key in keys:
            if key in self.kept:
                self.kept.move_to_end(key)
                self.arrivals.note(key)
            elif self.arrivals.is_due(key, len(self.kept), next(iter(self.kept)) if len(self.kept) == ROOM else None):
                self.kept[key] = None
                self.compiled.append(key)
                if len(self.kept) > ROOM:
                    self.kept.popitem(last=False)
        return self.compiled[before:]


def test_the_first_are_compiled_at_once_and_others_when_they_come_again() -> None:
    found = Kept()
    assert found.comes(*range(EAGER + 2)) == list(range(EAGER))
    assert found.comes(EAGER, 100, EAGER + 1) == [EAGER, EAGER + 1]
    assert found.comes(100) == [100]


def test_more_shapes_than_are_kept_are_not_compiled_in_every_run() -> None:
    found = Kept()
    for _ in range(5):
        found.comes(*range(2 * ROOM))
    assert sorted(found.compiled) == list(range(ROOM))


def test_what_nobody_uses_any_more_makes_room() -> None:
    found = Kept()
    found.comes(*range(ROOM), *range(ROOM))
    found.comes(50, *range(1, ROOM))
    assert found.comes(50) == [50] and 0 not in found.kept


def test_what_came_once_is_forgotten_in_the_end() -> None:
    found = Kept()
    found.comes(*range(EAGER), *range(1000, 1001 + MOST_SEEN))
    assert len(found.arrivals.seen) == MOST_SEEN
    assert found.comes(1000) == [] and found.comes(1000) == [1000]
