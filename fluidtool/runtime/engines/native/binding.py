"""Kernel calls in the library's format: buffers have addresses, and their sizes have been checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_float
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native.abi import FIRST, WORDS, Arguments
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.extents import ExtentError, check
from fluidtool.runtime.engines.native.layouts import Buffer
from fluidtool.runtime.graph.ir import NONE, Activation

NO_CONSTANTS = (0.0, 0.0, 0.0)


def bind(kernel_calls: Sequence[KernelCall], address: Callable[[Buffer], int], width: int) -> NDArray[np.int64]:
    """The calls for vectors of `width` floats, one row each; `address` returns the first byte of a buffer.

    Raises ExtentError if a call would access memory outside its buffers: a bug of fluidtool.
    """
    calls = empty_calls(len(kernel_calls))
    for number, kernel_call in enumerate(kernel_calls):
        try:
            check(kernel_call, width)
        except ExtentError as error:
            name = "" if kernel_call.node is None else f" for {kernel_call.node.output.name}"
            raise ExtentError(f"the kernel call {kernel_call.kind.name}{name} must not run: {error}") from None
        arguments = kernel_call.arguments
        addresses = [0 if found is None else address(found[0]) + 4 * found[1] for found in arguments.pointers()]
        write(calls, number, arguments, addresses, kernel_call.tasks, kernel_call.activation)
    return calls


def empty_calls(count: int) -> NDArray[np.int64]:
    """Space for this many calls, one row each."""
    return np.zeros((count, WORDS), np.int64)


def write(
    calls: NDArray[np.int64], number: int, arguments: Arguments[Any], addresses: Sequence[int], tasks: int,
    activation: Activation = NONE,
) -> None:  # fmt: skip
    """Write a call to a row, as `ft_call` of src/abi.h; `addresses` of its pointers, 0 for absent ones."""
    constants = (*activation.constants, *NO_CONSTANTS)[:3]
    head = (arguments.kind, activation.kind, tasks)
    floats, rest = arguments.floats(), (*addresses, *arguments.sizes())
    try:
        arguments.layout.pack_into(calls.data, 8 * WORDS * number, *head, *constants, *rest, *floats)
    except OverflowError:  # a number above the largest float32 becomes infinite
        constants, floats = (tuple(c_float(value).value for value in group) for group in (constants, floats))
        arguments.layout.pack_into(calls.data, 8 * WORDS * number, *head, *constants, *rest, *floats)


def word(kernel: type[Arguments[Any]], name: str) -> int:
    """The offset of a kernel's argument in its row."""
    at = FIRST
    for argument, count in (*dict.fromkeys(kernel.pointer_bytes, 0).items(), *kernel.size_counts.items()):
        if argument == name:
            return at
        at += count or 1
    raise ValueError(f"{kernel.__name__} has no {name}")
