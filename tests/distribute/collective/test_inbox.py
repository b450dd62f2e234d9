"""What a rank's server takes from others, and refuses."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.collective.inbox import IDENTIFIER_BYTES, PREFIX, Inbox
from fluidtool.distribute.collective.mailbox import Mailbox, Place
from fluidtool.distribute.rpc.handler import Call, Message, Refused
from fluidtool.errors import CollectiveError
from fluidtool.tensor import LoDTensor

CALL = Call()


def value(what: str = "0.0|exchange", ring: int = 0, job: str = "aa", content: Any = None) -> Message:
    content = LoDTensor(np.ones(2, "float32")) if content is None else content
    return Message(f"{PREFIX}|{job}|{ring}|1|{what}", content)


def opened(seconds: float = 5.0) -> tuple[Inbox, Mailbox]:
    inbox, mailbox = Inbox(seconds), Mailbox(0)
    inbox.open("aa", 0, mailbox)
    return inbox, mailbox


def test_an_identifier_is_kept_for_its_variable() -> None:
    inbox = Inbox(5)
    inbox.send(Message("nccl_id_0", b"x" * IDENTIFIER_BYTES), CALL)
    assert inbox.identifier("nccl_id_0", "here:1") == b"x" * IDENTIFIER_BYTES


def test_an_identifier_that_does_not_come_is_told() -> None:
    with pytest.raises(CollectiveError, match=r"rank 0 did not send the identifier nccl_id_0 to here:1 within 0.1 s"):
        Inbox(0.1).identifier("nccl_id_0", "here:1")


def test_a_value_goes_to_the_mailbox_of_its_ring() -> None:
    inbox, mailbox = opened()
    inbox.send(value(), CALL)
    np.testing.assert_array_equal(mailbox.take(Place(1, 0, 0), "exchange", 1), [1, 1])


def test_a_value_waits_until_its_ring_is_joined() -> None:
    inbox, mailbox = Inbox(10), Mailbox(0)
    thread = threading.Thread(target=inbox.send, args=(value(), CALL))
    thread.start()
    inbox.open("aa", 0, mailbox)
    assert mailbox.take(Place(1, 0, 0), "exchange", 10) is not None
    thread.join(10)


def test_the_word_that_a_rank_fails_reaches_its_ring() -> None:
    inbox, mailbox = opened()
    inbox.send(value("abort|the disk is full"), CALL)
    with pytest.raises(CollectiveError, match="the disk is full"):
        mailbox.take(Place(1, 0, 0), "exchange", 1)


def test_the_word_that_a_rank_leaves_reaches_its_ring() -> None:
    inbox, mailbox = opened()
    inbox.send(value("leave|"), CALL)
    with pytest.raises(CollectiveError, match="that rank has finished"):
        mailbox.take(Place(1, 0, 0), "exchange", 1)


def test_who_leaves_last_is_not_kept_waiting() -> None:
    inbox, _ = opened(60)
    inbox.shut("aa", 0)
    inbox.send(value("leave|"), CALL)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (value(job="bb"), "not in ring 0 of that job"),
        (value(ring=3), "not in ring 3 of that job"),
        (value("0.0.0|exchange"), "does not belong to a ring"),
        (value("now|exchange"), "does not belong to a ring"),
        (Message(f"{PREFIX}|aa|zero|1|0.0|x", LoDTensor(np.ones(1))), "does not belong to a ring"),
        (Message(f"{PREFIX}|aa", LoDTensor(np.ones(1))), "does not belong to a ring"),
        (value(content=b"x"), "has no array"),
        (Message("w@GRAD", LoDTensor(np.ones(1))), "takes identifiers and values of its rings, not 'w@GRAD'"),
        (Message("nccl_id_0", b"short"), "takes identifiers and values"),
    ],
)
def test_what_is_no_message_of_its_rings_is_refused(message: Message, reason: str) -> None:
    inbox, _ = opened(0.1)
    with pytest.raises(Refused, match=reason):
        inbox.send(message, CALL)


def test_a_rank_keeps_nothing_for_others() -> None:
    inbox, _ = opened()
    for call in (inbox.get, inbox.get_without_barrier, inbox.prefetch, inbox.checkpoint, inbox.notify):
        with pytest.raises(Refused, match="a rank of a collective job keeps no"):
            call(Message("w"), CALL)
