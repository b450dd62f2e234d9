"""Split a batch over devices, and merge their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import FetchError
from fluidtool.ops.context import Device
from fluidtool.shapes import shapes_text
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows


def split_batch(value: LoDTensor, parts: int) -> list[LoDTensor]:
    """At most `parts` parts of equal length (the last may be shorter): rows, or whole sequences of the outermost level.

    Paddle 1.8.5 LoDTensor::SplitLoDTensor: 10 rows for 4 devices give 3, 3, 3 and 1; 5 rows give 2, 2 and 1.
    """
    rows = len(value.offsets[0]) - 1 if value.offsets else len(value.array)
    width = max(-(-rows // parts), 1)
    return [_piece(value, start, min(start + width, rows)) for start in range(0, rows, width)]


def _piece(value: LoDTensor, start: int, end: int) -> LoDTensor:
    offsets = []
    for level in value.offsets:
        offsets.append([offset - level[start] for offset in level[start : end + 1]])
        start, end = level[start], level[end]
    return LoDTensor(value.array[start:end], offsets)


def merge_results(name: str, values: Sequence[Any]) -> Any:
    """Merge the values of all devices: arrays and LoDs are concatenated along axis 0, tensor arrays item by item."""
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, LoDTensorArray) for value in values) and len({len(value) for value in values}) == 1:
        return LoDTensorArray(merge_results(name, items) for items in zip(*values, strict=True))
    if not all(isinstance(value, LoDTensor) for value in values):
        raise FetchError(
            f"cannot merge {name} of {len(values)} devices: each holds a {type(values[0]).__name__}; "
            "run with return_merged=False"
        )
    tensors = [value for value in values if value.is_initialized()]
    if not tensors:
        return values[0]
    if len({(value.numpy().shape[1:], value.numpy().dtype, len(value.offsets)) for value in tensors}) > 1:
        found = shapes_text(value.shape() for value in tensors)
        raise FetchError(f"cannot merge {name} of {len(values)} devices: found {found}; run with return_merged=False")
    return LoDTensor(np.concatenate([value.numpy() for value in tensors]), merge_offsets(tensors))


def merge_offsets(tensors: Sequence[LoDTensor]) -> list[list[int]]:
    """The LoD of tensors concatenated along axis 0."""
    merged = []
    for levels in zip(*(tensor.offsets for tensor in tensors), strict=True):
        level = [0]
        for offsets in levels:
            end = level[-1]
            level.extend(end + offset for offset in offsets[1:])
        merged.append(level)
    return merged


def sum_over_devices(values: Sequence[Any], device: Device) -> Any:
    """The sum of a gradient over the devices, on `device`: arrays added in order, SelectedRows with their rows concatenated."""
    if isinstance(values[0], SelectedRows):
        rows = [device.array(value.value) for value in values]
        with device.active():
            joined = device.xp.concatenate(rows)
        return SelectedRows(np.concatenate([value.row_ids for value in values]), values[0].table_height, joined)
    total = device.array(values[0].array)
    for value in values[1:]:
        part = device.array(value.array)
        with device.active():
            total = total + part
    return LoDTensor(total, values[0].offsets)
