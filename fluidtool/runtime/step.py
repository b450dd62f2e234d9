"""Steps: one operator each, ready to be bound to the variables of a scope; a run loops over bound steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fluidtool.errors import FluidError, Location, OperatorError, UninitializedError
from fluidtool.ir import Operator
from fluidtool.ir.callstack import written_in
from fluidtool.ir.operator import as_attr_value, guess_attr_type
from fluidtool.ir.surgery import copy_operator
from fluidtool.ops.context import OpContext
from fluidtool.ops.registry import OpInfo
from fluidtool.ops.validation import require_valid_operator
from fluidtool.proto.enums import VARIABLES, AttrType
from fluidtool.records import dataclass
from fluidtool.runtime.ownership import holds_alone, may_be_overwritten
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor

SINGLE = frozenset({AttrType.INT, AttrType.LONG, AttrType.FLOAT, AttrType.FLOAT64, AttrType.BOOLEAN})


class Located(Protocol):
    """Anything that runs an operator, for messages."""

    @property
    def context(self) -> OpContext:
        """The operator that is running, with its variables."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operator, ready to bind."""

    op: Operator
    info: OpInfo
    attrs: dict[str, Any]
    release: tuple[str, ...] = ()
    hollow: tuple[str, ...] = ()  # names of which only shapes are read afterwards


def kernel_attrs(op: Operator, info: OpInfo) -> dict[str, Any]:
    """The keyword arguments of the kernel: the program's values as the declared types, else the declared defaults.

    Attributes that name variables have values only when the operator runs (`BoundByVariables`).
    Raises OperatorError for an operator that does not match its schema.
    """
    require_valid_operator(op, info)
    attrs = {}
    for name in info.kernel_attrs:
        spec = info.attrs[name]
        if not op.has_attr(name) or op.attr_type(name) in VARIABLES:
            attrs[name] = spec.default
        elif op.attr_type(name) == spec.type:
            attrs[name] = op.attr(name)
        else:
            attrs[name] = as_attr_value(spec.type, op.attr(name))
    return attrs


class BoundStep:
    """A step whose names have been looked up: what the loop calls."""

    __slots__ = ("args", "attrs", "context", "first", "kernel", "lods", "outputs", "release")

    def __init__(self, step: Step, context: OpContext, release: tuple[ScopeVariable, ...]) -> None:
        info = step.info
        self.context, self.attrs, self.release = context, step.attrs, release
        self.kernel = context.runtime.plan.kernel_of(info)
        self.args: tuple[tuple[Any, bool, Any], ...] = ()
        if not info.raw:
            self.args = tuple((slot, slot.duplicable, context.inputs.get(slot.name, ())) for slot in info.inputs)
        self.outputs = context.outputs
        self.first = info.outputs[0].name if info.outputs else ""
        self.lods = info.share_lod

    def run(self) -> None:
        """Read the inputs, compute, store the outputs."""
        self.store(self.compute())

    def compute(self) -> Any:
        """Call the kernel on the inputs."""
        args: list[Any] = []
        for slot, duplicable, holders in self.args:
            if duplicable:
                values = [read(holder) for holder in holders]
                if any([value is None for value in values]):
                    self._missing_of(slot.name, holders, values)
                args.append(values)
            else:
                value = read(holders[0]) if holders else None
                if value is None and not slot.dispensable:
                    self._missing(slot.name, holders)
                args.append(value)
        return self.kernel(self.context, *args, **self.attrs)

    def store(self, result: Any) -> None:
        """Store what the kernel returned in the outputs."""
        if result is None:
            return
        if type(result) is not dict:
            result = {self.first: result}
        for slot, value in result.items():
            holders = self.outputs.get(slot)
            if not holders:
                continue
            if type(value) is list:
                for holder, item in zip(holders, value, strict=False):
                    self._put(slot, holder, item)
            else:
                self._put(slot, holders[0], value)

    def _put(self, slot: str, holder: ScopeVariable | None, value: Any) -> None:
        if value is None or holder is None:
            return
        lod = holder.pending_lod
        holder.pending_lod = None
        if lod is None:
            lod = value.offsets if type(value) is LoDTensor else []
            for source, target in self.lods:
                if target == slot:
                    lod = self._source_lod(source, slot, holder) or lod
        if type(value) is LoDTensor:
            if value.array is None:
                holder.value = value
            else:
                holder.set_tensor(value.array, lod)
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            holder.set_tensor(value if value.shape else self.context.array(value), lod)
        else:
            holder.value = value

    def _source_lod(self, source: str, slot: str, holder: ScopeVariable) -> list[list[int]]:
        targets = self.outputs[slot]
        index = next((i for i, other in enumerate(targets) if other is holder), 0) if len(targets) > 1 else 0
        sources = self.context.inputs.get(source, ())
        return self.context.lod(source, index if index < len(sources) else 0)

    def _missing_of(self, slot: str, holders: tuple[ScopeVariable | None, ...], values: list[Any]) -> None:
        """Raise UninitializedError for a variable of a list that holds no value.

        Gaps in the list (@EMPTY@) do not count, nor do variables that only order `send` and `recv`.
        """
        if self.context.info.side_effects:
            return
        for holder, value in zip(holders, values, strict=True):
            if holder is not None and value is None:
                self._missing(slot, (holder,))

    def _missing(self, slot: str, holders: tuple[ScopeVariable | None, ...]) -> None:
        op = self.context.op
        if not holders or holders[0] is None:
            raise OperatorError(f"operator {op.type} in block {op.block.idx} has no variable in its input {slot}")
        raise UninitializedError(
            f"input {slot} of operator {op.type} in block {op.block.idx} is variable {holders[0].name}, which holds no "
            "value: feed it, load it into the scope, or run the startup program first"
        )


