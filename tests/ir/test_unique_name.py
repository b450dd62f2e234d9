"""Unique names: the current generator, switched as in Paddle 1.8.5."""

from __future__ import annotations

import copy

from fluidtool.ir import unique_name


def test_switching_starts_from_zero_and_gives_back_a_pair_that_goes_on() -> None:
    with unique_name.guard():
        unique_name.generate("fc")
        generator, checker = unique_name.switch()
        assert unique_name.generate("fc") == "fc_0"
        unique_name.switch(generator, checker)
        assert unique_name.generate("fc") == "fc_1"


def test_the_pair_is_taken_as_it_is() -> None:
    with unique_name.guard():
        unique_name.generate("fc")
        before = unique_name.switch()
        unique_name.switch(before)
        assert unique_name.generate("fc") == "fc_1"


def test_the_current_generator_can_be_copied_and_counted_on_from() -> None:
    with unique_name.guard():
        unique_name.generate("fc")
        before = copy.deepcopy(unique_name.generator)
        assert unique_name.generate("fc") == unique_name.generate_with_ignorable_key("fc").replace("2", "1")
        with unique_name.guard(before):
            assert unique_name.generator is before
            assert unique_name.generate("fc") == "fc_1"
        assert unique_name.generate("fc") == "fc_3"
