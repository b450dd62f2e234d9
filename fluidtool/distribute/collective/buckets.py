"""Gradients of all trainers summed: many small arrays travel as few large ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.errors import UsageError
from fluidtool.tensor import SelectedRows

BUCKET_SIZE, DEFAULT_MIB = "FLAGS_fuse_parameter_memory_size", 32
BUCKET_BYTES = DEFAULT_MIB << 20


def bucket_bytes(environment: Mapping[str, str], given: float = -1.0) -> int:
    """FLAGS_fuse_parameter_memory_size MiB, of the environment or else `given`; below 0: 32 MiB.

    Raises UsageError for what is no number.
    """
    text = environment.get(BUCKET_SIZE, str(given))
    try:
        size = float(text)
    except ValueError:
        raise UsageError(f"{BUCKET_SIZE} is {text!r}; expected a number of MiB") from None
    return int((size if size >= 0 else DEFAULT_MIB) * 2**20)


def buckets(arrays: Sequence[Any], limit: int) -> Iterator[list[int]]:
    """Numbers of neighbouring arrays of one data type, of at most `limit` bytes together (a larger one by itself)."""
    group: list[int] = []
    size = 0
    for index, array in enumerate(arrays):
        if group and (size + array.nbytes > limit or arrays[group[0]].dtype != array.dtype):
            yield group
            group, size = [], 0
        group.append(index)
        size += array.nbytes
    if group:
        yield group


def all_reduce_fused(communicator: Communicator, arrays: Sequence[Any], limit: int, xp: Any = np) -> list[Any]:
    """The sum of each array over all ranks; arrays travel in buckets of at most `limit` bytes, 0: each alone.

    Raises CollectiveError as the communicator does. The results of one bucket share their memory, not the arrays'.
    """
    results: list[Any] = [None] * len(arrays)
    for group in buckets(arrays, limit):
        if len(group) == 1:
            results[group[0]] = communicator.all_reduce(arrays[group[0]])
            continue
        flat = xp.concatenate([arrays[index].reshape(-1) for index in group])
        communicator.all_reduce(flat, out=flat)
        start = 0
        for index in group:
            array = arrays[index]
            results[index] = flat[start : start + array.size].reshape(array.shape)
            start += array.size
    return results


def gather_rows(communicator: Communicator, selected: SelectedRows, xp: Any = np) -> SelectedRows:
    """The rows of all ranks, one below the other in the order of the ranks; each may have any number."""
    rows = [
        np.frombuffer(found, np.int64)
        for found in communicator.exchange(np.asarray(selected.row_ids, np.int64).tobytes())
    ]
    longest = max(map(len, rows))
    value = xp.asarray(selected.value)
    padded = xp.zeros((longest, *value.shape[1:]), value.dtype)
    padded[: len(value)] = value
    gathered = communicator.all_gather(padded) if longest else padded
    parts = [gathered[rank * longest :][: len(ids)] for rank, ids in enumerate(rows)]
    return SelectedRows(np.concatenate(rows), selected.table_height, xp.concatenate(parts))
