"""The operations of a pickle, protocols 0 to 5: what each is called and which bytes are its argument.

Reading them builds nothing. Sizes are checked against the bytes that are left.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator

Operation = tuple[int, str, memoryview]  # where it stands, its name in `pickletools`, its argument without the size

LONGEST_NUMBER = 160  # digits

_TWO_LINES = frozenset({"GLOBAL", "INST"})
_SIZES = {  # the bytes of the size before an argument of any length; Python's size of 4 bytes may have a sign
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_FORMS = {ord(op.code): (op.name, op.arg.n if op.arg is not None else 0) for op in pickletools.opcodes}
_NOTHING = memoryview(b"")
_MEMO_READS = frozenset({"GET", "BINGET", "LONG_BINGET"})


class MalformedError(Exception):
    """What makes a pickle no pickle; the caller says of which file."""


def operations(data: bytes) -> Iterator[Operation]:
    """The operations up to STOP; raises MalformedError where the bytes end before or an operation is unknown."""
    view, at, end = memoryview(data), 0, len(data)
    while at < end:
        form = _FORMS.get(data[at])
        if form is None:
            raise MalformedError(f"byte {at} is {data[at]:#04x}, which is not an operation of a pickle")
        name, length = form
        start = at + 1
        if not length:
            yield at, name, _NOTHING
            if name == "STOP":
                return
            at = start
            continue
        if length == pickletools.UP_TO_NEWLINE:
            stop = _line_end(data, _line_end(data, start) + 1 if name in _TWO_LINES else start)
            after = stop + 1
        else:
            if length < 0:
                width = _SIZES[length]
                length = int.from_bytes(view[start : start + width], "little")
                start += width
            stop = after = start + length
        if stop > end:
            raise MalformedError(f"{name} at byte {at} takes bytes up to {stop}, but the file has {end}")
        yield at, name, view[start:stop]
        at = after
    raise MalformedError("it ends without STOP")


def _line_end(data: bytes, start: int) -> int:
    """Where the newline is that ends the line from here."""
    end = data.find(b"\n", start)
    if end < 0:
        raise MalformedError(f"the line that starts at byte {start} does not end")
    return end


def memo_reads(data: bytes) -> set[int]:
    """The numbers under which values are looked up again later: nothing else needs to be kept.

    Raises MalformedError for what `operations` refuses, anywhere in the pickle.
    """
    return {memo_number(name, argument) for _, name, argument in operations(data) if name in _MEMO_READS}


def memo_number(name: str, argument: memoryview) -> int:
    """The number that GET, PUT and their binary forms give."""
    return int.from_bytes(argument, "little") if name not in ("GET", "PUT") else decimal(argument)


def decimal(argument: memoryview) -> int:
    """A number written in digits, as many as 512 bits have."""
    text = bytes(argument[:LONGEST_NUMBER])
    try:
        if len(argument) < LONGEST_NUMBER:
            return int(text)
    except ValueError:
        pass
    raise MalformedError(f"{text[:20]!r} is not a number")
