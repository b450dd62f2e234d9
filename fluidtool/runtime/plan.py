"""Plan: a program compiled for one set of feeds and fetches. Bound to a scope, it is a loop over steps.

A Plan has one BlockPlan per block, compiled on first use. A BlockPlan is a list of Steps: operator, kernel, parsed
attributes, the names it reads and writes, the names that are dead after it. `bind` looks every name up once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fluidtool import locks
from fluidtool.errors import ProgramError
from fluidtool.ir import Operator, Program
from fluidtool.ir.reuse import unshared, with_original_names
from fluidtool.ir.structure import structure_fault
from fluidtool.ops.registry import OpInfo
from fluidtool.records import dataclass
from fluidtool.runtime.bindings import Bindings, bindings_of
from fluidtool.runtime.block import BlockPlan, BoundBlock, compile_block
from fluidtool.runtime.dependencies import trains
from fluidtool.runtime.engines.base import Engine
from fluidtool.runtime.engines.numpy import keep_freed_memory
from fluidtool.runtime.scope import Scope

if TYPE_CHECKING:
    from fluidtool.ops.control_flow.compiled import CompiledLoop


@dataclass(slots=True)
class Plan:
    """A program compiled for these fetches; `needed_only` drops operators that they do not depend on.

    `program` is the one given, or a copy of it in which variables that would be in the way do not share memory: those that
    are fetched, and all of them where an engine computes or a loop is trained.
    `engine` runs whole regions of an inference program, and single operators faster; without one, every step runs
    its operator's kernel. `kept` are the persistable variables by scope, `resting` the
    bound block 0 of the last run there, for reuse; `loops` those that the engine has compiled, or has no instructions for.
    """

    program: Program
    fetches: tuple[str, ...]
    needed_only: bool = False
    engine: Engine | None = None
    blocks: dict[int, BlockPlan] = field(default_factory=dict)
    kept: WeakKeyDictionary[Scope, Bindings] = field(default_factory=WeakKeyDictionary, repr=False)
    resting: WeakKeyDictionary[Scope, BoundBlock] = field(default_factory=WeakKeyDictionary, repr=False)
    numbers: frozenset[str] | None = None
    calls_python: bool = False
    kernels: dict[str, Any] = field(default_factory=dict, repr=False)
    loops: dict[Any, CompiledLoop | None] = field(default_factory=dict, repr=False)
    lock: Lock = field(default_factory=locks.lock, repr=False)  # held while a block is compiled

    def __post_init__(self) -> None:
        fault = structure_fault(self.program)
        if fault:
            raise ProgramError(f"the program cannot run: it {fault}")
        # Engines share memory themselves, and fuse by who reads what.
        compiled = self.engine is not None
        blocks = self.program.blocks
        types = {op.type for block in blocks for op in block.ops}
        is_trained = any(trains(op) for block in blocks for op in block.ops)
        if not compiled or len(blocks) > 1 or is_trained:
            keep_freed_memory()  # training and loops run operator by operator, each with new arrays
        compiler = None if self.engine is None else self.engine.step_compiler
        within = len(blocks) > 1 and (not is_trained or "while_grad" in types)
        if compiler is not None and within and compiler.takes_program(self.program):
            from fluidtool.runtime.loop_numbers import loop_numbers  # on GPUs alone

            self.numbers = self.program.known(loop_numbers, self.program)
        self.calls_python = "py_func" in types
        given = self.program
        # Loops that are trained are cut by who reads what, whatever computes (ops/control_flow/loop_parts.py).
        restores = compiled or "while_grad" in types
        self.program = given.known(with_original_names, given) if restores else unshared(given, self.fetches)

    def block(self, index: int) -> BlockPlan:
        """The plan of a block, compiled on first use."""
        plan = self.blocks.get(index)
        if plan is None:
            with self.lock:
                plan = self.blocks.get(index)
                if plan is None:
                    plan = self.blocks[index] = self._compile(index)
        return plan

    def _compile(self, index: int) -> BlockPlan:
        needed_only = self.needed_only and index == 0
        return compile_block(self.program.block(index), self.fetches, needed_only, self.engine, self.numbers)

    def kernel_of(self, info: OpInfo) -> Any:
        """The kernel for a type of operator."""
        kernel = self.kernels.get(info.type)
        if kernel is None:
            kernel = info.kernel if self.engine is None else self.engine.kernel(info.type, info.kernel)
            self.kernels[info.type] = kernel
        return kernel

    def changed_by(self, op: Operator) -> Mapping[str, str]:
        """The inputs that the operator's kernel can change in place, and the outputs that take them over."""
        return {} if self.engine is None or not op.input("Param") else self.engine.updates(op.type)

    def overwritten_by(self, op: Operator) -> tuple[str, ...]:
        """The inputs in whose place the operator's kernel can compute."""
        return () if self.engine is None else self.engine.overwrites(op.type)

    def bindings(self, scope: Scope) -> Bindings:
        """The persistable variables of block 0 in a scope: looked up once while its names stay the same."""
        found = self.kept.get(scope)
        if found is None or found.version != scope.names_version():
            found = self.kept[scope] = bindings_of(self.block(0).persistable_names, scope)
        return found

    def wake(self, scope: Scope, fed: Collection[str]) -> BoundBlock | None:
        """Block 0 as left by an earlier run in the scope, with its own scope attached again.

        None if it is in use or was never bound, if names of the scope have changed, or if that run had
        other feeds.
        """
        block = self.resting.pop(scope, None)
        if block is None or block.bindings is not self.bindings(scope) or block.fed != set(fed):
            return None
        scope.take_in(block.scope)
        return block

    def rest(self, block: BoundBlock, scope: Scope) -> None:
        """Keep block 0 after a run, without values, if nothing else can refer to its variables."""
        if self.block(0).plain and block.forget_values():
            block.scope.parent = None  # else what is kept for the scope would keep the scope alive
            block.runtime.rest()
            self.resting[scope] = block
