"""What is wrong with the values of a model's parameters: what a training that failed, or a tool that cut too much, leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fluidtool.errors import UnreadableError
from fluidtool.io.parameters import ParameterStore, persistables
from fluidtool.ir import Operator, Program
from fluidtool.ops.registry import traits_of
from fluidtool.passes.findings import Finding
from fluidtool.tensor import SelectedRows
from fluidtool.tensor.statistics import not_finite

Array = np.ndarray[Any, Any]
TRANSPOSED = ("transpose_Y", "trans_y")  # attributes by which the last two axes of a weight change places


def unused_parameters(program: Program) -> Iterator[Finding]:
    """FC309: parameters that no operator reads or writes, in programs with fetch operators, which are ready to run."""
    if not any(op.type == "fetch" for op in program.global_block().ops):
        return
    used = {
        name for block in program.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)
    }
    for variable in sorted(persistables(program), key=lambda each: each.name):
        empty = variable.has_shape and 0 in variable.shape  # an `XShape`, for instance
        if variable.name not in used and not empty:
            yield Finding("FC309", f"{variable.name} is used by no operator", variable=variable.name)


def faulty_values(program: Program, store: ParameterStore) -> Iterator[Finding]:
    """FC304 to FC308: parameters that cannot be read, have NaN or infinities, or are weights that carry no information."""
    users = _weight_users(program)
    for name in sorted(store):
        try:
            value = store[name]
        except UnreadableError as error:
            yield Finding("FC304", str(error), variable=name)
            continue
        array = (value.get_tensor() if isinstance(value, SelectedRows) else value).numpy()
        yield from _of_value(name, array, users.get(name))


def _of_value(name: str, array: Array, user: Operator | None) -> Iterator[Finding]:
    """The findings of one parameter; `user` multiplies by it, or looks its rows up."""
    nans, infinities = not_finite(array)
    if nans:
        yield Finding("FC305", f"{name} contains NaN in {nans} of {array.size} elements", variable=name)
    if infinities and not _is_mask(array):
        yield Finding("FC306", f"{name} contains infinity in {infinities} of {array.size} elements", variable=name)
    if user is not None and not nans and not infinities:
        yield from _without_information(name, array, user)


def _is_mask(array: Array) -> bool:
    """Whether what is finite is the same everywhere, as in a mask that is added: 0 or minus infinity."""
    finite = array[np.isfinite(array)]
    infinite = array[np.isinf(array)]
    return finite.size + infinite.size == array.size and _one_value(finite) and _one_value(infinite)


def _one_value(flat: Array) -> bool:
    return not flat.size or (flat[-1] == flat[0] and bool((flat == flat[0]).all()))


# ---------------------------------------------------------------- weights
def _weight_users(program: Program) -> Mapping[str, Operator]:
    """For each name that an operator takes its weight or table by, the first such operator."""
    users: dict[str, Operator] = {}
    for op in (op for block in program.blocks for op in block.ops):
        traits = traits_of(op.type)
        for slot in filter(None, (traits.weight, traits.table)):
            for name in op.inputs.get(slot, ()):
                users.setdefault(name, op)
    return users


def _without_information(name: str, array: Array, user: Operator) -> Iterator[Finding]:
    """FC307: a weight whose elements are all equal. FC308: one with output channels that are zero throughout."""
    if array.ndim < 2 or array.size < 2:
        return
    if _one_value(array.reshape(-1)):
        value = array.reshape(-1)[0]
        text = f"all {array.size} elements of {name} are {value}; operator {user.type} takes it as its weight"
        yield Finding("FC307", text, variable=name)
        return
    axis = _channel_axis(user)
    if array.ndim == 2 and not (array < 0).any():  # a mask or a table of shares, which nobody learned
        return
    if axis is None or not -array.ndim <= axis < array.ndim:
        return
    channels = array.shape[axis]
    dead = channels - int(np.count_nonzero(np.any(array, axis=_others(array.ndim, axis))))
    if dead:
        text = (
            f"{dead} of {channels} output channels of {name} are zero throughout; operator {user.type} takes it as its"
        )
        yield Finding("FC308", f"{text} weight", variable=name)


def _channel_axis(op: Operator) -> int | None:
    """The axis of the output channels in an operator's weight; None for tables, and where Paddle pads weights by zeros."""
    traits = traits_of(op.type)
    if not traits.weight or op.get_attr("padding_weights", False):
        return None
    return -2 if any(op.get_attr(name, False) for name in TRANSPOSED) else traits.channel_axis


def _others(rank: int, axis: int) -> tuple[int, ...]:
    """All axes except one."""
    return tuple(each for each in range(rank) if each != axis % rank)
