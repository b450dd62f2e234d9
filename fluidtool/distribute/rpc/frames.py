"""Frames: messages on a stream of bytes that gRPC carries in chunks of 1 MiB at most.

A frame is a header (number of the call, step, length, code, padding), padding so that the tensor in the message starts at a
multiple of 16, the message, and padding up to a multiple of 16. Small frames travel together in one chunk; one that is
longer than the rest of its chunk goes on in the next. The padding lets arrays look into what was received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct

import numpy as np

from fluidtool.distribute.rpc.handler import Refused
from fluidtool.distribute.rpc.options import CHUNK
from fluidtool.distribute.rpc.wire import Buffer
from fluidtool.records import dataclass

HEADER = Struct("<QqQII")
ALIGNMENT = 16
NOTHING = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class Frame:
    """code: the method (to the server) or the status (from it). content: an encoded message, or the text of an error."""

    number: int
    step: int
    code: int
    content: Buffer = b""


def frame_parts(number: int, step: int, code: int, parts: list[Buffer]) -> list[Buffer]:
    """A frame as buffers to send one after the other; the tensor in it is the second of `parts`, if there are two."""
    length = sum(map(len, parts))
    padding = -len(parts[0]) % ALIGNMENT if len(parts) > 1 else 0
    end = -(padding + length) % ALIGNMENT
    return [HEADER.pack(number, step, length, code, padding), NOTHING[:padding], *parts, NOTHING[:end]]


def chunks(parts: Iterable[Buffer], size: int = CHUNK) -> Iterator[bytes]:
    """The bytes of all parts in chunks of `size`, the last one shorter; each byte is copied once."""
    chunk: list[Buffer] = []
    room = size
    for part in parts:
        if len(part) < room:
            chunk.append(part)
            room -= len(part)
            continue
        view, at = memoryview(part), 0
        while len(view) - at >= room:
            chunk.append(view[at : at + room])
            yield b"".join(chunk)
            at += room
            chunk, room = [], size
        if at < len(view):
            chunk.append(view[at:])
            room -= len(view) - at
    if chunk:
        yield b"".join(chunk)


class FrameReader:
    """Puts chunks together again. Frames that lie within one chunk are views of it; longer ones are copied once."""

    def __init__(self, longest: int, make_room: Callable[[int], None] = lambda size: None) -> None:
        """make_room: called with the size of a frame that needs more memory than a chunk, before it takes it."""
        self.longest, self._make_room = longest, make_room
        self._header = b""
        self._body: memoryview | None = None
        self._filled = 0

    def frames(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that end in this chunk; raises Refused for what is no frame, or longer than allowed."""
        view, at = memoryview(chunk), 0
        while at < len(view):
            if self._body is None:
                header = bytes(view[at : at + HEADER.size - len(self._header)])
                at += len(header)
                self._header += header
                if len(self._header) < HEADER.size:
                    return
                size = self._size()
                if len(view) - at >= size:
                    yield self._frame(view[at : at + size])
                    at += size
                else:
                    if size > CHUNK:
                        self._make_room(size)
                    self._body, self._filled = np.empty(size, np.uint8).data, 0
                continue
            count = min(len(view) - at, len(self._body) - self._filled)
            self._body[self._filled : self._filled + count] = view[at : at + count]
            self._filled += count
            at += count
            if self._filled == len(self._body):
                body, self._body = self._body, None
                yield self._frame(body)

    def _size(self) -> int:
        _, _, length, _, padding = HEADER.unpack(self._header)
        if length > self.longest or padding >= ALIGNMENT:
            raise Refused(f"received a frame of {length} bytes, but at most {self.longest} are allowed")
        return int(padding + length + -(padding + length) % ALIGNMENT)

    def _frame(self, body: memoryview) -> Frame:
        number, step, length, code, padding = HEADER.unpack(self._header)
        self._header = b""
        return Frame(number, step, code, body[padding : padding + length].toreadonly())
