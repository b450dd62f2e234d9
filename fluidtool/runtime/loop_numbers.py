"""Counters and conditions of loops and branches of a program that runs on a GPU: the host computes them.

It reads them in every step of a loop. Of a number on the GPU it would have to wait for the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.ir import Operator, Program
from fluidtool.ops.context import OpContext
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.numpy import NUMPY
from fluidtool.runtime.graph.importers.comparisons import COMPARISONS, LOGIC
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.runtime.step import BoundStep, Step
from fluidtool.runtime.transfer import is_here, moved

Inputs = dict[str, tuple[Any, ...]]
READ = {
    "while": "Condition", "conditional_block": "Cond", "conditional_block_infer": "Cond",
    "select_input": "Mask", "select_output": "Mask", "write_to_array": "I", "read_from_array": "I", "shrink_rnn_memory": "I",
}  # fmt: skip
"""Operators that read a number on the host, and the slot that it is in."""
BRANCHES = frozenset({"while", "while_grad", "conditional_block", "conditional_block_grad", "conditional_block_infer"})
"""Those of them whose other inputs and outputs are their blocks'."""
SIZES = frozenset({"is_empty", "lod_array_length", "max_sequence_len"})
"""Operators that say of something what the host knows, wherever it is."""
MAKERS = SIZES | {*COMPARISONS, *LOGIC, "assign", "cast", "fill_constant", "increment", "scale"}
WHOLE = frozenset({VarType.INT32, VarType.INT64, VarType.BOOL})
ONE = ((1,), ())  # shapes of one number; the latter from Paddle 2.5 on, or if none is declared


# ---------------------------------------------------------------- which
def loop_numbers(program: Program) -> frozenset[str]:
    """The names of single whole numbers and booleans that the host reads, and of what they are made of, if all their values come
    from outside or from operators that compute on the host, too.
    """
    ops = [op for block in program.blocks for op in block.ops]
    others = (op for op in ops if op.type not in MAKERS | BRANCHES or op.variable_attrs())
    made_elsewhere = {name for op in others for name in op.output_arg_names}
    found: set[str] = set()
    new = {name for op in ops if op.type in READ for name in op.input(READ[op.type])}
    while new := {name for name in new - made_elsewhere - found if _is_number(program, name)}:
        found |= new
        makers = (op for op in ops if op.type in MAKERS - SIZES and not new.isdisjoint(op.output_arg_names))
        new = {name for op in makers for name in op.input_arg_names}
    return frozenset(found)


def _is_number(program: Program, name: str) -> bool:
    """Whether all variables of a name hold a single whole number or boolean that does not stay in the scope."""
    found = [block.vars[name] for block in program.blocks if name in block.vars]
    return bool(found) and all(
        var.type == VarType.LOD_TENSOR and var.dtype in WHOLE and not var.persistable and var.shape in ONE
        for var in found
    )


def is_maker(op: Operator, numbers: frozenset[str]) -> bool:
    """Whether an operator computes some of the numbers."""
    return op.type in MAKERS and not numbers.isdisjoint(op.output_arg_names)


# ---------------------------------------------------------------- running
class HostRuntime:
    """The runtime of a run, for an operator that computes on the host."""

    def __init__(self, runtime: Any) -> None:
        self._runtime, self.device = runtime, NUMPY

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


class BoundMaker(BoundStep):
    """A step that computes one of the numbers: on the host, unless it reads several, all of which are on the GPU."""

    __slots__ = ("_copies", "_kept", "_near")

    def __init__(
        self, step: Step, context: OpContext, release: tuple[ScopeVariable, ...], numbers: frozenset[str]
    ) -> None:
        super().__init__(step, context, release)
        holders = {holder.name: holder for found in context.inputs.values() for holder in found if holder is not None}
        others = {} if step.op.type in SIZES else {name: each for name, each in holders.items() if name not in numbers}
        copies = {name: ScopeVariable(name) for name in others}
        self._kept = [holder for name, holder in holders.items() if name in numbers]
        self._copies = [(holder, copies[name]) for name, holder in others.items()]
        inputs = replaced(context.inputs, lambda holder: copies.get(holder.name, holder))
        near = OpContext(step.op, step.info, inputs, context.outputs, context.scope, HostRuntime(context.runtime))
        self._near = BoundStep(step, near, ())

    def run(self) -> None:
        """Compute; numbers that were fed, or that the GPU has computed, stay on the host from now on."""
        for holder in self._kept:
            if not is_here(holder.value, NUMPY):
                holder.value = moved(holder.value, NUMPY)
        if len(self._copies) > 1 and not self._kept:
            super().run()  # and one copy, in place of several
            return
        for holder, copy in self._copies:
            copy.value = moved(holder.value, NUMPY)
        self._near.run()


class NumberElsewhere(ScopeVariable):
    """A number as operators read it that compute on the GPU: a copy there."""

    __slots__ = ("_runtime", "_source")

    def __init__(self, source: ScopeVariable, runtime: Any) -> None:
        self.name, self.pending_lod = source.name, None
        self._source, self._runtime = source, runtime

    @property
    def value(self) -> Any:
        """The copy, made now."""
        return moved(self._source.value, self._runtime.device)


def with_copies(
    op: Operator, inputs: Inputs, numbers: frozenset[str], copies: dict[str, ScopeVariable], runtime: Any
) -> Inputs:
    """The inputs of an operator that computes on the GPU: those of them that are numbers are copies, made when it reads them."""
    if op.type in BRANCHES:
        return inputs

    def copied(holder: ScopeVariable) -> ScopeVariable:
        if holder.name not in numbers:
            return holder
        if holder.name not in copies:
            copies[holder.name] = NumberElsewhere(holder, runtime)
        return copies[holder.name]

    near = READ.get(op.type, "")
    return {**replaced(inputs, copied), **{slot: found for slot, found in inputs.items() if slot == near}}


def replaced(inputs: Inputs, by: Callable[[Any], Any]) -> dict[str, tuple[Any, ...]]:
    """The same inputs of other variables."""
    return {slot: tuple(None if each is None else by(each) for each in found) for slot, found in inputs.items()}
