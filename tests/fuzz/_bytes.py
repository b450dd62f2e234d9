"""Targets that turn bytes into values: seeds, mutations of bytes and of their structure, and the watch over each case.

A case runs in a child process with little memory and time. Only `FluidError` may come out of it: any other exception, a
signal, or a case that takes longer than a moment is a finding. With the package atheris the mutations follow the coverage
(`_guided.py`); without it they start from the seeds each time.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import struct
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluidtool.errors import FluidError
from tests.fuzz import _guided
from tests.fuzz.campaign import Budget, Finding

LONGEST = 1 << 16  # bytes of a case
MOMENT = 5.0  # seconds of the processor that a case may take
PATIENCE = 60.0  # seconds by the clock: a case that waits, however busy the machine is
ROOM = 512 << 20  # bytes of memory that all cases may take together
NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    9,
    127,
    128,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**62,
    2**63,
    2**64 - 1,
)
Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


class Slow(BaseException):
    """A case that takes too long."""


@dataclass(frozen=True)
class Bytes:
    """check: reads bytes, and raises AssertionError where what it has read is wrong. mutations: besides those of any bytes."""

    seeds: Callable[[], Sequence[bytes]]
    check: Callable[[bytes], None]
    mutations: tuple[Mutation, ...] = ()


# ---------------------------------------------------------------- mutations of any bytes
def flip(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Other values for a few bytes."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8)) if out else 0):
        out[chance.randrange(len(out))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(out)


def cut(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Without the end, or without a part."""
    begin = chance.randint(0, len(data))
    return data[:begin] + (data[begin + chance.randint(1, 64) :] if chance.random() < 0.5 else b"")


