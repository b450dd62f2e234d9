"""`FiniteCheck`: an observer that finds the operators that produce NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.errors import NotFiniteError
from fluidtool.ir import Operator
from fluidtool.ir.callstack import written_in
from fluidtool.records import dataclass
from fluidtool.runtime.step import BoundStep, located
from fluidtool.tensor import LoDTensor, SelectedRows

if TYPE_CHECKING:
    from fluidtool.tensor.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of an operator: its slot, its variable, the statistics of its elements (None for what has none)."""

    slot: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    statistics: Statistics | None


@dataclass(frozen=True, slots=True)
class NotFinite:
    """A variable with NaN or infinity, and the operator that wrote it, or read it if it was `given`: fed, or a parameter.

    finite_inputs: whether the operator made it of finite numbers. nan, inf: how many of the elements; first: the index of
    the first of them. written_in: the line of the script, if the program has it.
    """

    block: int
    operator: int
    type: str
    slot: str
    variable: str
    given: bool
    finite_inputs: bool
    nan: int
    inf: int
    elements: int
    first: tuple[int, ...]
    inputs: tuple[Operand, ...]
    written_in: str

    def sentence(self) -> str:
        """Who made what, for messages."""
        who = f"operator {self.type} (number {self.operator} of block {self.block})"
        nan_and_inf = f"{self.nan} NaN and {self.inf} infinite"
        kinds = nan_and_inf if self.nan and self.inf else f"{self.nan} NaN" if self.nan else f"{self.inf} infinite"
        what = f"{self.variable}, with {kinds} of {self.elements} elements, the first at {list(self.first)}"
        if self.given:
            return (
                f"{who} reads in its input {self.slot} the variable {what}; no operator computed it: it was fed or is a "
                f"parameter"
            )
        cause = "its inputs are finite" if self.finite_inputs else "an input is not finite"
        line = f"; written in {self.written_in}" if self.written_in else ""
        return f"{who} made its output {self.slot}, variable {what}; {cause}{line}"


class FiniteCheck:
    """Runs in place of each step (`Executor.run(observer=...)`).

    Raises NotFiniteError at the first value that is not finite; with `every` it runs on, and `found` has each variable that
    an operator wrote with NaN or infinity, once.
    """

    def __init__(self, *, every: bool = False) -> None:
        self.every = every
        self.found: list[NotFinite] = []
        self._seen: set[tuple[int, str]] = set()
        self._names: set[str] = set()

    def __call__(self, step: BoundStep, block: int) -> None:
        """Run the step and check its outputs."""
        op = step.context.op
        strange = False if op.sub_blocks() else self._given(step)
        in_place = set(op.input_arg_names) & set(op.output_arg_names)
        before = _operands(step) if in_place else None
        step.run()
        for slot, name, value in _values(step.outputs):
            found = not_finite(value)
            if found:
                inputs = _operands(step) if before is None else before
                self._add(
                    op, _not_finite(step, block, slot, name, found, inputs, given=False, finite_inputs=not strange)
                )

    def _given(self, step: BoundStep) -> bool:
        """Whether an input is not finite. One that no operator computed is not blamed on its reader."""
        strange = False
        for slot, name, value in _values(step.context.inputs):
            found = not_finite(value)
            strange = strange or found is not None
            if found and name not in self._names:
                op, inputs = step.context.op, _operands(step)
                where = op.block.idx
                self._add(op, _not_finite(step, where, slot, name, found, inputs, given=True, finite_inputs=False))
        return strange

    def _add(self, op: Operator, found: NotFinite) -> None:
        if not self.every:
            raise located(NotFiniteError(found.sentence(), found), op, found.variable)
        self._names.add(found.variable)
        key = (-1 if found.given else found.operator, f"{found.block} {found.variable}")
        if key not in self._seen:
            self._seen.add(key)
            self.found.append(found)


def _values(slots: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str, Any]]:
    """(slot, name, value) of the variables of an operator."""
    for slot, holders in slots.items():
        for holder in holders:
            if holder is not None:
                yield slot, holder.name, holder.value


def _not_finite(
    step: BoundStep,
    block: int,
    slot: str,
    name: str,
    found: tuple[int, int, int, tuple[int, ...]],
    inputs: tuple[Operand, ...],
    *,
    given: bool,
    finite_inputs: bool,
) -> NotFinite:
    op = step.context.op
    return NotFinite(block, op.idx, op.type, slot, name, given, finite_inputs, *found, inputs, written_in(op))


def _operands(step: BoundStep) -> tuple[Operand, ...]:
    from fluidtool.tensor.statistics import statistics

    operands = []
    for slot, name, value in _values(step.context.inputs):
        array = _array(value)
        if array is None:
            operands.append(Operand(slot, name, "", (), None))
        else:
            operands.append(Operand(slot, name, str(array.dtype), tuple(array.shape), statistics(array)))
    return tuple(operands)


def not_finite(value: Any) -> tuple[int, int, int, tuple[int, ...]] | None:
    """(NaN, infinite, all) elements and the index of the first that is not finite; None if all are finite."""
    array = (
        value.array if isinstance(value, LoDTensor) else value.tensor.array if isinstance(value, SelectedRows) else None
    )
    if array is None or not _floating(array):
        return None
    import numpy as np

    array = _array(value)
    usable = np.isfinite(array)
    if usable.all():
        return None
    first = tuple(int(index) for index in np.unravel_index(int(np.argmin(usable)), array.shape))
    nan, total = int(np.isnan(array).sum()), int(array.size - np.count_nonzero(usable))
    return nan, total - nan, int(array.size), first


def _array(value: Any) -> Any:
    """The array of a value on the host, or None."""
    if isinstance(value, LoDTensor):
        return value.numpy() if value.is_initialized() else None
    if isinstance(value, SelectedRows):
        return value.tensor.numpy() if value.tensor.is_initialized() else None
    return None


def _floating(array: Any) -> bool:
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"
