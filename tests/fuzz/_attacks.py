"""What somebody may send to a server's port: no HTTP/2, wrong HTTP/2, gRPC without a token, and nothing at all."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PROMISE, PING, AWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
METHODS = ("SendVariable", "GetVariable", "PrefetchVariable", "CheckpointNotify", "GetVariableNoBarrier")
OWN = ("/fluidtool.Parameters/Hello", "/fluidtool.Parameters/Exchange", "/fluidtool.Parameters/None", "/", "*")
Attack = Callable[[random.Random], bytes]


def frame(kind: int, flags: int, stream: int, content: bytes = b"", length: int | None = None) -> bytes:
    """A frame; `length`: what it says of its length."""
    said = len(content) if length is None else length
    return struct.pack(">I", said)[1:] + struct.pack(">BBI", kind, flags, stream & 0xFFFFFFFF) + content


def literal(name: str, value: str) -> bytes:
    """A header in HPACK's plainest form."""
    parts = [text.encode() for text in (name, value)]
    return b"\x00" + b"".join(bytes([len(part)]) + part for part in parts if len(part) < 127)


def headers(path: str, *more: tuple[str, str]) -> bytes:
    """The headers of a gRPC call."""
    usual = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"))
    return b"".join(literal(*pair) for pair in (*usual, ("content-type", "application/grpc"), *more))


def opened(*frames: bytes) -> bytes:
    """A connection that begins as it should."""
    return PREFACE + frame(SETTINGS, 0, 0) + b"".join(frames)


def _path(source: random.Random) -> str:
    return source.choice([*(f"/sendrecv.SendRecvService/{name}" for name in METHODS), *OWN])


def _call(source: random.Random, *after: bytes) -> bytes:
    token = source.choice([(), (("fluidtool-token", "x" * source.randrange(1, 60)),)])
    return opened(frame(HEADERS, END_HEADERS, 1, headers(_path(source), *token)), *after)


def noise(source: random.Random) -> bytes:
    """Bytes that mean nothing."""
    return source.randbytes(source.randrange(1, 4096))


def other_protocols(source: random.Random) -> bytes:
    """HTTP/1.1, TLS, half a preface."""
    tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + source.randbytes(512)
    http = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * source.randrange(2000) + b"\r\n"
    return source.choice([tls, http, PREFACE[: source.randrange(1, 24)]])


def wrong_frames(source: random.Random) -> bytes:
    """Frames of any kind, flags, stream and length."""
    kinds = [source.randrange(12) for _ in range(source.randrange(1, 40))]
    return opened(
        *(
            frame(
                kind,
                source.randrange(256),
                source.choice([0, 1, 2, 3, 0x7FFFFFFF, 0xFFFFFFFF]),
                source.randbytes(source.choice([0, 1, 4, 5, 8, 9, 100])),
                source.choice([None, None, None, 0, 0xFFFFFF, 16385]),
            )
            for kind in kinds
        )
    )


def wrong_headers(source: random.Random) -> bytes:
    """HPACK that cannot be read, or never ends."""
    first = frame(HEADERS, source.choice([0, END_STREAM]), 1, headers(_path(source)))
    more = [
        frame(CONTINUATION, 0, 1, source.choice([literal("a", "b" * 100) * 50, source.randbytes(64), b""]))
        for _ in range(source.randrange(1, 200))
    ]
    bad = frame(HEADERS, END_HEADERS | source.choice([0, PADDED]), 1, source.randbytes(source.randrange(200)))
    table = frame(HEADERS, END_HEADERS, 1, b"\x3f\xff\xff\xff\xff\x0f" + headers(_path(source)))
    return opened(*source.choice([[first, *more], [bad], [table]]))


def many_small_frames(source: random.Random) -> bytes:
    """Pings, settings, windows and streams that are opened and given up, hundreds of them."""
    count = source.randrange(50, 400)
    ping = [frame(PING, 0, 0, source.randbytes(8)) for _ in range(count)]
    window = [frame(WINDOW, 0, 0, struct.pack(">I", 0x7FFFFFFF)) for _ in range(3)]
    settings = [
        frame(SETTINGS, 0, 0, struct.pack(">HI", source.randrange(1, 8), source.getrandbits(32))) for _ in range(count)
    ]
    block = headers(_path(source))
    reset = [
        part
        for number in range(1, 2 * count, 2)
        for part in (
            frame(HEADERS, END_HEADERS, number, block),
            frame(RESET, 0, number, struct.pack(">I", source.randrange(14))),
        )
    ]
    return opened(*source.choice([ping, window, settings, reset]))


def bodies_without_token(source: random.Random) -> bytes:
    """A call that says it brings up to 4 GiB, and begins to."""
    said = source.choice([0, 5, 100_000, 1 << 30, (1 << 31) - 1, (1 << 32) - 1])
    message = struct.pack(">BI", source.choice([0, 0, 0, 1, 7]), said) + bytes(source.randrange(60_000))
    pieces = [
        frame(DATA, END_STREAM if source.random() < 0.1 else 0, 1, message[at : at + 16384])
        for at in range(0, len(message), 16384)
    ]
    return _call(source, *pieces)


def many_calls_without_token(source: random.Random) -> bytes:
    """A hundred calls at once, none of which is ever ended."""
    return opened(
        *(frame(HEADERS, END_HEADERS, number, headers(_path(source))) for number in range(1, 2 * 100, 2)),
    )


def silence(source: random.Random) -> bytes:
    """A connection, and no more."""
    return source.choice([b"", PREFACE, opened(), _call(source)])


ATTACKS: tuple[Attack, ...] = (
    noise,
    other_protocols,
    wrong_frames,
    wrong_headers,
    many_small_frames,
    bodies_without_token,
    many_calls_without_token,
    silence,
)


def send(port: int, content: bytes, slowly: bool) -> socket.socket | None:
    """Send what a server may stop reading at any time; the connection, if it is still there."""
    return send_on(socket.create_connection(("127.0.0.1", port), 10), content, slowly)


def send_on(link: socket.socket, content: bytes, slowly: bool) -> socket.socket | None:
    """The same on a connection that is there."""
    link.settimeout(0.5)
    with suppress(OSError):
        if slowly:
            for at in range(min(len(content), 40)):
                link.sendall(content[at : at + 1])
        else:
            link.sendall(content)
        return link
    link.close()
    return None
