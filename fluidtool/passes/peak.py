"""How many bytes the activations of a program need: estimated from shapes, or measured in a run.

Activations are LoDTensors that are not persistable. Two figures: what they need when each variable keeps its memory to
the end of the run, as Paddle's executor did before it collected garbage, which is what `memory_optimize` makes smaller;
and the most that is in use at once when every value goes after its last use. The second is a lower bound of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.reuse import original_names, with_original_names
from fluidtool.ops.inference import Inferred, infer_program
from fluidtool.ops.schema import TensorMeta
from fluidtool.passes.cost import input_metas
from fluidtool.passes.liveness import Liveness, Trace, liveness
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.memory import MemoryMeter
from fluidtool.tensor import numpy_dtype

DELETE = "delete_var"


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of activations.

    `all_variables`: when every variable keeps its memory, each as large as its largest value. `at_once`: the most in use
    while one operator runs, when values go after their last use. `unknown`: variables whose size cannot be told.
    """

    all_variables: int = 0
    at_once: int = 0
    unknown: tuple[str, ...] = ()


def estimate(program: Program, shapes: Mapping[str, Sequence[int]] | None = None, batch: int = 1) -> MemoryUse:
    """What the program's declarations and operators say.

    shapes: those of inputs, where they are known. batch: what sizes count that only a run can tell. Blocks within count
    as if they ran once.
    """
    return estimates(program, shapes, batch)[0]


def until_deleted(program: Program, shapes: Mapping[str, Sequence[int]] | None = None, batch: int = 1) -> int:
    """The most that is in use at once when memory goes by `delete_var` operators alone, as in Paddle's old executor.

    That is what `release_memory` makes smaller, and `memory_optimize` too. Arguments as of `estimate`.
    """
    return estimates(program, shapes, batch)[1]


def estimates(
    program: Program, shapes: Mapping[str, Sequence[int]] | None = None, batch: int = 1
) -> tuple[MemoryUse, int]:
    """What `estimate` and `until_deleted` say, by one walk through the program."""
    walk = _Walk(program, shapes or {}, batch)
    at_once = walk.follow(program.global_block())
    return MemoryUse(sum(walk.largest.values()), at_once, tuple(walk.unknown)), walk.most_held


@dataclass(frozen=True, slots=True)
class MemorySteps:
    """Bytes of activations at each operator of block 0 that is no `delete_var`. held: if these alone free memory, as in
    Paddle's old executor. in_use: if every value goes after its last use.
    """

    held: tuple[int, ...]
    in_use: tuple[int, ...]


def memory_steps(program: Program, shapes: Mapping[str, Sequence[int]] | None = None, batch: int = 1) -> MemorySteps:
    """How the figures of `estimates` come about, operator by operator. Arguments as of `estimate`."""
    walk = _Walk(program, shapes or {}, batch)
    walk.follow(program.global_block())
    return MemorySteps(tuple(walk.held_at), tuple(walk.in_use_at))


def measure(
    program: Program,
    feed: Mapping[str, Any],
    scope: Scope,
    fetches: Collection[str] = (),
    executor: Executor | None = None,
) -> MemoryUse:
    """Run the program once and look at the arrays in its variables after every operator.

    Memory that several variables share counts once in `at_once`. Persistable variables change as in any run. Raises
    what `Executor.run` raises.
    """
    meter = MemoryMeter()
    (executor or Executor(engine="numpy")).run(program, feed, list(fetches), scope, observer=meter.observe)
    return MemoryUse(sum(meter.largest.values()), meter.peak)


class Sizes:
    """Sizes by name, and what they are together."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.total = 0

    def put(self, name: str, size: int) -> None:
        """Give a name a size, in place of the one it has."""
        self.total += size - self.sizes.get(name, 0)
        self.sizes[name] = size

    def drop(self, name: str) -> None:
        """Forget a name, if it is there."""
        self.total -= self.sizes.pop(name, 0)


def _edges(flow: Liveness) -> tuple[list[list[str]], list[list[str]]]:
    """For each operator the names that come into use at it, and those that are in use at it for the last time."""
    begins: list[list[str]] = [[] for _ in flow.operators]
    ends: list[list[str]] = [[] for _ in flow.operators]
    for name, spans in flow.occupied.items():
        for first, last in spans:
            begins[first].append(name)
            ends[last].append(name)
    return begins, ends


class _Walk:
    """Follows a program operator by operator; knows which variable a shared name stands for at each of them."""

    def __init__(self, program: Program, shapes: Mapping[str, Sequence[int]], batch: int) -> None:
        self.program, self.batch = program, batch
        self.plain = program.known(with_original_names, program)
        inputs = [name for name, var in program.global_block().vars.items() if var.is_data or name in shapes]
        inferred = infer_program(self.plain, input_metas(program, inputs, batch, {n: tuple(shapes[n]) for n in shapes}))
        self.inferred: Inferred = inferred
        self.largest: dict[tuple[int, str], int] = {}
        self.unknown: dict[str, None] = {}
        self.held = Sizes()  # by name, what is not deleted by now of block 0
        self.most_held = 0
        self.held_at: list[int] = []  # each operator of block 0 except those that delete
        self.in_use_at: list[int] = []

    def follow(self, block: Block) -> int:
        """The most that is in use at once in a block and those within; collects the largest value of every name."""
        flow = liveness(Trace((block,)))
        begins, ends = _edges(flow)
        current: dict[str, str] = {}
        in_use = Sizes()
        most = 0
        for position, op in enumerate(flow.operators):
            originals = original_names(op)
            current.update((name, originals.get(name, name)) for name in op.output_arg_names)
            within = max((self.follow(self.program.block(i)) for i in op.sub_blocks() if i > block.idx), default=0)
            fresh = {*begins[position], *(name for name in op.output_arg_names if name in in_use.sizes)}
            for name in fresh:
                in_use.put(name, self._size(block, op, name, current.get(name, name)))
            running = in_use.total + within
            most = max(most, running)
            if block.idx == 0:
                self._hold(fresh, in_use, within)
            for name in ends[position]:
                in_use.drop(name)
            if block.idx == 0 and op.type == DELETE:
                for name in op.input_arg_names:
                    self.held.drop(name)
                self._hold((name for name in op.input_arg_names if name in in_use.sizes), in_use, 0)
            elif block.idx == 0:
                self.held_at.append(self.held.total + within)
                self.in_use_at.append(running)
        return most

    def _hold(self, fresh: Iterable[str], in_use: Sizes, within: int) -> None:
        """Keep what comes into use until it is deleted, each name as large as its largest value."""
        for name in fresh:
            self.held.put(name, max(self.held.sizes.get(name, 0), in_use.sizes[name]))
        self.most_held = max(self.most_held, self.held.total + within)

    def _size(self, block: Block, op: Operator, name: str, original: str) -> int:
        """The bytes of a variable that this block declares, 0 for others; the largest value of its name is kept."""
        var = block.vars.get(name)
        if var is None or var.persistable or var.type != VarType.LOD_TENSOR:
            return 0
        size = self._bytes(self.inferred.find(self.plain.block(block.idx), original))
        if size is None:
            self.unknown[original] = None
        key = block.idx, name
        self.largest[key] = max(self.largest.get(key, 0), size or 0)
        return size or 0

    def _bytes(self, meta: TensorMeta | None) -> int | None:
        if meta is None:
            return None
        return prod(self.batch if size < 0 else size for size in meta.shape) * numpy_dtype(meta.dtype).itemsize
