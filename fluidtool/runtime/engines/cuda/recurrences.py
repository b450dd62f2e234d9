"""Steps of recurrent layers: a product that is added to the gates and a kernel after it; for few rows one kernel does both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Launch, Matrix, Place, Pointer, Product
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import THREADS, Source

FEW = 8
"""Rows up to which one kernel does a step: it keeps a sum for each row in registers and 32 KiB of them in shared memory, of the
48 KiB that a kernel has without asking. With more rows a library's product shares what it reads among them."""
COLUMNS = 32  # of a block, a thread of a warp for each: whole sectors of the weights' rows
SLICES = 32  # of the sums at most, a warp for each
TERMS = 8  # of a slice at least


@dataclass(frozen=True, slots=True)
class Step:
    """A step of sequences, longest first: how many are alive, and where that number is (for kernels that are alike)."""

    number: int
    alive: int
    place: Pointer


def steps_of(low: Lowering, starts: Any) -> list[Step]:
    """The steps, by the first packed row of each and the end of the last one."""
    alive = np.diff(starts)
    table = low.constant(alive)
    return [Step(number, int(count), Pointer(table, number)) for number, count in enumerate(alive)]


def of_step(low: Lowering, step: Step, size: int, out: Place, text: Callable[[Source], list[str]], prefix: str) -> None:
    """A kernel with a thread for each unit of each row that is alive; `row` and `unit` say which."""
    src, alive = Source(low), step.alive
    at = src.thread(f"(int){src.pointer(step.place.buffer, step.place.offset)}[0] * {size}")
    src.lines.append(f"const int row = {at} / {size}, unit = {at} % {size};")
    src.lines += text(src)
    low.calls.append(src.launch(out, -(-alive * size // THREADS), THREADS, prefix))


# ---------------------------------------------------------------- products within steps
OfSums = Callable[[Source, Sequence[str]], list[str]]  # statements of a unit of a row, from the sums of its gates


@dataclass(frozen=True, slots=True)
class Recurrence:
    """gates[rows, parts * size] + state[rows, depth] · weights[depth, parts * size]; without a state gates alone.

    No kernel that is given one may write the state: blocks do not wait for each other.
    """

    gates: Matrix
    state: Matrix | None
    weights: Matrix
    depth: int
    parts: int

    def is_one_call(self, step: Step) -> bool:
        """Whether the kernel of a step computes the product, too; the sums are in no memory then."""
        return self.state is not None and step.alive <= FEW


def recurrent_step(
    low: Lowering, step: Step, size: int, out: Place, recurrence: Recurrence, text: OfSums, prefix: str
) -> None:
    """A step of a layer of this size: `text` is what each unit of each row that is alive does with the sums of its gates."""
    state, gates, columns = recurrence.state, recurrence.gates, recurrence.parts * size
    if state is not None and recurrence.is_one_call(step):
        low.calls.append(_summed(low, step, size, out, recurrence, state, text, prefix))
        return
    if state is not None:
        product = Product(state, recurrence.weights, gates, step.alive, recurrence.depth, columns, added=gates)
        low.calls.append(product)

    def lines(src: Source) -> list[str]:
        source = src.pointer(gates.pointer.buffer, gates.pointer.offset)
        return text(src, [f"{source}[row * {gates.step} + {k * size} + unit]" for k in range(recurrence.parts)])

    of_step(low, step, size, out, lines, prefix)


def _summed(
    low: Lowering, step: Step, size: int, out: Place, recurrence: Recurrence, state: Matrix, text: OfSums, prefix: str
) -> Launch:
    """The kernel of a step with the product in it: blocks of some units, the sums over the depth in slices, joined in order."""
    src, rows, units, depth = Source(low), step.alive, COLUMNS // recurrence.parts, recurrence.depth
    slices = min(SLICES, -(-depth // TERMS))
    threads = slices * COLUMNS
    src.lines += [
        f"__shared__ float sums[{slices * rows * COLUMNS}];",
        f"const int me = threadIdx.x, column = me % {COLUMNS}, slice = me / {COLUMNS};",
        f"const int mine = blockIdx.x * {units} + column % {units}, place = column / {units} * {size} + mine;",
        *_slice(src, size, recurrence, state, rows, -(-depth // slices)),
        "__syncthreads();",
        f"for (int i = me; i < {rows * COLUMNS}; i += {threads}) {{",
        "    float total = sums[i];",
        "    #pragma unroll",
        f"    for (int s = 1; s < {slices}; s++) total += sums[s * {rows * COLUMNS} + i];",
        "    sums[i] = total;",
        "}",
        "__syncthreads();",
        f"for (int task = me; task < {rows * units}; task += {threads}) {{",
        f"const int row = task / {units}, own = task % {units}, unit = blockIdx.x * {units} + own;",
        f"if (unit >= {size}) continue;",
        *text(src, [f"sums[row * {COLUMNS} + {k * units} + own]" for k in range(recurrence.parts)]),
        "}",
    ]
    return src.launch(out, -(-size // units), threads, prefix)


def _slice(src: Source, size: int, recurrence: Recurrence, state: Matrix, rows: int, terms: int) -> list[str]:
    """A thread's part of the sums of its column, one for each row; the first slice begins with the gates."""
    weights, gates = (
        src.pointer(each.pointer.buffer, each.pointer.offset) for each in (recurrence.weights, recurrence.gates)
    )
    states = src.pointer(state.pointer.buffer, state.pointer.offset)
    return [
        f"float found[{rows}];",
        f"const bool inside = mine < {size};",
        f"for (int r = 0; r < {rows}; r++)",
        f"    found[r] = slice == 0 && inside ? {gates}[r * {recurrence.gates.step} + place] : 0.0f;",
        "#pragma unroll 8",
        f"for (int i = 0; i < {terms}; i++) {{",
        f"    const int k = slice * {terms} + i;",
        f"    if (k >= {recurrence.depth} || !inside) continue;",
        f"    const float w = {weights}[k * {recurrence.weights.step} + place];",
        f"    for (int r = 0; r < {rows}; r++) found[r] += {states}[r * {state.step} + k] * w;",
        "}",
        f"for (int r = 0; r < {rows}; r++) sums[(slice * {rows} + r) * {COLUMNS} + column] = found[r];",
    ]