class BoundByVariables(BoundStep):
    """A step whose attributes name variables, which are read in every run (Paddle 2.5 and later)."""

    __slots__ = ("named", "step")

    def __init__(
        self,
        step: Step,
        context: OpContext,
        release: tuple[ScopeVariable, ...],
        named: Mapping[str, Sequence[ScopeVariable | None]],
    ) -> None:
        super().__init__(step, context, release)
        self.step, self.named = step, named

    def compute(self) -> Any:
        """Call the kernel on the inputs and the current values of the attributes."""
        before, info = self.context, self.step.info
        op = copy_operator(self.step.op, self.step.op.block)
        for name, holders in self.named.items():
            op._attr_types[name], op._attrs[name] = self._value(name, holders)
        self.context = OpContext(op, info, before.inputs, before.outputs, before.scope, before.runtime)
        self.attrs = kernel_attrs(op, info)
        return super().compute()

    def _value(self, name: str, holders: Sequence[ScopeVariable | None]) -> tuple[AttrType | int, Any]:
        """The type and the value of an attribute: the numbers of its variables, a single one where the schema has one."""
        numbers: list[Any] = []
        for holder in holders:
            value = None if holder is None else holder.value
            if type(value) is not LoDTensor or value.array is None:
                called = "nothing" if holder is None else f"variable {holder.name}, which holds no tensor"
                raise UninitializedError(f"attribute {name} of operator {self.step.op.type} names {called}")
            numbers += self.context.host(value.array).reshape(-1).tolist()
        spec = self.step.info.attrs.get(name)
        if spec is None:
            single = self.step.op.attr_type(name) == AttrType.VAR and len(numbers) == 1
            found = numbers[0] if single else numbers
            return guess_attr_type(self.step.op.type, name, found), found
        if spec.type not in SINGLE:
            return spec.type, as_attr_value(spec.type, numbers)
        if len(numbers) != 1:
            raise self.context.error(f"attribute {name} must be one number, but its variables hold {len(numbers)}")
        return spec.type, as_attr_value(spec.type, numbers[0])


class BoundAfterChecks(BoundStep):
    """A step that changes parameters: not before the checks of indices that are still pending on a GPU."""

    __slots__ = ()

    def compute(self) -> Any:
        """Call the kernel on the inputs; raises OperatorError for what an earlier operator was given."""
        self.context.runtime.checks.settle()
        return super().compute()


class BoundUpdate(BoundStep):
    """A step that changes variables in place, if only the scope refers to their arrays."""

    __slots__ = ("changed", "in_place", "pending", "usual")

    def __init__(self, step: Step, context: OpContext, release: tuple[ScopeVariable, ...]) -> None:
        super().__init__(step, context, release)
        self.usual, self.in_place = step.attrs, {**step.attrs, "in_place": True}
        self.pending: list[Any] | None = None
        pairs = context.runtime.plan.changed_by(step.op).items()
        same = all(step.op.input(old) == step.op.output(new) for old, new in pairs)
        self.changed = tuple(context.inputs[old][0] for old, _ in pairs) if same else ()

    def compute(self) -> Any:
        """Call the kernel, which may overwrite the inputs."""
        alone = bool(self.changed) and all([holds_alone(holder) for holder in self.changed])
        self.attrs = self.in_place if alone else self.usual
        if self.pending is None:
            return super().compute()
        self.attrs = {**self.attrs, "pending": self.pending}
        try:
            return super().compute()
        finally:
            self.attrs = self.usual  # what is put off refers to arrays, which only the scope may hold next time


class BoundUpdates:
    """Updates that follow each other and do not read one another's results: the engine runs them in one call."""

    __slots__ = ("_current", "release", "steps")

    def __init__(self, steps: Sequence[BoundUpdate]) -> None:
        self.steps, self.release = tuple(steps), ()
        self._current = 0

    @property
    def context(self) -> OpContext:
        """The operator that is running, for messages."""
        return self.steps[self._current].context

    def run(self) -> None:
        """Prepare every update, then run what they have put off; if one fails, that of those before it."""
        pending: list[Any] = []
        try:
            for number, step in enumerate(self.steps):
                self._current = number
                step.pending = pending
                step.run()
                for holder in step.release:
                    holder.value = None
        finally:
            for step in self.steps:
                step.pending = None
            if pending:
                self.context.runtime.plan.engine.run_updates(pending)


