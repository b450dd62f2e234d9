"""One operator as the rule of a rewrite sees it, and the edit that the rule answers with."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Any

import numpy as np

from fluidtool.ir import Block, Operator
from fluidtool.ir.dataflow import BlockFlow
from fluidtool.passes.inference.names import Names
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor


class NoMatch(Exception):
    """Why a candidate stays as it is; raised by the helpers of a rule, caught by `rewrite`."""


@dataclass(frozen=True, slots=True)
class NewParameter:
    """A parameter that an edit brings: declared in block 0; its array goes to the scope, to where that of `like` is."""

    name: str
    array: Any
    like: str


@dataclass(frozen=True, slots=True)
class NewVariable:
    """An intermediate variable that an edit brings, declared like `like` (except for what is given) in the block of the edit."""

    name: str
    like: str
    shape: tuple[int, ...] | None = None
    lod_level: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Operators at `remove` go; `insert` comes at `position` (the place of the last of them); `reason` says what was done."""

    remove: frozenset[int]
    position: int
    insert: tuple[Operator, ...]
    reason: str
    parameters: tuple[NewParameter, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)  # what later readers read instead of a name written once
    variables: tuple[NewVariable, ...] = ()


@dataclass(frozen=True, slots=True)
class MatchContext:
    """One operator as a rule sees it: the def-use view of its block, the values of parameters, the names to keep."""

    flow: BlockFlow
    position: int
    scope: Scope
    keep: frozenset[str]
    names: Names

    @property
    def block(self) -> Block:
        """The block of the operator."""
        return self.flow.block

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.flow.block.ops[self.position]

    def at(self, position: int) -> MatchContext:
        """Another operator of the same block."""
        return MatchContext(self.flow, position, self.scope, self.keep, self.names)

    def input(self, slot: str) -> str:
        """The one name in an input slot; empty when there is none."""
        names = self.op.inputs.get(slot, [])
        return names[0] if names else ""

    def output(self, slot: str) -> str:
        """The one name in an output slot; empty when there is none."""
        names = self.op.outputs.get(slot, [])
        return names[0] if names else ""

    def producer(self, name: str) -> MatchContext | None:
        """The operator of this block that wrote the value of `name` which this operator reads."""
        position = self.flow.producer(self.position, name) if name in self.flow.reads[self.position] else None
        return None if position is None else self.at(position)

    def readers(self, name: str) -> list[MatchContext]:
        """The operators of this block (with what lies below them) that read the value of `name` written here."""
        return [self.at(position) for position in self._consumers(name)]

    def _consumers(self, name: str) -> list[int]:
        return self.flow.consumers(self.position, name) if name in self.flow.writes[self.position] else []

    def why_visible(self, name: str, reader: int | Collection[int]) -> str:
        """Why the value of `name` written here may not vanish into operator(s) `reader`; empty when it may."""
        wanted = self.why_wanted(name)
        if wanted:
            return wanted
        vanishing = {reader} if isinstance(reader, int) else reader
        others = [position for position in self._consumers(name) if position not in vanishing]
        if others:
            types = sorted({self.block.ops[position].type for position in others})
            return f"{name} is also {'fetched' if types == ['fetch'] else 'read by ' + ', '.join(types)}"
        return ""

    def why_wanted(self, name: str) -> str:
        """Why the value of `name` written here is wanted beyond the operators of this block; empty when it is not."""
        if name in self.keep and self.flow.is_last_write(self.position, name):
            return f"{name} is fetched or must be kept"
        return self.why_not_private(name)

    def why_not_private(self, name: str) -> str:
        """Why `name` means something outside this block or after the run; empty when it does not."""
        var = self.block.vars.get(name)
        if var is None:
            return f"{name} belongs to an outer block"
        if var.persistable:
            return f"{name} is persistable"
        if self._read_elsewhere(name):
            return f"{name} is also read in another block"
        around = self.names.passed_on_by(self.block.idx, name) if self.block.idx else ""
        return f"{name} is passed on by {around}" if around else ""

    def _read_elsewhere(self, name: str) -> bool:
        """Whether a block that is not below this one, such as one of gradients, reads this block's variable."""
        blocks = (self.block.program.block(index) for index in self.names.read_in.get(name, ()))
        return any(
            block is not self.block
            and not any(around is self.block for around in block.ancestry())
            and self.block in block.reach()
            for block in blocks
        )

    def holds_until(self, name: str, position: int) -> bool:
        """Whether the value of `name` that this operator reads is still there at a later operator."""
        return not self.flow.writes_between(self.position, position, name)

    def is_constant(self, name: str) -> bool:
        """Whether `name` is a persistable variable that no operator of the program writes and that has a value."""
        var = self.block.find_var_recursive(name)
        return var is not None and var.persistable and self.array(name) is not None and not self.names.written[name]

    def array(self, name: str) -> Any:
        """The array of a parameter in the scope; None when it has none."""
        return array_in(self.scope, name)

    def new_parameter(self, name: str, array: np.ndarray[Any, Any], like: str) -> NewParameter:
        """A parameter to put into an edit; one of this name in the scope that holds the very same numbers is used again."""
        while self._is_taken(name):
            if self._holds(name, array):
                break
            name = self.fresh_name(name)
        return NewParameter(name, array, like)

    def _is_taken(self, name: str) -> bool:
        return name in self.scope or bool(self.names.declared.get(name)) or name in self.names.pending

    def _holds(self, name: str, array: np.ndarray[Any, Any]) -> bool:
        pending = self.names.pending.get(name)
        there = array_in(self.scope, name) if pending is None else pending
        return (
            there is not None
            and all(var.persistable for var in self.names.declared.get(name, ()))
            and not self.names.written[name]
            and there.dtype == array.dtype
            and np.array_equal(on_host(there), array)
        )

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """The array of a constant on the host; raises NoMatch when `name` is no constant, and says what it is."""
        if not name:
            raise NoMatch("the operator names no variable where a parameter is expected")
        if not self.is_constant(name):
            raise NoMatch(self._why_not_constant(name))
        return on_host(self.array(name))

    def _why_not_constant(self, name: str) -> str:
        var = self.block.find_var_recursive(name)
        if var is None or not var.persistable:
            return f"{name} is not a parameter: it is computed or fed"
        if self.names.written[name]:
            return f"{name} is written by the program"
        return f"{name} has no value in the scope; load the parameters first"

    def fresh_name(self, name: str, taken: Iterable[str] = ()) -> str:
        """`name`, or `name_1`, `name_2`, … when a variable of the program or of the scope, or of `taken`, has it."""
        used, candidate, number = set(taken), name, 0
        while candidate in used or self._is_taken(candidate):
            number += 1
            candidate = f"{name}_{number}"
        return candidate

    def new_operator(self, type: str, inputs: Any, outputs: Any, attrs: dict[str, Any]) -> Operator:
        """An operator of this block that is not in it yet, with the role of this match's operator."""
        op = Operator(self.block, type=type, inputs=inputs, outputs=outputs, attrs=attrs)
        if self.op.has_attr("op_role") and not op.has_attr("op_role"):
            op.set_attr("op_role", self.op.attr("op_role"))
        return op


Use = tuple[MatchContext, str]  # an operator, and a name that it reads


def array_in(scope: Scope, name: str) -> Any:
    """The array of a tensor in a scope; None when it has none."""
    found = scope.find_var(name)
    value = found.value if found is not None else None
    return value.array if isinstance(value, LoDTensor) else None


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """An array of either device as numpy."""
    return LoDTensor(array).numpy()
