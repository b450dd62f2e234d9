"""What is looked at before a training step, which changes parameters: whether ids, labels and lengths are within bounds."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Call, Launch, Place, Pointer, row_major
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import BUSY, THREADS, Source
from fluidtool.runtime.engines.cuda.training.building import BuiltStep
from fluidtool.runtime.engines.cuda.training.lowering import LoweredStep
from fluidtool.runtime.graph.bounds import Bound
from fluidtool.runtime.graph.ir import Graph, Node, Value, operands

AT_ONCE = 200  # bounds of ids, and perhaps of their lengths, that one kernel looks at


@dataclass(frozen=True, eq=False, slots=True)
class Look:
    """The calls that look, the bounds, and the buffer of a flag for each, which becomes 1 for one that is not kept."""

    calls: tuple[Call, ...]
    bounds: tuple[Bound, ...]
    flags: Buffer


@dataclass(frozen=True, eq=False, slots=True)
class Checked:
    """Whole numbers that lie one after the other: where they are, how many, their bound, and the buffer of their lengths."""

    pointer: Pointer
    count: int
    bound: Bound
    lengths: Buffer | None = None


def look_before(step: BuiltStep, lowered: LoweredStep) -> Look | None:
    """What looks at the inputs of a step, and at whole numbers that are computed of them, once more; None without any."""
    given = {value.name: buffer for value, buffer in lowered.inputs.items()}
    numbers = [
        Checked(Pointer(given[bound.name]), given[bound.name].floats // 2, bound, given.get(bound.lengths))
        for bound in step.bounds
        if bound.name in given
    ]
    made = {node.output: node for node in step.nodes}
    computed = [(value, bound) for value, bound in step.checked if _is_made_of(value, made, lowered.inputs)]
    graph = Graph(tuple(lowered.inputs), [value for value, _ in computed], step.nodes).without_unread()
    places = {value: Place(buffer, row_major(value.shape)) for value, buffer in lowered.inputs.items()}
    low = Lowering(graph, frozenset(), {}, places=places, apart=frozenset())
    low.nodes()
    numbers += [Checked(low.contiguous(value).pointer, prod(value.shape), bound) for value, bound in computed]
    if not numbers:
        return None
    flags = Buffer(2 * len(numbers), "output", integer=True)
    for start in range(0, len(numbers), AT_ONCE):
        low.calls.append(check(numbers[start : start + AT_ONCE], Pointer(flags, start)))
    return Look(tuple(low.calls), tuple(each.bound for each in numbers), flags)


def _is_made_of(value: Value, made: Mapping[Value, Node], given: Container[Value]) -> bool:
    """Whether a value is computed of constants and of what is given: a step that does not read an input does not have it."""
    if value in made:
        return all(_is_made_of(each, made, given) for each in operands(made[value]))
    return value.array is not None or value in given


def check(numbers: Sequence[Checked], flags: Pointer) -> Launch:
    """The kernel that sets the flag of each bound which some of its numbers are beyond."""
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
            f"if ((id < 0 || id >= {bound.rows}ll){others}) out[{number}] = 1; }}"
        )
    return src.launch(Place(flags.buffer, (1,), flags.offset), blocks, THREADS, "check")