def with_updates_together(steps: Sequence[Any]) -> list[Any]:
    """The bound steps, neighboring updates of different variables as one."""
    found: list[Any] = []
    group: list[BoundUpdate] = []
    written: set[str] = set()

    def close() -> None:
        found.extend(group if len(group) < 2 else [BoundUpdates(group)])
        group.clear()
        written.clear()

    for step in steps:
        op = step.context.op if type(step) is BoundUpdate else None
        if op is None or not written.isdisjoint((*op.input_arg_names, *op.output_arg_names)):
            close()
        if op is None:
            found.append(step)
        else:
            group.append(step)
            written.update(op.output_arg_names)
    close()
    return found


class BoundTakeover(BoundStep):
    """A step that may compute in the place of an input that nobody reads afterwards, and empties what only has a shape."""

    __slots__ = ("hollow", "replaced")

    def __init__(
        self, step: Step, context: OpContext, release: tuple[ScopeVariable, ...], hollow: tuple[ScopeVariable, ...]
    ) -> None:
        super().__init__(step, context, release)
        self.hollow = hollow
        names, ending = step.op.input_arg_names, {*step.release, *step.hollow}
        self.replaced = tuple(
            holder
            for slot in context.runtime.plan.overwritten_by(step.op)
            for holder in context.inputs.get(slot, ())
            if holder is not None and holder.name in ending and names.count(holder.name) == 1
        )

    def run(self) -> None:
        """Compute, then let go of memory."""
        self.store(self.compute())
        for holder in self.hollow:
            holder.value = hollowed(holder.value)

    def compute(self) -> Any:
        """Call the kernel, with the array that it may overwrite."""
        for holder in self.replaced:
            if may_be_overwritten(holder):
                usual = self.attrs
                self.attrs = {**usual, "over": holder.value.array}
                try:
                    return super().compute()
                finally:
                    self.attrs = usual
        return super().compute()


@lru_cache(maxsize=1024)
def shape_alone(shape: tuple[int, ...], dtype: Any) -> Any:
    """Zeros of a shape, in the memory of one."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def hollowed(value: Any) -> Any:
    """A tensor of the same shape, data type and LoD without memory of its own; other values unchanged."""
    if type(value) is not LoDTensor or type(value.array) is not np.ndarray:
        return value
    return LoDTensor(shape_alone(value.array.shape, value.array.dtype), value.offsets)


def read(holder: ScopeVariable | None) -> Any:
    """The kernel's view of a variable: the bare array of a LoDTensor, other values unchanged, None for no variable."""
    if holder is None:
        return None
    value = holder.value
    if type(value) is LoDTensor:
        if value.array is not None:
            return value.array
        return value if value.shape() != [0] else None
    return value


def misfit_of(step: Located) -> str | None:
    """The input of a step that is not a tensor, as kernels expect, or None. Attributes were checked at compile time."""
    for slot, holders in step.context.inputs.items():
        for holder in holders:
            value = None if holder is None else holder.value
            if value is not None and not (type(value) is LoDTensor and value.array is not None):
                kind = "no value" if type(value) is LoDTensor else type(value).__name__
                return f"input {slot} holds {kind}, expected a tensor"
    return None


def located(error: FluidError, op: Operator, variable: str | None = None) -> FluidError:
    """Mark an error whose message already says where it happened, in this operator."""
    file = None if error.location is None else error.location.file
    position = next((place for place, each in enumerate(op.block.ops) if each is op), None)  # None: a copy for this run
    error.location = Location(file, op.block.idx, position, op.type, variable)
    error.located = True  # type: ignore[attr-defined]
    return error


def say_where(error: FluidError, step: Located) -> None:
    """Let an error say where it happened, unless it does already."""
    if not getattr(error, "located", False):
        located(error, step.context.op).args = (f"{error.args[0]} [{where(step)}]", *error.args[1:])


def where(step: Located) -> str:
    """'block 0, X=img (1, 3, 4) float32 -> Out=t; written in train.py, line 7: t = …' for messages."""
    op = step.context.op
    shown = []
    for slot, holders in step.context.inputs.items():
        for holder in holders[:4]:
            if holder is not None:
                shown.append(f"{slot}={holder.name} {describe(holder.value)}")
    outputs = ", ".join(f"{slot}={', '.join(names)}" for slot, names in op.outputs.items() if names)
    line = written_in(op)
    return (
        f"block {op.block.idx}, {', '.join(shown) or 'no inputs'} -> {outputs or 'no outputs'}"
        f"{f'; written in {line}' if line else ''}"
    )


def describe(value: Any) -> str:
    """Shape and data type of a value, for messages."""
    if isinstance(value, LoDTensor):
        return "(no value)" if value.array is None else f"{shape_text(value.array.shape)} {value.array.dtype}"
    return "(no value)" if value is None else type(value).__name__
