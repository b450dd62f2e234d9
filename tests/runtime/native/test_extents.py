"""No step runs that would leave its buffers, whoever made it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fluidtool.runtime.engines.native import extents, lowering
from fluidtool.runtime.engines.native.binding import bind
from fluidtool.runtime.engines.native.calls import Buffer, KernelCall, Kind
from fluidtool.runtime.engines.native.extents import EXTENTS, ExtentError

WIDTH = 8
STEPS = {
    "copy": (Kind.COPY, {0: 24, 3: 24}, {0: 1, 1: 1, 2: 1, 3: 1, 4: 4, 5: 6, 10: 6, 11: 1, 16: 6, 17: 1}),
    "layer_norm": (Kind.LAYER_NORM, {0: 24, 1: 6, 2: 6, 3: 24}, {0: 4, 1: 6}),
    "softmax with a mask": (Kind.SOFTMAX, {0: 24, 1: 6, 3: 24}, {0: 4, 1: 6, 2: 1, 3: 4, 7: 1}),
    "elementwise": (
        Kind.ELEMENTWISE,
        {0: 24, 1: 6, 3: 24},
        {0: 1, 1: 1, 2: 1, 3: 4, 4: 6, 8: 6, 16: 6, 17: 1, 18: 1},
    ),
    "product": (
        Kind.PRODUCT,
        {0: 12, 1: 24, 2: 8, 3: 20},
        {0: 4, 1: 3, 2: 5, 3: 3, 4: 5, 6: 1, 7: 1, 14: 1, 15: 1},
    ),
    "pool": (
        Kind.POOL,
        {0: 128, 3: 32},
        {0: 1, 1: 2, 2: 2, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 10: 4, 11: 4, 12: 128, 13: 32, 14: 128, 15: 32, 16: 16, 17: 32},
    ),
    "gather": (Kind.GATHER_ROWS, {0: 15, 3: 12, 5: 8}, {0: 4, 1: 3, 3: -1, 4: 5}),
    "top_k": (Kind.TOP_K, {0: 24, 3: 16}, {0: 4, 1: 6, 2: 2}),
    "group_norm": (Kind.GROUP_NORM, {0: 24, 1: 6, 2: 6, 3: 24}, {0: 2, 1: 2, 2: 3, 3: 4}),
}  # fmt: skip


def step(name: str) -> KernelCall:
    """A step that fits its buffers, of so many floats each, to the last."""
    kind, floats, sizes = STEPS[name]
    return KernelCall(kind, {slot: (Buffer(count), 0) for slot, count in floats.items()}, sizes)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_fits_gets_its_addresses(name: str) -> None:
    kernel_call = step(name)
    (bound,) = bind([kernel_call], lambda buffer: 4096, WIDTH)
    assert bound["kind"] == kernel_call.kind and all(bound["p"][slot] == 4096 for slot in kernel_call.pointers)


@pytest.mark.parametrize(("name", "slot"), [(name, slot) for name, (_, floats, _) in STEPS.items() for slot in floats])
def test_a_buffer_that_is_one_number_short_is_refused(name: str, slot: int) -> None:
    kernel_call = step(name)
    buffer, _ = kernel_call.pointers[slot]
    buffer.size -= 1
    with pytest.raises(ExtentError, match=rf"{kernel_call.kind.name} must not run: pointer {slot} reaches over"):
        bind([kernel_call], lambda buffer: 0, WIDTH)


@pytest.mark.parametrize("name", STEPS)
def test_a_pointer_into_a_buffer_has_what_lies_behind_it(name: str) -> None:
    kernel_call = step(name)
    kernel_call.pointers[3] = (kernel_call.pointers[3][0], 1)
    with pytest.raises(ExtentError, match="pointer 3 reaches over"):
        bind([kernel_call], lambda buffer: 0, WIDTH)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_without_a_pointer_that_it_needs_is_refused(name: str) -> None:
    kernel_call = step(name)
    del kernel_call.pointers[0]
    with pytest.raises(ExtentError, match="without pointer 0"):
        bind([kernel_call], lambda buffer: 0, WIDTH)


@pytest.mark.parametrize("size", [-1, -(2**40)])
def test_a_negative_size_is_refused(size: int) -> None:
    kernel_call = step("copy")
    kernel_call.sizes = kernel_call.sizes | {4: size}
    with pytest.raises(ExtentError, match="sizes that are not negative"):
        bind([kernel_call], lambda buffer: 0, WIDTH)


def test_sizes_whose_product_would_overflow_are_refused() -> None:
    kernel_call = step("softmax with a mask")
    kernel_call.sizes = kernel_call.sizes | {0: 2**40, 1: 2**40}
    with pytest.raises(ExtentError, match="reaches over"):
        bind([kernel_call], lambda buffer: 0, WIDTH)


@pytest.mark.parametrize(
    ("offsets", "fits"), [([0, 2, 4], True), ([0, 5, 4], False), ([-1, 2, 4], False), ([0, 4], False)]
)
def test_a_table_of_offsets_is_read(offsets: list[int], fits: bool) -> None:
    table = np.array(offsets, np.int64)
    pointers = {0: (Buffer(12), 0), 3: (Buffer(6), 0), 5: (Buffer(table.size, "constant", table), 0)}
    kernel_call = KernelCall(Kind.POOL_SEQUENCES, pointers, {0: 2, 1: 3})
    if fits:
        bind([kernel_call], lambda buffer: 0, WIDTH)
    else:
        with pytest.raises(ExtentError):
            bind([kernel_call], lambda buffer: 0, WIDTH)


def test_a_constant_counts_as_it_lies() -> None:
    strided = np.zeros((4, 6), np.float32)[:, ::2]
    kernel_call = step("copy")
    kernel_call.pointers = kernel_call.pointers | {0: (Buffer(strided.size, "constant", strided), 0)}
    kernel_call.sizes = kernel_call.sizes | {5: 3, 10: 6, 11: 2}
    bind([kernel_call], lambda buffer: 0, WIDTH)
    kernel_call.sizes = kernel_call.sizes | {5: 4}
    with pytest.raises(ExtentError):
        bind([replace(kernel_call)], lambda buffer: 0, WIDTH)


def test_every_kind_that_is_lowered_has_its_extents() -> None:
    folder = Path(lowering.__file__).parent
    used = {name for file in folder.glob("*.py") for name in re.findall(r"Kind\.([A-Z_]+)", file.read_text())}
    assert used - {kind.name for kind in EXTENTS} == set()
    assert extents.LANES == 2048  # SCORES of src/attention.c by eight rows
