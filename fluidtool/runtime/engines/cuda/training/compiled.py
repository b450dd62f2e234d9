"""A training step on one GPU: its memory, what is drawn and checked before a run, and one CUDA graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import Any

import numpy as np

from fluidtool import locks
from fluidtool.distribute.collective.engines import joins_graphs
from fluidtool.errors import NEEDS_LESS, FluidError, OutOfMemoryError
from fluidtool.ir import Operator, Program
from fluidtool.ir.collectives import uses_rings
from fluidtool.ops.context import Device
from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.arena import lay_out
from fluidtool.runtime.engines.cuda.calls import BYTES, Buffer, Call, Reduction
from fluidtool.runtime.engines.cuda.moving import Inputs, Mover
from fluidtool.runtime.engines.cuda.region import Constants, Libraries, Work, constants_of, too_large, work_of
from fluidtool.runtime.engines.cuda.training.building import BuiltStep, Draw, Rings
from fluidtool.runtime.engines.cuda.training.importing import build_step, is_of_loops, may_be_in_step, refusal
from fluidtool.runtime.engines.cuda.training.looking import Look, look_before
from fluidtool.runtime.engines.cuda.training.lowering import LoweredStep, lower_step
from fluidtool.runtime.engines.cuda.training.sequences import reads_lods
from fluidtool.runtime.engines.cupy.kernels import drawing, parts
from fluidtool.runtime.graph.bounds import Bound, are_within
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import EngineFaultError, Shape

STATE_WORDS = 6
BUGS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)  # of the lowering
Generators = Callable[[int], np.random.Generator]


@dataclass(eq=False, slots=True)
class CudaStep:
    """A training step compiled for one GPU. States are changed where they are; inputs are copied to where its graph reads."""

    device: Device
    calls: tuple[Call, ...]
    work: Work
    names: tuple[str, ...]  # of the inputs
    inputs: Inputs
    outputs: Mapping[str, Any]
    types: tuple[Any, ...]  # of the outputs outside
    mover: Mover
    lods: Mapping[str, str | Lod]
    shapes: Mapping[str, Shape]
    draws: tuple[Draw, ...]
    drawn: Any  # where each drawing begins
    kept: tuple[Any, ...]  # what library calls know by its address alone
    memory: int
    bounds: tuple[Bound, ...]  # of ids, also of computed ones, for which the host waits
    checks: Work | None  # of those on the GPU
    flags: Any  # which of them are not
    rings: tuple[Any, ...]  # whose sums a step waits for
    mark: Any = (
        None  # whether an id of a step of a loop is out of range, for which nobody waits; None if it looks up none
    )
    lock: Lock = field(default_factory=locks.lock)  # of its memory

    def run(
        self, given: Mapping[str, Any], generator: Generators, on_host: Mapping[str, Any], run: object = None
    ) -> tuple[dict[str, Any], Any] | None:
        """The outputs (fresh arrays), after the states have changed; None, and nothing has changed, if an id is out of range.

        Nobody waits for ids that are `on_host`, too. Inputs that are the same arrays as before in this `run` are not copied again.
        Behind the outputs comes the mark, 1 if an id is out of range, of a step that waits for none; else None.
        """
        with self.lock, self.device.active():
            self.inputs.take([given[name] for name in self.names], run)
            if not self._within_bounds(on_host):
                return None
            if self.draws:
                self.drawn.set(np.array([beginning(generator(each.seed), each) for each in self.draws], np.int64))
            self.work.run()
            for ring in self.rings:
                ring.finish("the sums of a training step")
            if self.mark is None:
                return dict(zip(self.outputs, self.mover.copies(self.outputs.values(), self.types), strict=True)), None
            found = self.mover.copies([*self.outputs.values(), self.mark], [*self.types, self.mark.dtype])
            return dict(zip(self.outputs, found[:-1], strict=True)), found[-1]

    def renewed(self, array: Any) -> Any:
        """Another array of the same memory."""
        with self.device.active():
            return same_memory(self.device.xp, array)

    def _within_bounds(self, on_host: Mapping[str, Any]) -> bool:
        if self.checks is None:
            return True
        if all([bound.name in on_host for bound in self.bounds]):
            return all([are_within(bound, on_host) for bound in self.bounds])
        self.checks.run()
        outside = bool(self.device.host(self.flags).any())
        if outside:
            self.flags.fill(0)
        return not outside


def beginning(generator: np.random.Generator, draw: Draw) -> list[int]:
    """Where a drawing begins, as a kernel reads it; the generator goes on after it."""
    begin = drawing(generator, draw.count, draw.floats)
    words = [*parts(begin.state), *parts(begin.step), int(begin.first), begin.half]
    return [int(np.uint64(word).view(np.int64)) for word in words]


@dataclass(frozen=True, slots=True)
class StepCompiler:
    """Compiles training steps for one GPU. libraries: those that can be loaded. half: what steps keep in memory; '' for float32."""

    device: Device
    libraries: frozenset[str]
    opened: Libraries
    half: str = ""

    @property
    def room(self) -> int:
        """A quarter of the GPU's memory."""
        with self.device.active():
            _, total = self.device.xp.cuda.runtime.memGetInfo()
        return int(total) // 4

    def takes_program(self, program: Program) -> bool:
        """Whether steps of a program may be graphs: not if it sums over GPUs itself, unless FLUIDTOOL_NCCL=1."""
        return joins_graphs(os.environ) or not uses_rings(program)

    def takes(self, op: Operator) -> bool:
        """Whether an operator may have a place in a step."""
        return may_be_in_step(op)

    def unrolls(self, op: Operator) -> bool:
        """Whether an operator has a place in a step because loops do."""
        return is_of_loops(op)

    def refusal(self, op: Operator) -> str:
        """Why a loop has no place in a step, as far as that is known before; '' for other operators."""
        return refusal(op)

    def reads_lods(self, op: Operator) -> bool:
        """Whether what an operator computes depends on the LoDs of its inputs."""
        inner = [each for index in op.sub_blocks() for each in op.block.program.block(index).ops]
        return any(reads_lods(each.type) for each in (op, *inner))

    def compile(
        self,
        operators: Sequence[tuple[Operator, Mapping[str, Any]]],
        given: Mapping[str, Any],
        states: Sequence[str],
        wanted: Sequence[str],
        lods: Mapping[str, Lod] | None = None,
        rings: Rings | None = None,
        inner: bool = False,
    ) -> CudaStep:
        """Compile operators in order. given: arrays by name; `states` among them are used and changed where they are.

        wanted: names of results. lods: of what is given, where operators read them. inner: whether it runs within a loop, and waits
        for no ids. Raises UnsupportedError for an operator
        that has no place in a step, OutOfMemoryError.
        """
        constants: dict[str, Buffer] = {}
        try:
            built, values = build_step(operators, given, states, wanted, lods, rings, inner)
            owned = {
                name: values[name] for name in states if name in values and given[name].dtype == values[name].dtype
            }
            others = [value for name, value in values.items() if name not in owned]
            drawn = [each.state for each in built.draws]
            results = [name for name in wanted if name not in built.shapes]
            parts = (built, [*others, *drawn], owned, results, self.libraries, constants, self.half)
            lowered = lower_step(*parts)
            first = self.opened.channels_first(lowered)
            lowered = lower_step(*parts, first=first) if first else lowered
        except BUGS as error:
            if isinstance(error, FluidError):
                raise
            types = ", ".join(dict.fromkeys(op.type for op, _ in operators))
            raise EngineFaultError(f"{types} cannot be compiled: {type(error).__name__}: {error}") from error
        return self._bound(built, lowered, given)

    def _bound(self, built: BuiltStep, lowered: LoweredStep, given: Mapping[str, Any]) -> CudaStep:
        device, xp = self.device, self.device.xp
        constants = Constants(device, ())
        with device.active():
            offsets, size = lay_out(lowered.calls)
            outputs = {name: built.values[name] for name in lowered.outputs}
            needed = BYTES * (size + sum(value.floats for value in (*lowered.inputs, *outputs.values())))
            try:
                arena = xp.empty(max(size, 1), np.float32)
                drawn = xp.empty((max(len(built.draws), 1), STATE_WORDS), np.int64)
                rows = {each.state: drawn[number] for number, each in enumerate(built.draws)}
                inputs = {
                    value: rows[value] if value in rows else xp.empty(value.shape, value.dtype)
                    for value in lowered.inputs
                }
                results = {name: xp.empty(value.shape, value.dtype) for name, value in outputs.items()}
                mark = None if lowered.mark is None else xp.zeros(1, np.float32)
                fixed = {buffer: constants.on_device(buffer) for buffer in constants_of(lowered.calls)}
            except MemoryError as error:
                count = max((value.shape[0] for value in lowered.inputs if value.shape), default=0)
                raise OutOfMemoryError(too_large(device, needed, count, error), hint=NEEDS_LESS) from error
            owned = {buffer: same_memory(xp, given[name]) for name, buffer in lowered.states.items()}
            arrays = {**fixed, **owned}
            arrays |= {buffer: inputs[value] for value, buffer in lowered.inputs.items()}
            arrays |= {buffer: results[name] for name, buffer in lowered.outputs.items()}
            arrays |= {} if lowered.mark is None else {lowered.mark: mark}
            work = work_of(lowered.calls, lowered.results, arrays, arena, offsets, device, self.opened)
            bounds, checks, flags, kept = self._checks(look_before(built, lowered), arrays, constants)
        copied = {value.name: array for value, array in inputs.items() if value not in rows}
        types = tuple(built.types.get(name, array.dtype) for name, array in results.items())
        rings = tuple(dict.fromkeys(call.ring for call in lowered.calls if isinstance(call, Reduction)))
        return CudaStep(
            device, lowered.calls, work, tuple(copied), Inputs(self.opened.mover, list(copied.values())), results,
            types, self.opened.mover, built.lods, built.shapes, built.draws, drawn,
            (arena, *fixed.values(), *owned.values(), *kept), needed, bounds, checks, flags, rings, mark,
        )  # fmt: skip

    def _checks(
        self, look: Look | None, arrays: Mapping[Buffer, Any], constants: Constants
    ) -> tuple[tuple[Bound, ...], Work | None, Any, tuple[Any, ...]]:
        """The bounds of ids, what looks for those beyond, where it notes them, and the memory that it needs."""
        if look is None:
            return (), None, None, ()
        device, xp = self.device, self.device.xp
        flags, (offsets, size) = xp.zeros(len(look.bounds), np.int64), lay_out(look.calls)
        arena = xp.empty(max(size, 1), np.float32)
        fixed = {buffer: constants.on_device(buffer) for buffer in constants_of(look.calls)}
        own = {**arrays, **fixed, look.flags: flags}
        work = work_of(look.calls, (None,) * len(look.calls), own, arena, offsets, device, self.opened)
        return look.bounds, work, flags, (arena, *fixed.values())


def same_memory(xp: Any, array: Any) -> Any:
    """Another array of the same memory, which does not count as a reference to the first."""
    return xp.ndarray(array.shape, array.dtype, memptr=array.data)
