"""Pickled states: fluid.save, paddle.save, and whatever else calls itself a pickle."""

from __future__ import annotations

import contextlib
import pickle
import pickletools
import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np

from fluidtool.io import pickles
from tests.fuzz import _bytes
from tests.fuzz.campaign import Budget, Finding

GLOBALS = (
    "numpy dtype", "numpy ndarray", "numpy.core.multiarray _reconstruct", "numpy.core.multiarray scalar", "os system",
    "numpy._core.numeric _frombuffer", "_codecs encode", "collections OrderedDict", "builtins bytearray", "builtins eval",
    "builtins set", "builtins frozenset", "builtins complex", "builtins tuple", "builtins bytes",
)  # fmt: skip


def seeds() -> Sequence[bytes]:
    """Every protocol and kind of value, small."""
    state = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.asfortranarray(np.ones((2, 2), ">f8")),
        "names": OrderedDict(a="x", b=[1, 2.5, None, True, 2**70, b"bytes", {3}, frozenset([4]), (1, (2,)), 1 + 2j]),
        "n": np.int64(3),
        "e": bytearray(b"e"),
    }
    return [pickle.dumps(value, protocol) for protocol in range(6) for value in (state, {"w": state["w"]})]


def check(data: bytes) -> None:
    """A state is data that can be looked at."""
    state = pickles.load_state(data, "file")
    for value in state.values():
        if isinstance(value, np.ndarray):
            assert value.flags.writeable and not value.dtype.hasobject and value.nbytes <= len(data)
            value.tobytes()
    repr(state)


def change_operations(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Operations are left out, repeated, exchanged or put in; what they say of types is what numpy and Python know."""
    parts = _operations(data)
    for _ in range(chance.randint(1, 3)):
        at, kind = chance.randint(0, len(parts)), chance.randrange(5)
        if kind == 0 and parts:
            del parts[min(at, len(parts) - 1)]
        elif kind == 1 and parts:
            parts.insert(at, chance.choice(parts))
        elif kind == 2:
            parts.insert(at, chance.choice(pickletools.opcodes).code.encode("latin1"))
        elif kind == 3:
            parts.insert(at, chance.choice(_operations(chance.choice(others)) or [b"N"]))
        else:
            parts.insert(at, b"c" + chance.choice(GLOBALS).replace(" ", "\n").encode() + b"\n")
    return b"".join(parts)


def _operations(data: bytes) -> list[bytes]:
    """The bytes of each operation, and the rest."""
    starts: list[int] = []
    with contextlib.suppress(Exception):  # of bytes that are no pickle any more, what comes before the fault is known
        for _, _, at in pickletools.genops(data):
            starts.append(at or 0)
    starts = starts or [0]
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]


TARGET = _bytes.Bytes(seeds, check, (change_operations,))


def search(budget: Budget) -> Iterator[Finding]:
    """Look for pickles that are not refused as they should be."""
    return _bytes.search(budget, TARGET, "pickle_bytes")
