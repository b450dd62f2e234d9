"""Parameter files: streams of tensors and of SelectedRows, one after the other, and what a program wants of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from fluidtool.io.parameters import combined_parts, open_combined, read_value, value_parts
from fluidtool.ir import Program, Variable
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.fuzz import _bytes
from tests.fuzz.campaign import Budget, Finding

TENSORS = {
    "a": LoDTensor(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "b": LoDTensor(np.arange(5), [[0, 1, 2], [0, 2, 5]]),
    "c": LoDTensor(np.array(1.5)),
    "d": LoDTensor(np.zeros((0, 4), np.float16)),
}
ROWS = SelectedRows([4, 0], 9, np.ones((2, 3), np.float32))


def seeds() -> Sequence[bytes]:
    """One value, all in one file, and a table."""
    parts = [combined_parts(TENSORS), value_parts(ROWS), *map(value_parts, TENSORS.values())]
    return [b"".join(bytes(part) for part in some) for some in parts]


def variables() -> list[Variable]:
    """What a program declares of the tensors."""
    block = Program().global_block()
    return [
        Variable(block, name=name, shape=[-1] * len(value.shape()), dtype=value.dtype(), persistable=True)
        for name, value in TENSORS.items()
    ]


def check(data: bytes) -> None:
    """What can be read is written as the same bytes; the values of a combined file are read one by one."""
    for kind in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
        try:
            value = read_value(data, kind)
        except ValueError as error:
            assert hasattr(error, "exit_code"), error
            continue
        again = read_value(b"".join(bytes(part) for part in value_parts(value)), kind)
        assert repr(again) == repr(value)
    store = open_combined(data, variables(), "file")
    for name in store:
        assert store[name].numpy().nbytes == store.info(name).nbytes


def change_number(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Another length, version or count at a place where one may stand."""
    at = chance.choice((0, 4, 12, 16, 20, 24, 28)) if chance.random() < 0.8 else chance.randint(0, len(data))
    number = struct.pack("<Q", chance.choice(_bytes.NUMBERS))[: chance.choice((4, 8))]
    return data[:at] + number + data[at + len(number) :]


def change_description(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Another TensorDesc of a tensor without LoD, with its length."""
    length = int.from_bytes(data[16:20], "little")
    changed = _bytes.change_field(chance, data[20 : 20 + length], others)
    return data[:16] + struct.pack("<I", len(changed)) + changed + data[20 + length :]


TARGET = _bytes.Bytes(seeds, check, (change_number, change_description))


def search(budget: Budget) -> Iterator[Finding]:
    """Look for streams that are not refused as they should be."""
    return _bytes.search(budget, TARGET, "parameter_bytes")
