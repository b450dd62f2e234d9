"""How much an operator, or a step of the native engine, has to do: multiply-adds, and bytes read and written."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from fluidtool.ops.multiply_adds import UnknownShapeError, known_multiply_adds
from fluidtool.ops.registry import traits_of
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native.abi import Kind, Winograd
from fluidtool.runtime.engines.native.calls import KernelCall, is_narrow
from fluidtool.runtime.graph.ir import Node, operands
from fluidtool.runtime.step import BoundStep
from fluidtool.tensor import LoDTensor, SelectedRows

MOVING = frozenset(
    {
        Kind.BLOCK,
        Kind.UNBLOCK,
        Kind.HALO,
        Kind.COPY,
        Kind.PACK,
        Kind.PACK_FILTER,
        Kind.WINOGRAD_WINDOWS,
        Kind.SUBSAMPLE,
        Kind.NARROW,
        Kind.REGROUP,
    }
)


@dataclass(frozen=True, slots=True)
class Work:
    """Multiply-adds and bytes; 0 for what is not counted."""

    multiply_adds: int = 0
    bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.multiply_adds + other.multiply_adds, self.bytes + other.bytes)


NO_WORK = Work()


# ---------------------------------------------------------------- operators
def operator_work(step: BoundStep) -> Work:
    """Of an operator that has just run, by the arrays that its variables hold. Control flow has no work of its own."""
    context = step.context
    op = context.op
    if op.sub_blocks():
        return Work()
    inputs, outputs = _arrays(context.inputs), _arrays(context.outputs)
    written = [array for array in outputs if not any(_same_memory(array, other) for other in inputs)]
    moved = sum(array.nbytes for array in written)
    if traits_of(op.type).plain_lookup or op.type == "gather":
        return Work(0, 2 * moved)
    in_place = [array for array in outputs if any(array is other for other in inputs)]
    if written or in_place:
        moved += sum(array.nbytes for array in inputs) + sum(array.nbytes for array in in_place)
    return Work(_multiply_adds(step), moved)


def _multiply_adds(step: BoundStep) -> int:
    context = step.context

    def shape(slot: str, index: int = 0, rank: int = 0) -> tuple[int, ...]:
        holders = (context.outputs if slot[0] == ">" else context.inputs).get(slot.lstrip(">"), ())
        array = array_of(holders[index].value) if index < len(holders) else None
        if array is None or array.ndim < rank:
            raise UnknownShapeError
        return tuple(array.shape)

    return known_multiply_adds(context.info.multiply_adds, context.op, shape)


def _arrays(slots: dict[str, tuple[Any, ...]]) -> list[Any]:
    found: dict[int, Any] = {}
    for holders in slots.values():
        for holder in holders:
            array = None if holder is None else array_of(holder.value)
            if array is not None:
                found[id(array)] = array
    return list(found.values())


def array_of(value: Any) -> Any:
    """The array in a value, or None."""
    if isinstance(value, LoDTensor):
        return value.array
    return value.value if isinstance(value, SelectedRows) else None


def _same_memory(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b))


# ---------------------------------------------------------------- steps of the native engine
def step_works(kernel_calls: Iterable[KernelCall]) -> list[Work]:
    """Of each kernel call of a region. What a computation multiplies counts for the first of its steps that does not only move."""
    found: list[Work] = []
    counted: set[int] = set()
    works: dict[int, Work] = {}
    for kernel_call in kernel_calls:
        node = kernel_call.node
        if kernel_call.repeats is not None:
            found.append(works[id(kernel_call.repeats)])
            continue
        if node is None or _moves(kernel_call, node):
            found.append(works.setdefault(id(kernel_call), Work(0, _moved(kernel_call))))
            continue
        multiply_adds = 0 if id(node) in counted else node.multiply_adds
        arguments = kernel_call.arguments
        if isinstance(arguments, Winograd):  # a call for each strip of windows
            windows = arguments.images * arguments.window_rows * arguments.window_columns
            multiply_adds = node.multiply_adds * arguments.count // windows
        counted.add(id(node))
        halves = is_narrow(kernel_call) or kernel_call.kind is Kind.WINOGRAD_PAIRS
        spared = 2 * prod(node.attrs["weights"].shape) if halves else 0
        found.append(works.setdefault(id(kernel_call), Work(multiply_adds, node_bytes(node) - spared)))
    return found


def _moves(kernel_call: KernelCall, node: Node) -> bool:
    """Whether a kernel call only moves numbers; rows that are gathered for a computation are its first states."""
    return kernel_call.kind in MOVING or (kernel_call.kind is Kind.GATHER_ROWS and node.multiply_adds > 0)


def _moved(kernel_call: KernelCall) -> int:
    """What is read and written: the smaller of two buffers twice, as either may be a part of something larger.

    The zeros around an image are too few to count.
    """
    sizes = [buffer.size for buffer in kernel_call.buffers()]
    return 4 * 2 * min(sizes) if sizes and kernel_call.kind is not Kind.HALO else 0


def node_bytes(node: Node) -> int:
    """Every input and the weights read once, the output written once; of a table the rows that are looked up."""
    out = prod(node.output.shape)
    if node.kind == "gather":
        return 4 * 2 * out
    if node.kind == "gather_pool":
        return 4 * (out + prod(node.inputs[0].shape) * prod(node.output.shape[1:]))
    weights = node.attrs.get("weights")
    values = sum(prod(value.shape) for value in operands(node))
    return 4 * (out + values + (0 if weights is None else prod(weights.shape)))
