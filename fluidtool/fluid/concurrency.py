"""Go, channels and Select, of Fluid 0.12 to 0.15 (Paddle 0.14 concurrency.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import equal
from fluidtool.fluid.layers.control_flow.blocks import declared, inner_block, reads_and_writes
from fluidtool.fluid.layers.creation import fill_constant
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.ir.variable import data_type
from fluidtool.ops.concurrency import go as go_operator
from fluidtool.ops.concurrency.channels import CONTAINERS, ELEMENTS
from fluidtool.ops.concurrency.select import DEFAULT, RECEIVE, SEND
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

__all__ = ["Go", "Select", "channel_close", "channel_recv", "channel_send", "make_channel"]


def make_channel(dtype: Any, capacity: int = 0) -> Variable:
    """A channel for the values of go blocks; without capacity, a send waits for its receive.

    dtype: the kind of variable that it carries (VarType.LOD_TENSOR …), or the data type of its tensors ('int32' …).
    Raises UsageError for any other dtype, or a negative capacity.
    """
    helper = LayerHelper("channel_create")
    kind = VarType(dtype) if isinstance(dtype, int) and dtype in CONTAINERS else data_type(dtype)
    if kind not in CONTAINERS:
        raise UsageError(
            f"a channel cannot carry {kind.name}; it carries {', '.join(VarType(known).name for known in CONTAINERS)}"
        )
    if capacity < 0:
        raise UsageError(f"the capacity of a channel must be at least 0, found {capacity}")
    channel = helper.create_variable(name=unique_name.generate("channel"), type=VarType.CHANNEL, persistable=True)
    helper.append_op(
        type="channel_create", outputs={"Out": channel}, attrs={"data_type": int(kind), "capacity": capacity}
    )
    return channel


def channel_send(channel: Variable, value: Any, is_copy: bool = False) -> Variable:
    """Send a variable, or a number, and return whether it was sent: BOOL of shape [1].

    The variable is empty afterwards; with is_copy a copy is sent. Sending on a closed channel is an error of the run.
    """
    helper = LayerHelper("channel_send")
    _check_channel(channel, "channel_send")
    block = helper.main_program.current_block()
    status = _status(block)
    inputs = {"Channel": channel, "X": _to_send(block, channel, value, is_copy)}
    block.append_op(type="channel_send", inputs=inputs, outputs={"Status": status})
    return status


def channel_recv(channel: Variable, return_value: Any) -> tuple[Variable, Variable]:
    """Receive into a variable, or a new one of a data type; returns it and whether there was a value, BOOL of shape [1].

    A closed and empty channel has no value.
    """
    helper = LayerHelper("channel_recv")
    _check_channel(channel, "channel_recv")
    block = helper.main_program.current_block()
    into, status = _to_receive(block, return_value), _status(block)
    block.append_op(type="channel_recv", inputs={"Channel": channel}, outputs={"Out": into, "Status": status})
    return into, status


def channel_close(channel: Variable) -> None:
    """Close a channel: its values can still be received, but nothing can be sent."""
    helper = LayerHelper("channel_close")
    _check_channel(channel, "channel_close")
    helper.append_op(type="channel_close", inputs={"Channel": channel})


class Go:
    """`with Go(): …` runs the operators within in a separate thread; what they read from outside must be persistable."""

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("go", name=name)
        self._within: Any = None

    def __enter__(self) -> None:
        self._within = inner_block(self.helper.main_program)
        self._block: Block = self._within.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._within.__exit__(None, None, None)
        if kind is None:
            self._complete(self._block)

    def _complete(self, block: Block) -> None:
        around = block.parent
        assert around is not None
        reads, _ = reads_and_writes(block)
        inputs = [around.var_recursive(name) for name in reads]
        around.append_op(type=go_operator.go.type, inputs={"X": inputs}, outputs={}, attrs={"sub_block": block})


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of a Select: what has to happen first, and the block that runs after it."""

    action: int
    block: Block
    channel: Variable | None = None
    value: Variable | None = None

    def text(self, index: int) -> str:
        """Its text in the operator's attribute `cases`."""
        names = [var.name if var is not None else "" for var in (self.channel, self.value)]
        return ",".join([str(index), str(self.action), *names])


