"""What somebody may send to a server's sockets: without a ticket, and with one, in packets that are none."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import grpc

from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.security import TOKEN_KEY
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY, VERSION
from fluidtool.distribute.rpc.sockets.offers import GREETING, TICKET_BYTES, Offer, reached
from fluidtool.distribute.rpc.sockets.packets import ALIGNMENT, DESCRIBED, HEADER, WHOLE
from tests.fuzz._attacks import PREFACE, Attack

LISTENS = "0A"  # in /proc/net/tcp
LENGTHS = (0, 1, 15, 16, 4096, 4097, 1 << 16, 1 << 20, 8 << 20, 64 << 20, 1 << 31, 1 << 40, (1 << 64) - 1)
TRAINERS = ("0", "1", "2", "-1", "1000000000", "x")
PROC = Path("/proc")


# ---------------------------------------------------------------- where a process takes sockets
def doors(process: int) -> list[int | str]:
    """The ports of this machine at which a process listens, and the names: anybody here can read them."""
    inodes = set()
    with suppress(OSError):
        for entry in (PROC / str(process) / "fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    return [*_ports(inodes), *_names(inodes)]


def _ports(inodes: set[str]) -> list[int]:
    lines = [line.split() for line in (PROC / "net/tcp").read_text().splitlines()[1:]]
    return [int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == LISTENS and words[9] in inodes]


def _names(inodes: set[str]) -> list[str]:
    lines = [line.split() for line in (PROC / "net/unix").read_text().splitlines()[1:]]
    return [words[7] for words in lines if len(words) > 7 and words[6] in inodes and words[7].startswith("@fluidtool-")]


def reach(door: int | str) -> socket.socket:
    """A connection that has said nothing yet."""
    if isinstance(door, int):
        return socket.create_connection(("127.0.0.1", door), 10)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(10)
    link.connect("\0" + door[1:])
    return link


def let_in(port: int, token: str, source: random.Random) -> socket.socket | None:
    """A connection of somebody who has the token; None for one who is not let in."""
    metadata = ((TOKEN_KEY, token), (TRAINER_KEY, source.choice(TRAINERS)), (CALL_KEY, f"{source.getrandbits(64):x}-0"))
    own = [("grpc.use_local_subchannel_pool", 1)]
    with suppress(grpc.RpcError), grpc.insecure_channel(f"127.0.0.1:{port}", options=own) as channel:
        ask = channel.unary_unary(f"/{OWN_SERVICE}/Socket")
        offer = Offer.of(ask(VERSION, timeout=5, metadata=metadata))
        return None if offer is None else reached(offer, f"127.0.0.1:{port}", 5.0, 60.0)
    return None


# ---------------------------------------------------------------- without a ticket
def no_greeting(source: random.Random) -> bytes:
    """Noise, another protocol, nothing, half a greeting."""
    noise, http = source.randbytes(source.randrange(1, 4096)), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    return source.choice([noise, http, PREFACE, b"", GREETING[: source.randrange(1, len(GREETING))]])


def wrong_ticket(source: random.Random) -> bytes:
    """A ticket that was never given, and all that one with a ticket could say."""
    ticket = source.choice([bytes(TICKET_BYTES), source.randbytes(TICKET_BYTES)])
    behind = source.choice([b"", source.randbytes(1000), bytes(1 << 20), source.choice(WITH_A_TICKET)(source)])
    return GREETING + ticket + behind


def half_a_ticket(source: random.Random) -> bytes:
    """A ticket that never ends."""
    return GREETING + source.randbytes(source.randrange(TICKET_BYTES))


# ---------------------------------------------------------------- with a ticket
def head(source: random.Random, code: int, pattern: int, length: int) -> bytes:
    """A header; number and step are anything."""
    number = source.choice([0, 1, 2, (1 << 64) - 1, source.getrandbits(64)])
    step = source.choice([0, 1, -1, 1 << 32, -(1 << 63), (1 << 63) - 1])
    return HEADER.pack(number, step, code, pattern, length)


def filled(content: bytes) -> bytes:
    """A content as long as packets are."""
    return content + bytes(-len(content) % ALIGNMENT)


def noise_in_packets(source: random.Random) -> bytes:
    """Packets of any kind whose contents mean nothing."""
    found = []
    for _ in range(source.randrange(1, 60)):
        content = source.randbytes(source.choice([0, 1, 16, 100, 5000]))
        code, pattern = source.choice([*range(9), 1 << 31]), source.choice([0, 0, 1, 2, 99, (1 << 32) - 1])
        found.append(head(source, code, pattern, len(content)) + filled(content))
    return b"".join(found)


def lying_lengths(source: random.Random) -> bytes:
    """A packet that says that it is longer, or shorter, than it is."""
    content = bytes(source.choice([0, 1, 100, 5000, 70_000]))
    return head(source, source.choice([*Method, DESCRIBED]), source.choice([0, 0, 1]), source.choice(LENGTHS)) + content


def many_descriptions(source: random.Random) -> bytes:
    """Patterns without end, out of order, of nothing."""
    name = b"\x0a\x01" + b"w"
    count = source.choice([1, 100, 1 << 14, (1 << 14) + 10])
    places = range(1, count + 1) if source.random() < 0.7 else [source.randrange(1 << 32) for _ in range(count)]
    bodies = [bytes([source.choice([2, 3, 4, 9])]) + source.choice([b"", name, name, source.randbytes(20)])]
    return b"".join(head(source, DESCRIBED, place, len(body)) + filled(body) for place in places for body in bodies)


def wrong_values(source: random.Random) -> bytes:
    """Gradients that nobody asked for: of other shapes and types, of no numbers, of rows that are none."""
    name = source.choice([b"fc_0.w_0@GRAD.trainer_0", b"fc_0.w_0@GRAD", b"", b"\xff\xfe", b"x" * 4000])
    said = b"\x0a" + _varint(len(name)) + name
    dims = b"".join(
        b"\x20" + _varint(source.choice([0, 1, 3, (1 << 64) - 1, 1 << 40])) for _ in range(source.randrange(20))
    )
    kind = b"\x10" + _varint(source.choice([0, 1, 2, 7])) + b"\x18" + _varint(source.choice([0, 3, 5, 6, 99]))
    data = source.randbytes(source.choice([0, 1, 4, 12, 4000]))
    value = b"\x42" + _varint(source.choice([len(data), len(data), len(data) + 1, 1 << 40])) + data
    content = said + kind + dims + value
    return b"".join(head(source, method, WHOLE, len(content)) + filled(content) for method in Method)


def reads_without_end(source: random.Random) -> bytes:
    """Thousands of reads whose answers are not taken."""
    name = source.choice([b"fc_0.w_0", b"none"]) + b"@WITHOUT_BARRIER@RECV"
    content = b"\x0a" + _varint(len(name)) + name
    one = head(source, Method.GetVariableNoBarrier, WHOLE, len(content)) + filled(content)
    return one * source.choice([10, 1000, 20_000])


def half_open(source: random.Random) -> bytes:
    """Nothing, or half of something, for as long as the connection lasts."""
    return source.choice([b"", HEADER.pack(1, 0, 1, 0, 1 << 20)[: source.randrange(1, HEADER.size)], bytes(31)])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


WITH_A_TICKET: tuple[Attack, ...] = (
    noise_in_packets,
    lying_lengths,
    many_descriptions,
    wrong_values,
    reads_without_end,
    half_open,
)
WITHOUT_A_TICKET: tuple[Attack, ...] = (no_greeting, wrong_ticket, half_a_ticket)


def crowd(door: int | str, source: random.Random) -> list[socket.socket]:
    """Hundreds who come at once and say nothing."""
    found = []
    with suppress(OSError):
        for _ in range(source.choice([50, 300, 600])):
            found.append(reach(door))
    return found


Sender = Callable[[socket.socket, bytes, bool], "socket.socket | None"]


def attack_sockets(
    source: random.Random, port: int, open_doors: Sequence[int | str], token: str, send: Sender
) -> tuple[str, list[socket.socket]]:
    """One attack on a server at `port`: what it was, and what of it stays open."""
    slowly, dice = source.random() < 0.15, source.random()
    if dice < 0.5 or not open_doors:
        attack, link = source.choice(WITH_A_TICKET), let_in(port, token, source)
        if link is None:
            return "not let in", []
    elif dice < 0.97:
        attack, link = source.choice(WITHOUT_A_TICKET), reach(source.choice(open_doors))
    else:
        return "crowd", crowd(source.choice(open_doors), source)
    left = send(link, attack(source), slowly)
    return attack.__name__, [] if left is None else [left]
