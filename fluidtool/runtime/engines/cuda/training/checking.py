"""The kernel that looks whether whole numbers are within their bounds."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Launch, Place, Pointer
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import BUSY, THREADS, Source
from fluidtool.runtime.graph.bounds import Bound
from fluidtool.runtime.graph.ir import Graph

AT_ONCE = 200  # bounds of ids, and perhaps of their lengths, that one kernel looks at


@dataclass(frozen=True, eq=False, slots=True)
class Checked:
    """Whole numbers that lie one after the other: where they are, how many, their bound, and the buffer of their lengths."""

    pointer: Pointer
    count: int
    bound: Bound
    lengths: Buffer | None = None


def checks(numbers: Sequence[Checked], flags: Pointer, one_flag: bool = False) -> list[Launch]:
    """The kernels that set the flag of each bound which some of its numbers are beyond. one_flag: all have the same."""
    found = []
    for start in range(0, len(numbers), AT_ONCE):
        into = flags if one_flag else Pointer(flags.buffer, flags.offset + start)
        found.append(_check(numbers[start : start + AT_ONCE], into, one_flag))
    return found


def _check(numbers: Sequence[Checked], flags: Pointer, one_flag: bool) -> Launch:
    src = Source(Lowering(Graph((), [], ()), frozenset(), {}))
    blocks = min(-(-max(each.count for each in numbers) // THREADS), BUSY // THREADS)
    src.lines.append("const int at = blockIdx.x * blockDim.x + threadIdx.x;")
    for number, each in enumerate(numbers):
        bound, ids = each.bound, src.pointer(each.pointer.buffer, each.pointer.offset)
        others = "" if bound.ignored is None else f" && id != {bound.ignored}ll"
        column, columns = bound.column
        if columns > 1:
            others += f" && i % {columns} == {column}"
        if each.lengths is not None:
            width = 2 * each.count // each.lengths.floats
            others += f" && i % {width} < {src.pointer(each.lengths)}[i / {width}]"
        src.lines.append(
            f"for (int i = at; i < {each.count}; i += {blocks * THREADS}) {{ const whole id = {ids}[i]; "
            f"if ((id < 0 || id >= {bound.rows}ll){others}) out[{0 if one_flag else number}] = 1; }}"
        )
    return src.launch(Place(flags.buffer, (1,), flags.offset), blocks, THREADS, "check")