class Select:
    """`with Select() as select:` with blocks `select.case(…)` and `select.default()`: the first case that can happen."""

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("select", name=name)
        self.case_to_execute = fill_constant(shape=[1], dtype=VarType.INT32, value=-1)
        self._cases: list[_Case] = []
        self._block: Block | None = None
        self._within: Any = None

    def __enter__(self) -> Select:
        self._within = inner_block(self.helper.main_program)
        self._block = self._within.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block = self._inside()
        try:
            if kind is None:
                for index, case in enumerate(self._cases):
                    self._append_branch(block, index, case)
        finally:
            self._within.__exit__(None, None, None)
            self._block = None
        if kind is None:
            self._complete(block)

    @contextmanager
    def case(
        self, channel_action_fn: Callable[..., Any], channel: Variable, value: Any, is_copy: bool = False
    ) -> Iterator[None]:
        """The operators within run if this send or receive happens.

        channel_action_fn: channel_send or channel_recv. is_copy: send a copy, taken when the select is reached.
        """
        name = getattr(channel_action_fn, "__name__", "")
        if name not in ("channel_send", "channel_recv"):
            raise UsageError(f"a case takes channel_send or channel_recv, found {channel_action_fn!r}")
        _check_channel(channel, "Select.case")
        around = self._inside().parent
        assert around is not None
        if name == "channel_send":
            action, var = SEND, _to_send(around, channel, value, is_copy)
        elif is_copy:
            raise UsageError("is_copy is for cases that send, but this one receives")
        else:
            action, var = RECEIVE, _to_receive(around, value)
        with inner_block(self.helper.main_program) as block:
            yield
        self._cases.append(_Case(action, block, channel, var))

    @contextmanager
    def default(self) -> Iterator[None]:
        """The operators within run if no other case can happen immediately. Raises UsageError for a second default."""
        self._inside()
        if any(case.action == DEFAULT for case in self._cases):
            raise UsageError("Select can only contain one default case.")
        with inner_block(self.helper.main_program) as block:
            yield
        self._cases.append(_Case(DEFAULT, block))

    def _inside(self) -> Block:
        if self._block is None:
            raise UsageError("cases must be in the `with` block of their Select")
        return self._block

    def _append_branch(self, block: Block, index: int, case: _Case) -> None:
        """The branch of a case: it runs if case_to_execute is its index."""
        chosen = equal(fill_constant(shape=[1], dtype=VarType.INT32, value=index), self.case_to_execute)
        reads, writes = reads_and_writes(case.block)
        block.append_op(
            type="conditional_block",
            inputs={"Cond": chosen, "Input": [block.var_recursive(name) for name in reads]},
            outputs={"Out": declared(block, writes), "Scope": [block.create_var(type=VarType.STEP_SCOPES)]},
            attrs={"sub_block": case.block, "is_scalar_condition": True},
        )

    def _complete(self, block: Block) -> None:
        around = block.parent
        assert around is not None
        channels = [case.channel.name for case in self._cases if case.channel is not None]
        sent = [case.value.name for case in self._cases if case.action == SEND and case.value is not None]
        received = [case.value.name for case in self._cases if case.action == RECEIVE and case.value is not None]
        reads, writes = reads_and_writes(block, received)
        taken = declared(around, dict.fromkeys([*reads, *channels, *sent]))
        around.append_op(
            type="select",
            inputs={"X": taken, "case_to_execute": self.case_to_execute},
            outputs={"Out": declared(around, writes)},
            attrs={"sub_block": block, "cases": [case.text(index) for index, case in enumerate(self._cases)]},
        )


def _check_channel(channel: Any, what: str) -> None:
    if not isinstance(channel, Variable) or channel.type != VarType.CHANNEL:
        raise ArgumentTypeError(f"{what} takes a channel from make_channel, found {channel!r}")


def _status(block: Block) -> Variable:
    return block.create_var(name=unique_name.generate("status"), type=VarType.LOD_TENSOR, dtype=VarType.BOOL, shape=[1])


def _to_send(block: Block, channel: Variable, value: Any, is_copy: bool) -> Variable:
    """The variable to send: the value itself, a copy of it, or a number as a tensor of the channel's data type."""
    if isinstance(value, Variable):
        return _copy(block, value) if is_copy else value
    if isinstance(value, (bool, int, float)):
        return _number(block, channel, value)
    raise ArgumentTypeError(f"a channel sends Variables and numbers, found {type(value).__name__}")


def _copy(block: Block, value: Variable) -> Variable:
    copied = block.create_var(
        name=unique_name.generate(f"{value.name}_copy"),
        type=value.type,
        dtype=value.dtype,
        shape=value.shape,
        lod_level=value.lod_level,
    )
    block.append_op(type="assign", inputs={"X": value}, outputs={"Out": copied})
    return copied


def _number(block: Block, channel: Variable, value: float) -> Variable:
    kind = _element_type(channel) or _natural_type(value)
    var = block.create_var(name=unique_name.generate("channel_value"), dtype=kind, shape=[1])
    attrs = {"shape": [1], "dtype": int(kind), "value": float(value)}
    block.append_op(type="fill_constant", outputs={"Out": var}, attrs=attrs)
    return var


def _natural_type(value: float) -> VarType:
    if isinstance(value, bool):
        return VarType.BOOL
    return VarType.INT64 if isinstance(value, int) else VarType.FP32


def _element_type(channel: Variable) -> VarType | None:
    """The data type of a channel that carries tensors of one; None for other channels."""
    for block in channel.block.program.blocks:
        for op in block.ops:
            if op.type == "channel_create" and op.output("Out") == [channel.name]:
                kind = VarType(op.attr("data_type"))
                return kind if kind in ELEMENTS else None
    return None


def _to_receive(block: Block, value: Any) -> Variable:
    """The variable to receive into: the one given, or a new one of the data type given."""
    if isinstance(value, Variable):
        return value
    return block.create_var(name=unique_name.generate("channel_value"), dtype=data_type(value), shape=[1])
