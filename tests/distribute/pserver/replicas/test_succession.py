"""Who serves: the decisions, and the register in which each term can be claimed once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fluidtool.distribute.pserver.replicas.register import Register
from fluidtool.distribute.pserver.replicas.succession import (
    Configuration,
    Copy,
    Part,
    alone,
    are_gone,
    first,
    paired,
    part_of,
    succeeded,
)
from fluidtool.errors import OutputError, UnreadableError

A, B, LATER = Copy(0, "a"), Copy(1, "b"), Copy(0, "later")


# ---------------------------------------------------------------- decisions
def test_the_first_process_claims_the_first_term() -> None:
    assert part_of(None, A) is Part.FIRST
    assert first(A) == Configuration(1, A)


def test_a_process_that_replaces_the_backup_joins() -> None:
    assert part_of(Configuration(2, B, A), LATER) is Part.JOIN


def test_a_process_that_replaces_the_primary_joins_the_backup() -> None:
    assert part_of(Configuration(2, A, B), LATER) is Part.JOIN


def test_a_process_that_replaces_a_primary_without_backup_finds_everything_lost() -> None:
    assert part_of(Configuration(3, A), LATER) is Part.LOST


def test_a_primary_goes_on_with_what_it_has() -> None:
    assert part_of(Configuration(3, A), A) is Part.LEAD


def test_only_the_backup_of_the_newest_configuration_takes_over() -> None:
    assert succeeded(Configuration(2, A, B), B) == Configuration(3, B)
    assert succeeded(Configuration(3, A), B) is None
    assert succeeded(Configuration(2, A, Copy(1, "other")), B) is None


def test_a_primary_gives_its_backup_up_in_the_next_term_and_takes_another_one_in_the_one_after() -> None:
    bare = alone(Configuration(2, A, B))
    assert bare == Configuration(3, A)
    assert paired(bare, Copy(1, "new")) == Configuration(4, A, Copy(1, "new"))


def test_both_are_gone_when_neither_process_exists() -> None:
    found = Configuration(2, A, B)
    assert are_gone(found, {LATER, Copy(1, "later")})
    assert not are_gone(found, {LATER, B})


# ---------------------------------------------------------------- the register
def test_a_register_is_empty_before_the_first_term(tmp_path: Path) -> None:
    assert Register(tmp_path / "none").newest() is None


def test_what_is_claimed_is_read_by_others(tmp_path: Path) -> None:
    for wanted in (Configuration(1, A), Configuration(2, A, B)):
        assert Register(tmp_path / "pserver_0").claim(wanted)
        assert Register(tmp_path / "pserver_0").newest() == wanted


def test_a_term_is_claimed_once(tmp_path: Path) -> None:
    register = Register(tmp_path)
    assert register.claim(Configuration(1, A))
    assert not register.claim(Configuration(1, B))
    assert register.newest() == Configuration(1, A)


def test_of_many_who_claim_a_term_at_a_time_one_has_it(tmp_path: Path) -> None:
    register, wins = Register(tmp_path), []
    start = threading.Barrier(8)

    def claim(number: int) -> None:
        start.wait()
        if register.claim(Configuration(1, Copy(number % 2, str(number)))):
            wins.append(str(number))

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = register.newest()
    assert found is not None
    assert wins == [found.primary.process]


def test_a_claim_leaves_nothing_else_behind(tmp_path: Path) -> None:
    register = Register(tmp_path)
    register.claim(Configuration(1, A))
    register.claim(Configuration(1, B))
    assert [entry.name for entry in tmp_path.iterdir()] == ["term_1"]


def test_a_register_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "term_3").write_text("{}")
    with pytest.raises(UnreadableError, match="term_3 does not say who serves"):
        Register(tmp_path).newest()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="the folder must be one that both copies of a server reach"):
        Register(tmp_path / "file" / "pserver_0").claim(Configuration(1, A))
