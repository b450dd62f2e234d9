"""What peers of a distributed job send: messages with variables, and frames in chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from fluidtool.distribute.rpc.frames import FrameReader, frame_parts
from fluidtool.distribute.rpc.handler import Message, RemoteError
from fluidtool.distribute.rpc.wire import decode, encode, encoded
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.fuzz import _bytes
from tests.fuzz.campaign import Budget, Finding

LONGEST_FRAME = 1 << 20


def messages() -> list[Message]:
    """One of each kind."""
    return [
        Message("w", LoDTensor(np.arange(6, dtype=np.float32).reshape(2, 3), [[0, 1, 2]]), "out", "table", 3, 1),
        Message("rows", SelectedRows([4, 0], 9, np.ones((2, 3), np.float32))),
        Message("id", b"nccl"),
        Message("empty", LoDTensor(np.zeros((0, 4), np.int64))),
        Message("nothing"),
    ]


def seeds() -> Sequence[bytes]:
    """Messages, and frames that hold them."""
    frames = b"".join(bytes(part) for n, one in enumerate(messages()) for part in frame_parts(n, n, 1, encode(one)))
    return [*map(encoded, messages()), frames]


def check(data: bytes) -> None:
    """A message that is taken can be sent on; frames are the same in one chunk and in many."""
    try:
        found = decode(data)
        sent = encoded(found)
        assert encoded(decode(sent)) == sent, "a message is another one after it was sent on"
    except RemoteError:
        pass
    whole = _frames([data])
    chunks = _frames([data[at : at + 7] for at in range(0, len(data), 7)])
    assert whole == chunks, "frames depend on the chunks that they come in"
    for frame in whole:
        with contextlib.suppress(RemoteError):
            decode(frame)


def _frames(chunks: Sequence[bytes]) -> list[bytes]:
    """The contents up to what is no frame."""
    reader, found = FrameReader(LONGEST_FRAME), []
    try:
        for chunk in chunks:
            for frame in reader.frames(chunk):
                found.append(bytes(frame.content))
    except RemoteError:
        found.append(b"refused")
    return found


TARGET = _bytes.Bytes(seeds, check, (_bytes.change_field,))


def search(budget: Budget) -> Iterator[Finding]:
    """Look for messages that are not refused as they should be."""
    return _bytes.search(budget, TARGET, "wire_bytes")
