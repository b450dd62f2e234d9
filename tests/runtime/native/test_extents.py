"""No kernel call runs that would leave its buffers, whoever made it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.native import abi, extents
from fluidtool.runtime.engines.native.binding import bind, word
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.extents import ExtentError
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.graph.ir import Activation

WIDTH = 8
CALLS: dict[str, tuple[type[abi.Arguments[Any]], dict[str, int], dict[str, Any]]] = {
    "copy": (
        abi.Copy,
        {"source": 24, "out": 24},
        {"shape": (1, 1, 1, 1, 4, 6), "source_strides": (0, 0, 0, 0, 6, 1), "out_strides": (0, 0, 0, 0, 6, 1)},
    ),
    "layer_norm": (
        abi.LayerNorm,
        {"source": 24, "scale": 6, "bias": 6, "out": 24},
        {"rows": 4, "columns": 6, "epsilon": 0.0},
    ),
    "softmax with a mask": (
        abi.Softmax,
        {"source": 24, "mask": 6, "out": 24},
        {"rows": 4, "columns": 6, "heads": 1, "head_rows": 4, "mask_column": 1, "factor": 1.0},
    ),
    "elementwise": (
        abi.Elementwise,
        {"source": 24, "other": 6, "out": 24},
        {"shape": (1, 1, 1, 4), "columns": 6, "source_strides": (0, 0, 0, 6), "out_strides": (0, 0, 0, 6)}
        | {"source_column": 1, "other_column": 1, "operation": 0},
    ),
    "product": (
        abi.Product,
        {"source": 12, "weights": 24, "bias": 8, "out": 20},
        {"rows": 4, "depth": 3, "columns": 5, "source_row": 3, "out_row": 5, "column_parts": 1, "row_parts": 1},
    ),
    "pool": (
        abi.Pool,
        {"source": 128, "out": 32},
        {"images": 1, "rows": 2, "columns": 2, "blocks": 1, "window_h": 2, "window_w": 2, "stride_h": 2, "stride_w": 2}
        | {"pad_top": 0, "pad_left": 0, "source_height": 4, "source_width": 4, "source_image": 128, "source_row": 32}
        | {"source_block": 128, "out_image": 32, "out_row": 16, "out_block": 32, "mode": 0, "adaptive": 0},
    ),
    "gather": (
        abi.GatherRows,
        {"table": 15, "out": 12, "ids": 8},
        {"count": 4, "columns": 3, "zero_id": -1, "table_rows": 5},
    ),
    "top_k": (abi.TopK, {"source": 24, "out": 16}, {"rows": 4, "columns": 6, "k": 2}),
    "group_norm": (
        abi.GroupNorm,
        {"source": 24, "scale": 6, "bias": 6, "out": 24},
        {"rows": 2, "groups": 2, "group_channels": 3, "plane": 4, "epsilon": 0.0},
    ),
}


def call(name: str, **changed: Any) -> KernelCall:
    """A call that fits its buffers, of so many floats each, to the last; but for what is changed."""
    kernel, floats, numbers = CALLS[name]
    pointers = {pointer: (Buffer(count), 0) for pointer, count in floats.items()}
    return KernelCall(kernel(**(pointers | numbers | changed)))


def bound(kernel_call: KernelCall) -> Any:
    return bind([kernel_call], lambda buffer: 4096, WIDTH)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fits_gets_its_addresses(name: str) -> None:
    kernel, floats, _ = CALLS[name]
    (row,) = bound(call(name))
    assert row.view(np.int32)[0] == kernel.kind and all(row[word(kernel, pointer)] == 4096 for pointer in floats)


@pytest.mark.parametrize(
    ("name", "pointer"), [(name, pointer) for name, (_, floats, _) in CALLS.items() for pointer in floats]
)
def test_a_buffer_that_is_one_number_short_is_refused(name: str, pointer: str) -> None:
    kernel, floats, _ = CALLS[name]
    short = call(name, **{pointer: (Buffer(floats[pointer] - 1), 0)})
    with pytest.raises(ExtentError, match=rf"{kernel.kind.name} must not run: pointer {pointer} accesses bytes"):
        bound(short)


@pytest.mark.parametrize("name", CALLS)
def test_a_pointer_into_a_buffer_has_what_lies_behind_it(name: str) -> None:
    with pytest.raises(ExtentError, match="pointer out accesses bytes"):
        bound(call(name, out=(Buffer(CALLS[name][1]["out"]), 1)))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_a_pointer_that_it_needs_is_refused(name: str) -> None:
    first = next(iter(CALLS[name][1]))
    with pytest.raises(ExtentError, match=f"it needs pointer {first}"):
        bound(call(name, **{first: None}))


def test_an_operation_of_two_operands_needs_the_other() -> None:
    with pytest.raises(ExtentError, match="it needs pointer other"):
        bound(call("elementwise", other=None))
    bound(call("elementwise", other=None, operation=extents.ALONE))


@pytest.mark.parametrize("size", [-1, -(2**40)])
def test_a_negative_size_is_refused(size: int) -> None:
    with pytest.raises(ExtentError, match="sizes that are not negative"):
        bound(call("copy", shape=(1, 1, 1, 1, size, 6)))


def test_sizes_whose_product_would_overflow_are_refused() -> None:
    with pytest.raises(ExtentError, match="accesses bytes"):
        bound(call("softmax with a mask", rows=2**40, columns=2**40))
    with pytest.raises(ExtentError, match="accesses bytes"):
        bound(call("softmax with a mask", rows=np.int64(2**40), columns=np.int64(2**40)))


def test_an_activation_that_the_kernel_does_not_know_is_refused() -> None:
    pool = call("pool")
    pool.activation = Activation(abi.ActivationKind.RELU)
    with pytest.raises(ExtentError, match="it needs an activation that the kernel knows"):
        bound(pool)


def diagonals(**changed: Any) -> KernelCall:
    """A convolution in two groups of 4 channels of 2 pixels each, with windows of 2 pixels."""
    table = np.array([0], np.int64)
    numbers = {
        "images": 1, "rows": 1, "columns": 2, "blocks": 1, "segments": 1, "segment_length": 2 * WIDTH, "last_length": 0,
        "last_segments": 0, "source_image": 24, "source_row": 24, "source_pixel": 8, "out_image": 16, "out_row": 16,
        "out_pixel": 8, "out_block": 16, "groups": 1, "source_group": 24, "weights_group": 64, "out_group": 16,
        "last_lanes": WIDTH, "row_parts": 1, "block_parts": 1, "bias_group": 8, "column_parts": 1, "diagonals": 4,
    }  # fmt: skip
    pointers: dict[str, Any] = {"source": (Buffer(24), 0), "weights": (Buffer(64), 0), "out": (Buffer(16), 0)}
    pointers["offsets"] = Buffer(1, "constant", table), 0
    return KernelCall(abi.Convolution(**(pointers | numbers | changed)))


def test_groups_by_diagonals_have_only_their_own_weights() -> None:
    bound(diagonals())
    with pytest.raises(ExtentError, match="pointer weights accesses bytes"):
        bound(diagonals(weights=(Buffer(63), 0)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"diagonals": 3}, "groups that are part of a vector"),
        ({"diagonals": 8}, "groups that are part of a vector"),
        ({"blocks": 2}, "pixels of one block"),
        ({"segment_length": WIDTH + 1}, "pixels of one block"),
        ({"last_lanes": 5}, "whole vectors"),
    ],
)
def test_groups_that_no_diagonals_fit_are_refused(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ExtentError, match=message):
        bound(diagonals(**changed))


@pytest.mark.parametrize(
    ("offsets", "fits"), [([0, 2, 4], True), ([0, 5, 4], False), ([-1, 2, 4], False), ([0, 4], False)]
)
def test_a_table_of_offsets_is_read(offsets: list[int], fits: bool) -> None:
    table = np.array(offsets, np.int64)
    kernel_call = KernelCall(
        abi.PoolSequences(
            source=(Buffer(12), 0), out=(Buffer(6), 0), offsets=(Buffer(table.size, "constant", table), 0), sequences=2,
            columns=3, how=0, empty=0.0,
        )
    )  # fmt: skip
    if fits:
        bound(kernel_call)
    else:
        with pytest.raises(ExtentError):
            bound(kernel_call)


def test_a_constant_counts_as_it_lies() -> None:
    strided = np.zeros((4, 6), np.float32)[:, ::2]
    source, strides = (Buffer(strided.size, "constant", strided), 0), (0, 0, 0, 0, 6, 2)
    bound(call("copy", source=source, shape=(1, 1, 1, 1, 4, 3), source_strides=strides))
    with pytest.raises(ExtentError):
        bound(call("copy", source=source, shape=(1, 1, 1, 1, 4, 4), source_strides=strides))


def test_an_image_that_is_absent_is_not_regrouped() -> None:
    table = np.array([[0, 0, 1, 1, 0, *np.arange(WIDTH, dtype=np.int32).view(np.int64)]], np.int64)
    kernel_call = KernelCall(
        abi.Regroup(
            first=(Buffer(8), 0), out=(Buffer(8), 0), table=(Buffer(table.size, "constant", table), 0), images=1, rows=1,
            columns=1, blocks=1, out_image=8, out_block=8, out_row=8, source_strides=(8,) * 8, words=table.shape[1],
            out_pixel=8,
        )
    )  # fmt: skip
    with pytest.raises(ExtentError, match="it needs pointer second"):
        bound(kernel_call)


def test_the_keys_of_attention_fit_the_stack() -> None:
    assert extents.LANES == 2048  # SCORES of src/attention.c by eight rows
