"""Who is late: measured by the median of the others, in each round anew."""

from __future__ import annotations

import pytest

from fluidtool.distribute.launch.progress import Note
from fluidtool.distribute.pserver.stragglers import LEAST, LEAST_AT_FIRST, StragglerPolicy, Stragglers, Watch

FOUR = (0, 1, 2, 3)


def opened(factor: float = 2.0, *, drops: bool = False) -> Stragglers:
    seen = Stragglers(StragglerPolicy(drops, factor))
    seen.open(100.0)
    return seen


def test_a_policy_says_its_kind_and_its_factor() -> None:
    assert StragglerPolicy.of("report") == StragglerPolicy(False, 2.0)
    assert StragglerPolicy.of("drop:3.5") == StragglerPolicy(True, 3.5)


def test_one_is_late_that_takes_more_than_the_factor_times_the_median_of_the_others() -> None:
    seen = opened()
    for trainer, took in ((0, 1.0), (1, 1.5), (2, 3.0)):
        seen.arrive(trainer, 100.0 + took)
    assert seen.newly_late(FOUR, 103.0) == {}
    assert seen.newly_late(FOUR, 103.1) == {3: 1.5}


def test_one_that_came_late_is_late_also_when_it_is_there() -> None:
    seen = opened()
    for trainer, took in ((0, 1.0), (1, 1.0), (2, 1.0), (3, 2.5)):
        seen.arrive(trainer, 100.0 + took)
    assert seen.newly_late(FOUR, 110.0) == {3: 1.0}


def test_nobody_is_late_while_half_of_the_others_have_not_come() -> None:
    seen = opened()
    seen.arrive(0, 100.1)
    assert seen.newly_late(FOUR, 160.0) == {}


def test_nobody_is_late_who_is_alone() -> None:
    assert opened().newly_late((2,), 900.0) == {}


def test_short_rounds_leave_room_for_what_a_busy_machine_does() -> None:
    seen = opened()
    for trainer in (0, 1, 2):
        seen.arrive(trainer, 100.001)
    assert seen.newly_late(FOUR, 100.0 + LEAST) == {}
    assert list(seen.newly_late(FOUR, 100.1 + LEAST)) == [3]


def test_one_is_counted_once_in_a_round_and_again_in_the_next() -> None:
    seen = opened()
    for number in range(2):
        seen.open(200.0 * (number + 1))
        seen.arrive(0, 200.0 * (number + 1) + 1)
        now = 200.0 * (number + 1) + 3
        assert list(seen.newly_late((0, 1), now)) == [1]
        assert seen.newly_late((0, 1), now + 1) == {}
    assert seen.late[1] == 2


def test_one_in_its_first_round_has_time_to_get_ready() -> None:
    seen = opened()
    seen.open(100.0, entering=[1])
    seen.arrive(0, 100.1)
    assert seen.newly_late((0, 1), 100.0 + LEAST_AT_FIRST) == {}
    assert list(seen.newly_late((0, 1), 100.1 + LEAST_AT_FIRST)) == [1]


def test_one_that_was_left_out_is_judged_from_when_its_step_begins() -> None:
    seen = opened(drops=True)
    seen.leave_out(1)
    seen.open(100.0, entering=[1])
    seen.begin(1, 104.0)
    seen.arrive(0, 100.1)
    assert seen.newly_late((0, 1), 104.0 + LEAST) == {}
    assert list(seen.newly_late((0, 1), 104.1 + LEAST)) == [1]


def test_one_that_is_left_out_again_and_again_stays_away_longer_until_it_is_in_time() -> None:
    seen = opened(drops=True)
    assert [seen.leave_out(1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 64, 64]
    seen.arrive(1, 100.1)
    seen.settle()
    assert seen.rounds_away(1) == 0


def test_a_first_round_does_not_make_good_for_being_late() -> None:
    seen = opened(drops=True)
    seen.leave_out(1)
    seen.open(100.0, entering=[1])
    seen.arrive(1, 100.1)
    seen.settle()
    assert seen.rounds_away(1) == 1


def test_the_seconds_of_the_last_round_stay_while_the_next_one_is_open() -> None:
    seen = opened()
    seen.arrive(0, 101.0)
    seen.open(102.0)
    assert seen.seconds() == {0: pytest.approx(1.0)}


def test_a_watch_tells_of_each_round_in_which_a_trainer_is_late() -> None:
    now = [0.0]
    told: list[Note] = []
    watch = Watch(StragglerPolicy(), told.append, lambda: now[0])
    for number in (1, 2, 3):
        watch.open()
        watch.arrive(0)
        now[0] += 2.0
        watch.check((0, 1), number)
    assert [(note.event, note.trainer, note.round, note.times) for note in told] == [
        ("late", 1, 1, 1),
        ("late", 1, 2, 2),
        ("late", 1, 3, 3),
    ]
    assert [note.is_news for note in told] == [True, True, False]
    assert (
        told[1].text == "round 2: trainer 1 has not come after 2.0 s, the others after 0.0 s; late in 2 rounds so far"
    )
