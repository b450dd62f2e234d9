"""Making LoDTensors from what people have at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, AssertedError, AssertedLoDError
from fluidtool.tensor.lod import lengths_to_offsets, lod_fault
from fluidtool.tensor.lod_tensor import LoDTensor
from fluidtool.tensor.place import Place


def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Place | None = None) -> LoDTensor:
    """A LoDTensor from an ndarray, a LoDTensor, or a list of lists of numbers (one list per sequence, int64).

    Raises AssertedLoDError when the lengths do not fit the data, ArgumentTypeError for other data (Paddle 1.8.5 lod_tensor.py).
    """
    if isinstance(data, LoDTensor):
        return create_lod_tensor(data.numpy(), recursive_seq_lens, place)
    if isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if not recursive_seq_lens or list(recursive_seq_lens[-1]) != lengths:
            raise AssertedLoDError(
                f"data and recursive_seq_lens do not match: the sequences have lengths {lengths}, "
                f"recursive_seq_lens ends with {list(recursive_seq_lens[-1]) if recursive_seq_lens else None}"
            )
        rows = [np.asarray(item).reshape(-1) for sequence in data for item in sequence]
        data = np.stack(rows).astype("int64") if rows else np.empty((0, 1), "int64")
    if not isinstance(data, np.ndarray):
        raise ArgumentTypeError(
            f"data should be either a LoDTensor, a Numpy array or a list, but you pass type {type(data)} instead"
        )
    offsets = lengths_to_offsets(recursive_seq_lens)
    fault = lod_fault(offsets, len(data))
    if fault:
        raise AssertedLoDError(f"the provided recursive_seq_lens info is invalid: {fault}")
    tensor = LoDTensor()
    tensor.set(data, place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]], base_shape: Sequence[int], place: Place | None, low: int, high: int
) -> LoDTensor:
    """A LoDTensor of random integers from low to high inclusive (int64); rows as many as the lengths add up to."""
    if not isinstance(base_shape, (list, tuple)):
        raise AssertedError("base_shape should be a list")
    shape = [sum(recursive_seq_lens[-1]), *base_shape]
    data = np.random.randint(low, high + 1, shape).astype("int64")  # so numpy.random.seed decides, as in Paddle
    return create_lod_tensor(data, recursive_seq_lens, place)
