"""The machine that a pickle is a program of: a stack, marks in it, and a memo.

Every operation builds plain data or is refused. Three budgets bound what a small file can ask for: the memory of what is
built, the bytes of its arrays (no more than the file has), and, because values may be shared, the size of the result as it
looks to somebody who walks through it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fluidtool.errors import UnsafePickleError
from fluidtool.io.pickles.arrays import DataType, ObjectsError, Unbuilt
from fluidtool.io.pickles.constructors import Name, construct, key_of, known
from fluidtool.io.pickles.operations import MalformedError, decimal, memo_number, memo_reads, operations

NEWEST_PROTOCOL = 5
DEEPEST = 100
LEAST_MEMORY, MEMORY_PER_BYTE = 64 << 20, 32
LEAST_VALUES, VALUES_PER_BYTE = 1 << 20, 4
LONGEST_INTEGER = 64  # bytes
OBJECT = 64  # about what Python takes for a small object
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


class Machine:
    """One run through one pickle; `at` is where it stands."""

    def __init__(self, data: bytes, source: str) -> None:
        self.data, self.source, self.at = data, source, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.memory_left = LEAST_MEMORY + MEMORY_PER_BYTE * len(data)
        self.array_bytes_left = len(data)
        self._wanted: set[int] = set()
        self._memoized = 0

    def run(self) -> Any:
        """The value at STOP; raises MalformedError and UnsafePickleError."""
        self._wanted = memo_reads(self.data)
        for at, name, argument in operations(self.data):
            self.at = at
            if name == "STOP":
                break
            step = STEPS.get(name)
            if step is None:
                raise self.unsafe(_REFUSED.get(name, f"has the operation {name}, which plain data never needs"))
            step(self, name, argument)
        value = self.pop()
        if self.stack or self.marks:
            raise MalformedError("it leaves values on the stack")
        check_size(value, max(LEAST_VALUES, VALUES_PER_BYTE * len(self.data)))
        return value

    # ---------------------------------------------------------------- the stack
    def push(self, value: Any, memory: int = OBJECT) -> None:
        """Put a value on the stack that takes about so many bytes."""
        self.spend(memory)
        self.stack.append(value)

    def spend(self, memory: int) -> None:
        """Count memory; raises MalformedError when it is more than so many bytes can be worth."""
        self.memory_left -= memory
        if self.memory_left < 0:
            raise MalformedError(f"{len(self.data)} bytes request much more memory than data of that size takes")

    def pop(self) -> Any:
        """Take the uppermost value, which is above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise MalformedError("it pops a value from an empty stack")
        return self.stack.pop()

    def pop_items(self) -> list[Any]:
        """Take everything above the last mark, and the mark."""
        if not self.marks:
            raise MalformedError("it pops values up to a mark that was never set")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def top(self, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        """The uppermost value, which stays there and is of that kind."""
        value = self.pop()
        if not isinstance(value, kind):
            raise MalformedError(f"it adds to a {type(value).__name__}")
        self.stack.append(value)
        return value

    def push_array(self, value: Any) -> None:
        """Put an array on the stack, or a number of numpy's."""
        self.array_bytes_left -= value.nbytes
        if self.array_bytes_left < 0:
            raise MalformedError(f"its arrays have more bytes than the whole file ({len(self.data)})")
        self.push(value, 2 * OBJECT)

    # ---------------------------------------------------------------- the memo
    def keep(self, number: int | None = None) -> None:
        """Note the uppermost value for later, if it is asked for later."""
        number = self._memoized if number is None else number
        self._memoized += 1
        if number in self._wanted:
            value = self.pop()
            self.push(value, OBJECT)
            self.memo[number] = value

    def recall(self, number: int) -> None:
        """Put a value on the stack that was noted before."""
        if number not in self.memo:
            raise MalformedError(f"it refers to memo entry {number}, which was never stored")
        value = self.memo[number]
        if isinstance(value, Unbuilt) and value.array is not None:
            value = self.memo[number] = value.array
        self.push(value, 8)

    # ---------------------------------------------------------------- names
    def name(self, module: str, name: str) -> None:
        """Put the name of a constructor on the stack; raises UnsafePickleError for any other."""
        found = known(module, name)
        if found is None:
            raise self.unsafe(f"asks for {module}.{name}")
        self.push(found)

    def call(self) -> None:
        """REDUCE: a constructor and its arguments become a value."""
        arguments, what = self.pop(), self.pop()
        if not isinstance(what, Name) or type(arguments) is not tuple:
            raise MalformedError(f"it calls a {type(what).__name__}")
        self.spend(OBJECT + sum(16 * len(item) for item in arguments if isinstance(item, (list, str, bytes, tuple))))
        try:
            value = construct(what, arguments)
        except ObjectsError:
            raise self.objects() from None
        if isinstance(value, (np.ndarray, np.generic)) and what.name != "eval":
            self.push_array(value)
        else:
            self.stack.append(value)

    def build(self) -> None:
        """BUILD: say what an array or a data type is; nothing else has a state."""
        state, target = self.pop(), self.pop()
        if isinstance(target, DataType):
            target.build(state)
            self.stack.append(target)
        elif isinstance(target, Unbuilt) and target.array is None:
            self.push_array(target.build(state))
        else:
            raise self.unsafe(f"sets the state of a {type(target).__name__}")

    # ---------------------------------------------------------------- refusals
    def unsafe(self, what: str) -> UnsafePickleError:
        """The error of a pickle that does something that data do not."""
        return UnsafePickleError(
            f"{self.source} is a pickle that {what}; fluidtool reads only arrays, dicts, strings and numbers from "
            "pickles and executes nothing. If you trust the file, convert it with the software that wrote it (for "
            "example to .npz)"
        )

    def objects(self) -> UnsafePickleError:
        """The error of an array of anything but numbers and text."""
        return UnsafePickleError(
            f"{self.source} is a pickle with an array of Python objects; only arrays of numbers are read"
        )


# ---------------------------------------------------------------- the operations, by the names of `pickletools`
Step = Callable[[Machine, str, memoryview], None]


def _number(machine: Machine, name: str, argument: memoryview) -> None:
    text = bytes(argument)
    if name == "INT" and text in (b"00", b"01"):
        machine.push(text == b"01")
    else:
        machine.push(decimal(argument[:-1] if text.endswith(b"L") else argument))


def _integer(machine: Machine, name: str, argument: memoryview) -> None:
    if len(argument) > LONGEST_INTEGER:
        raise MalformedError(f"it has a number of {len(argument)} bytes")
    machine.push(int.from_bytes(argument, "little", signed=name not in ("BININT1", "BININT2")))


def _float(machine: Machine, name: str, argument: memoryview) -> None:
    try:
        machine.push(struct.unpack(">d", argument)[0] if name == "BINFLOAT" else float(bytes(argument)))
    except ValueError:
        raise MalformedError(f"{bytes(argument[:20])!r} is not a number") from None


def _text(machine: Machine, name: str, argument: memoryview) -> None:
    """Text of Python 3, or `unicode` of Python 2."""
    try:
        text = str(argument, "raw-unicode-escape" if name == "UNICODE" else "utf-8")
        if name == "UNICODE":
            text.encode()
    except UnicodeError:
        raise MalformedError("it has text that is not Unicode") from None
    machine.push(text, OBJECT + len(argument))


def _string(machine: Machine, name: str, argument: memoryview) -> None:
    """`str` of Python 2, which is bytes or text: one character for each byte."""
    if name != "STRING":
        machine.push(str(argument, "latin1"), OBJECT + len(argument))
        return
    text = str(argument, "latin1").strip()
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
        raise MalformedError("it has a string without its quotes")
    machine.push(_ESCAPE.sub(_unescaped, text[1:-1]), OBJECT + len(text))


def _unescaped(escape: re.Match[str]) -> str:
    """The character that the `repr` of a Python 2 string writes so."""
    what = escape[1]
    if len(what) == 3:
        return chr(int(what[1:], 16))
    if what not in _ESCAPED:
        raise MalformedError(f"it has a string with the escape \\{what}")
    return _ESCAPED[what]


def _bytes(machine: Machine, name: str, argument: memoryview) -> None:
    machine.push(bytes(argument) if name != "BYTEARRAY8" else bytearray(argument), OBJECT + len(argument))


def _list(machine: Machine, name: str, argument: memoryview) -> None:
    machine.push(machine.pop_items() if name == "LIST" else [])


def _append(machine: Machine, name: str, argument: memoryview) -> None:
    items = machine.pop_items() if name == "APPENDS" else [machine.pop()]
    machine.top(list).extend(items)


def _tuple(machine: Machine, name: str, argument: memoryview) -> None:
    if name == "TUPLE":
        machine.push(tuple(machine.pop_items()))
        return
    count = ("EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3").index(name)
    machine.push(tuple([machine.pop() for _ in range(count)][::-1]))


def _dict(machine: Machine, name: str, argument: memoryview) -> None:
    items = machine.pop_items() if name == "DICT" else []
    machine.push({}, 4 * OBJECT)
    _fill(machine, items)


def _set_items(machine: Machine, name: str, argument: memoryview) -> None:
    _fill(machine, machine.pop_items() if name == "SETITEMS" else [machine.pop(), machine.pop()][::-1])


def _fill(machine: Machine, items: list[Any]) -> None:
    """Put keys and values into the dict on the stack."""
    if len(items) % 2:
        raise MalformedError("it sets a key without a value")
    target = machine.top(dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
        target[key_of(key)] = value


def _set(machine: Machine, name: str, argument: memoryview) -> None:
    items = [key_of(item) for item in machine.pop_items()] if name == "FROZENSET" else []
    machine.push(frozenset(items) if name == "FROZENSET" else set(), 4 * OBJECT)


def _add(machine: Machine, name: str, argument: memoryview) -> None:
    items = [key_of(item) for item in machine.pop_items()]
    machine.top(set).update(items)


def _duplicate(machine: Machine, name: str, argument: memoryview) -> None:
    value = machine.pop()
    machine.stack.append(value)
    machine.push(value, 8)


def _mark(machine: Machine, name: str, argument: memoryview) -> None:
    machine.spend(OBJECT)
    machine.marks.append(len(machine.stack))


def _pop(machine: Machine, name: str, argument: memoryview) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop()


def _name(machine: Machine, name: str, argument: memoryview) -> None:
    if name == "STACK_GLOBAL":
        attribute, module = machine.pop(), machine.pop()
        if not isinstance(attribute, str) or not isinstance(module, str):
            raise MalformedError("it names something with a value that is not text")
    else:
        module, _, attribute = str(argument, "utf-8", "replace").partition("\n")
        if name == "INST":
            raise machine.unsafe(f"asks for {module}.{attribute}")
    machine.name(module, attribute)


def _protocol(machine: Machine, name: str, argument: memoryview) -> None:
    if argument[0] > NEWEST_PROTOCOL:
        raise MalformedError(f"its protocol is {argument[0]}; the newest known is {NEWEST_PROTOCOL}")


def _put(machine: Machine, name: str, argument: memoryview) -> None:
    machine.keep(memo_number(name, argument) if name != "MEMOIZE" else None)


def _steps(step: Step, names: str) -> dict[str, Step]:
    return dict.fromkeys(names.split(), step)


STEPS: dict[str, Step] = {
    **_steps(_protocol, "PROTO"),
    **_steps(lambda machine, name, argument: None, "FRAME"),
    **_steps(lambda machine, name, argument: machine.push(None, 8), "NONE"),
    **_steps(lambda machine, name, argument: machine.push(name == "NEWTRUE", 8), "NEWTRUE NEWFALSE"),
    **_steps(_number, "INT LONG"),
    **_steps(_integer, "BININT BININT1 BININT2 LONG1 LONG4"),
    **_steps(_float, "FLOAT BINFLOAT"),
    **_steps(_text, "UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8"),
    **_steps(_string, "STRING SHORT_BINSTRING BINSTRING"),
    **_steps(_bytes, "SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8"),
    **_steps(_list, "EMPTY_LIST LIST"),
    **_steps(_append, "APPEND APPENDS"),
    **_steps(_tuple, "EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE"),
    **_steps(_dict, "EMPTY_DICT DICT"),
    **_steps(_set_items, "SETITEM SETITEMS"),
    **_steps(_set, "EMPTY_SET FROZENSET"),
    **_steps(_add, "ADDITEMS"),
    **_steps(_mark, "MARK"),
    **_steps(_pop, "POP"),
    **_steps(lambda machine, name, argument: machine.pop_items().clear(), "POP_MARK"),
    **_steps(_duplicate, "DUP"),
    **_steps(lambda machine, name, argument: machine.recall(memo_number(name, argument)), "GET BINGET LONG_BINGET"),
    **_steps(_put, "PUT BINPUT LONG_BINPUT MEMOIZE"),
    **_steps(_name, "GLOBAL STACK_GLOBAL INST"),
    **_steps(lambda machine, name, argument: machine.call(), "REDUCE"),
    **_steps(lambda machine, name, argument: machine.build(), "BUILD"),
}
_REFUSED = {
    "PERSID": "has persistent ids, which lead out of the file",
    "BINPERSID": "has persistent ids, which lead out of the file",
    "OBJ": "makes objects of classes",
    "NEWOBJ": "makes objects of classes",
    "NEWOBJ_EX": "makes objects of classes",
}


# ---------------------------------------------------------------- the result
def check_size(value: Any, most: int) -> None:
    """Raise MalformedError for a value that holds itself, is nested too deeply, or is more than `most` values to a walk."""
    found: dict[int, tuple[int, int]] = {}

    def measure(value: Any, depth: int) -> tuple[int, int]:
        """How many values a walk meets, and how deep it goes."""
        if not isinstance(value, (dict, list, tuple, set, frozenset)):
            if isinstance(value, (Name, DataType, Unbuilt)):
                raise MalformedError("it ends with unfinished values")
            return 1, 0
        if id(value) in found:
            return found[id(value)]
        deepest = depth
        count = 1
        if depth <= DEEPEST:
            for item in value.values() if isinstance(value, dict) else value:
                more, below = measure(item, depth + 1)
                count, deepest = count + more, max(deepest, depth + 1 + below)
        if deepest > DEEPEST:
            raise MalformedError(f"it is nested more than {DEEPEST} deep, or contains itself")
        if count > most:
            raise MalformedError(f"its contents are shared so often that they expand to more than {most} values")
        found[id(value)] = count, deepest - depth
        return found[id(value)]

    measure(value, 0)
