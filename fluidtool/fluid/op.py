"""`fluid.op`: one operator by itself, on the variables of a scope (Paddle 1.8.5 op.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool import runtime
from fluidtool.errors import UsageError
from fluidtool.fluid.op_protos import OpDescCreationMethod, get_all_op_protos
from fluidtool.ir import Block, Program
from fluidtool.ir import Operator as ProgramOperator
from fluidtool.ops.index import MODULES
from fluidtool.ops.registry import OpInfo, find_op
from fluidtool.ops.schema import Slot
from fluidtool.proto.enums import VarType
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.scope import Scope, ScopeVariable
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray, Place, SelectedRows

__all__ = ["OpDescCreationMethod", "Operator", "OperatorFactory", "SingleOperator", "get_all_op_protos"]

KINDS: tuple[tuple[type, VarType], ...] = (
    (SelectedRows, VarType.SELECTED_ROWS),
    (LoDTensorArray, VarType.LOD_TENSOR_ARRAY),
    (LoDRankTable, VarType.LOD_RANK_TABLE),
)


class SingleOperator:
    """An operator with the names of its variables, in no program."""

    def __init__(self, op: ProgramOperator) -> None:
        self._op = op

    def run(self, scope: Scope, place: Place) -> None:
        """Compute it on the variables of the scope; raises OperatorError for values that do not fit."""
        block = self._op.block
        for name in {*self._op.input_arg_names, *self._op.output_arg_names}:
            _declare(block, name, scope)
        before = {name: scope.var(name).value for name in self._op.output_arg_names}
        runtime.Executor(place, policy=Policy(endpoints=None), engine="numpy").run(block.program, {}, [], scope)
        for name, value in before.items():
            _keep(value, scope.var(name))

    def type(self) -> str:
        """The operator's type."""
        return self._op.type

    def inputs(self) -> dict[str, list[str]]:
        """The names of the variables it reads, by slot."""
        return {slot: self._op.input(slot) for slot in self._op.input_names}

    def outputs(self) -> dict[str, list[str]]:
        """The names of the variables it writes, by slot."""
        return {slot: self._op.output(slot) for slot in self._op.output_names}

    def input_vars(self) -> list[str]:
        """The names of the variables it reads."""
        return list(self._op.input_arg_names)

    def output_vars(self, with_intermediate: bool) -> list[str]:
        """The names of the variables it writes; those that only its gradient reads when they are asked for."""
        hidden = {slot.name for slot in _registered(self._op.type).outputs if slot.intermediate}
        return [
            name
            for slot in self._op.output_names
            if with_intermediate or slot not in hidden
            for name in self._op.output(slot)
        ]

    def __str__(self) -> str:
        return f"Op({self._op.type}), inputs:{{{_listed(self.inputs())}}}, outputs:{{{_listed(self.outputs())}}}."


def _keep(held: Any, variable: ScopeVariable) -> None:
    """Let the object that the variable held, and callers still hold, have its new value."""
    new = variable.value
    if new is held:
        return
    if isinstance(held, LoDTensor) and isinstance(new, LoDTensor):
        _fill(held, new)
        variable.value = held
    elif isinstance(held, SelectedRows) and isinstance(new, SelectedRows):
        held.row_ids, held.table_height = new.row_ids, new.table_height
        _fill(held.tensor, new.tensor)
        variable.value = held


def _fill(tensor: LoDTensor, new: LoDTensor) -> None:
    tensor.array, tensor.offsets = new.array, new.offsets
    tensor.set_dims(new.shape())


def _listed(slots: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{slot}[{', '.join(names)}]" for slot, names in slots.items())


def _declare(block: Block, name: str, scope: Scope) -> None:
    """A variable that lives in the scope, of the kind of what it holds there."""
    held = scope.var(name).value
    kind = next((kind for type_, kind in KINDS if isinstance(held, type_)), VarType.LOD_TENSOR)
    block.create_var(name=name, type=kind, persistable=True)


class OperatorFactory:
    """Makes operators: `Operator("sum", X=["a", "b"], Out="c")`; slots and attributes are keywords, others have no meaning.

    Raises UsageError for an unknown type, and for several variables where a slot takes one.
    """

    def __call__(self, *args: str, **kwargs: Any) -> SingleOperator:
        type_ = kwargs.pop("type", None)
        if len(args) != (type_ is None):
            raise UsageError('Except the argument "type", all of the other arguments should be keyword arguments.')
        info = self.get_op_info(type_ or args[0])
        inputs, outputs = _taken(info.inputs, kwargs, "Input"), _taken(info.outputs, kwargs, "Output")
        attrs = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in kwargs.items()
            if name in info.attrs
        }
        block = Program().global_block()
        block.ops.append(ProgramOperator(block, type=info.type, inputs=inputs, outputs=outputs, attrs=attrs))
        return SingleOperator(block.ops[0])

    def types(self) -> list[str]:
        """The types of all operators."""
        return sorted(MODULES)

    def get_op_info(self, type: str) -> OpInfo:
        """What an operator declares; raises UsageError for an unknown type."""
        return _registered(type)

    def get_op_inputs(self, type: str) -> list[tuple[str, bool]]:
        """The input slots, and which of them take several variables."""
        return [(slot.name, slot.duplicable) for slot in _registered(type).inputs]

    def get_op_outputs(self, type: str) -> list[tuple[str, bool]]:
        """The output slots, and which of them take several variables."""
        return [(slot.name, slot.duplicable) for slot in _registered(type).outputs]

    def get_op_input_names(self, type: str) -> list[str]:
        """The input slots."""
        return [slot.name for slot in _registered(type).inputs]

    def get_op_output_names(self, type: str) -> list[str]:
        """The output slots."""
        return [slot.name for slot in _registered(type).outputs]

    def get_op_attr_names(self, type: str) -> list[str]:
        """The attributes."""
        return list(_registered(type).attrs)


def _registered(type: str) -> OpInfo:
    info = find_op(type)
    if info is None:
        raise UsageError(f"The operator: {type} is not registered.")
    return info


def _taken(slots: Sequence[Slot], given: dict[str, Any], what: str) -> dict[str, list[str]]:
    """Take the names of these slots out of what is given."""
    taken = {}
    for slot in slots:
        names = given.pop(slot.name, [])
        names = [names] if isinstance(names, str) else list(names)
        if len(names) > 1 and not slot.duplicable:
            raise UsageError(f"{what} {slot.name} expects only one {what.lower()}, but {len(names)} are given.")
        if names:
            taken[slot.name] = names
    return taken


Operator = OperatorFactory()
