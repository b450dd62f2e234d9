"""The kernel call builder: calls that any kind of node may need."""

from __future__ import annotations

from dataclasses import field
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.layouts import Plain, Pointer, merged
from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import NONE, Activation, Shape

Strided = tuple[Pointer, Shape]  # a place in memory, with the strides of the axes
SMALL = 20_000  # multiplications below which a call is not split into tasks


def task_count(library: Library, work: int, most: int) -> int:
    """The number of tasks for a kernel call with this many multiplications."""
    threads = library.threads
    return max(1, min(most, 4 * threads)) if threads > 1 and work > SMALL else 1


@dataclass(slots=True)
class CallBuilder:
    """The kernel calls of a region, in order."""

    library: Library
    made: list[KernelCall] = field(default_factory=list)

    def add(self, arguments: abi.Arguments[Pointer], tasks: int = 1, activation: Activation = NONE) -> None:
        """Append a kernel call."""
        self.made.append(KernelCall(arguments, tasks, activation))

    def task_count(self, work: int, most: int) -> int:
        """The number of tasks for a kernel call with this many multiplications."""
        return task_count(self.library, work, most)

    def copy(self, source: Plain, target: Plain, shape: Shape) -> None:
        """A call that moves a strided array."""
        sizes, (read, written) = merged(shape, [source.strides, target.strides])
        need(len(sizes) <= 6, "a copy of more than six axes")
        padded = [1] * (6 - len(sizes))
        arguments = abi.Copy(
            source=(source.buffer, source.offset), out=(target.buffer, target.offset), shape=(*padded, *sizes),
            source_strides=(*padded, *read), out_strides=(*padded, *written),
        )  # fmt: skip
        self.add(arguments, task_count(self.library, prod(shape), prod(sizes[:-1])))

    def elementwise(
        self, operation: int, shape: Shape, source: Strided, other: Strided | None, out: Strided, activation: Activation,
        added: Strided | None = None,
    ) -> None:  # fmt: skip
        """A call over axes `shape`."""
        places = [place for place in (source, out, other, added) if place is not None]
        sizes, strides = merged(shape, [place[1] for place in places])
        need(len(sizes) <= 5 and strides[1][-1] in (0, 1), "an elementwise operation over more than five axes")
        need(all(stride[-1] in (0, 1) for stride in strides), "an elementwise operation over strided rows")
        if strides[1][-1] == 0:
            sizes, strides = [*sizes, 1], [[*stride, 1] for stride in strides]
            need(len(sizes) <= 5, "an elementwise operation over more than five axes")
        need(added is None or (other is not None and strides[-1][-1] == 1), "an addition to rows of single numbers")
        ones, zeros = [1] * (5 - len(sizes)), [0] * (5 - len(sizes))
        outer = [[*zeros, *stride[:-1]] for stride in strides]
        absent = [0] * 4
        arguments = abi.Elementwise(
            source=source[0], other=None if other is None else other[0], added=None if added is None else added[0],
            out=out[0], shape=(*ones, *sizes[:-1]), columns=sizes[-1], operation=operation,
            source_strides=outer[0], source_column=strides[0][-1], out_strides=outer[1],
            other_strides=absent if other is None else outer[2], other_column=0 if other is None else strides[2][-1],
            added_strides=absent if added is None else outer[-1],
        )  # fmt: skip
        work = prod(sizes) * (20 if activation.kind > 2 else 2)
        self.add(arguments, task_count(self.library, work, max(prod(sizes[:-1]), sizes[-1] // 64)), activation)