def put_number(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A number that is at the edge of something, over the bytes or between them."""
    width = chance.choice((1, 2, 4, 8))
    number = (chance.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, chance.choice(("little", "big")))
    at = chance.randint(0, len(data))
    return data[:at] + number + data[at + chance.choice((0, width)) :]


def splice(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A part of another seed in the place of one."""
    other = chance.choice(seeds)
    begin, at = chance.randint(0, len(other)), chance.randint(0, len(data))
    return data[:at] + other[begin : begin + chance.randint(1, 200)] + data[at + chance.randint(0, 200) :]


ANY: tuple[Mutation, ...] = (flip, cut, put_number, splice)


def mutated(target: Bytes, chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """The bytes after one to five mutations."""
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        chosen = target.mutations if target.mutations and chance.random() < 0.7 else ANY
        data = chance.choice(chosen)(chance, data, seeds)[:LONGEST]
    return data


# ---------------------------------------------------------------- protobuf
def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    out, number = bytearray(), number % (1 << 64)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def fields(data: bytes) -> list[tuple[int, Any]] | None:
    """(key, number or bytes) of each field; None for what is no message."""
    found: list[tuple[int, Any]] = []
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            if key & 7 == 0:
                value, at = _varint(data, at)
                found.append((key, value))
                continue
            length, at = _varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            if at + length > len(data):
                return None
            found.append((key, data[at : at + length]))
            at += length
    except (IndexError, KeyError):
        return None
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def message(parts: Sequence[tuple[int, Any]]) -> bytes:
    """The bytes of fields."""
    out = bytearray()
    for key, value in parts:
        out += varint(key)
        out += varint(value) if isinstance(value, int) else (varint(len(value)) if key & 7 == 2 else b"") + value
    return bytes(out)


def change_field(chance: random.Random, data: bytes, seeds: Sequence[bytes], depth: int = 0) -> bytes:
    """One field of a message, or of one within, becomes another, twice, absent, or of another type."""
    parts = fields(data)
    if not parts:
        return flip(chance, data, seeds)
    at = chance.randrange(len(parts))
    key, value = parts[at]
    deeper = isinstance(value, bytes) and len(value) > 1 and depth < 8 and fields(value) is not None
    if deeper and chance.random() < 0.8:
        parts[at] = key, change_field(chance, value, seeds, depth + 1)
        return message(parts)
    kind = chance.randrange(6)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.insert(chance.randint(0, len(parts)), parts[at])
    elif kind == 2:
        parts[at] = chance.randint(1, 24) << 3 | key & 7, value
    elif kind == 3:
        other = chance.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif isinstance(value, int):
        parts[at] = key, chance.choice((*NUMBERS, value + 1, value - 1, chance.getrandbits(64)))
    else:
        change: Mutation = chance.choice(ANY)
        parts[at] = key, change(chance, value, seeds)[:LONGEST]
    return message(parts)


# ---------------------------------------------------------------- archives
def members(data: bytes) -> list[tuple[str, bytes]]:
    """Names and contents of a zip file; none of what is no zip file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            return [(member.filename, opened.read(member)) for member in opened.infolist()]
    except Exception:  # zipfile raises much for what was mutated
        return []


def archive(contents: Sequence[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file of these names and contents."""
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(out, "w", compression) as opened:
        for name, content in contents:
            opened.writestr(zipfile.ZipInfo(name), content, compression)
    return out.getvalue()


# ---------------------------------------------------------------- running
@dataclass
class Watch:
    """Runs cases and keeps one finding for each place in the code that raises."""

    check: Callable[[bytes], None]
    report: Callable[[str, str], None]
    seen: set[str] = field(default_factory=set)

    def run(self, data: bytes) -> None:
        """One case."""
        _set_timers(MOMENT, PATIENCE)
        try:
            self.check(data)
        except FluidError:
            pass
        except (Exception, Slow) as error:
            _set_timers(0, 0)
            place = _place(error)
            if place not in self.seen:
                self.seen.add(place)
                self.report(data.hex(), place)
        finally:
            _set_timers(0, 0)


def _set_timers(moment: float, patience: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, moment)
    signal.setitimer(signal.ITIMER_REAL, patience)


def _place(error: BaseException) -> str:
    """The exception and where it was raised: the last lines of ours, which tell one fault from another."""
    calls = [call for call in traceback.extract_tb(error.__traceback__) if call.filename != __file__]
    frames = [f"{os.path.basename(call.filename)}:{call.lineno}" for call in calls[-3:]]
    return f"{type(error).__name__}: {str(error)[:120]} at {' '.join(frames)}"


def limit() -> None:
    """Give this process a moment for each case and little memory for all."""

    def stop(number: int, frame: Any) -> None:
        raise Slow

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, stop)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def search(budget: Budget, target: Bytes, name: str) -> Iterator[Finding]:
    """Search with the target of a module until the time is up: led by coverage where atheris is installed."""
    if not _guided.available():
        yield from unguided(budget, target)
        return
    with tempfile.TemporaryDirectory() as corpus:
        yield from _guided.search(budget, name, Path(corpus))


def unguided(budget: Budget, target: Bytes) -> Iterator[Finding]:
    """Mutate the seeds until the time is up. Children do it, each until its end or its death."""
    seeds = [seed for seed in target.seeds() if len(seed) <= LONGEST]
    last = multiprocessing.RawArray("c", LONGEST + 16)  # the number of the newest case, its length, its bytes
    numbers = budget.seeds()
    ended = False
    while not ended:
        outlet, inlet = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(outlet)
            _cases(budget, numbers, target, seeds, inlet, last)
        os.close(inlet)
        with open(outlet) as lines:
            for line in lines:
                told = json.loads(line)
                budget.cases = max(budget.cases, told["cases"])
                if "fault" in told:
                    yield Finding(told["case"], told["fault"])
                ended = ended or told.get("ended", False)
        _, status = os.waitpid(child, 0)
        if not ended:
            number, length = struct.unpack_from("<QQ", last.raw)
            yield Finding(last.raw[16 : 16 + length].hex(), f"ended the process (status {status})")
            for _ in numbers:  # go on behind the case that did it
                if budget.cases >= number:
                    break
            else:
                return


def _cases(
    budget: Budget, numbers: Iterator[int], target: Bytes, seeds: Sequence[bytes], inlet: int, last: Any
) -> None:
    """The child: every case until the time is up."""
    with contextlib.suppress(BrokenPipeError), open(inlet, "w", buffering=1) as lines:
        limit()
        watch = Watch(
            target.check,
            lambda case, fault: print(json.dumps({"cases": budget.cases, "case": case, "fault": fault}), file=lines),
        )
        for number in numbers:
            chance = random.Random(number)
            data = mutated(target, chance, chance.choice(seeds), seeds)
            last[: 16 + len(data)] = struct.pack("<QQ", budget.cases, len(data)) + data
            watch.run(data)
        print(json.dumps({"cases": budget.cases, "ended": True}), file=lines)
    os._exit(0)
