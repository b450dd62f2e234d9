"""What is looked at before a training step, which changes parameters: whether ids, labels and lengths are within bounds."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Call, Place, Pointer, row_major
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.training.building import BuiltStep
from fluidtool.runtime.engines.cuda.training.checking import Checked, checks
from fluidtool.runtime.engines.cuda.training.lowering import LoweredStep
from fluidtool.runtime.graph.bounds import Bound
from fluidtool.runtime.graph.ir import Graph, Node, Value, operands


@dataclass(frozen=True, eq=False, slots=True)
class Look:
    """The calls that look, the bounds, and the buffer of a flag for each, which becomes 1 for one that is not kept."""

    calls: tuple[Call, ...]
    bounds: tuple[Bound, ...]
    flags: Buffer


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
    low.calls += checks(numbers, Pointer(flags))
    return Look(tuple(low.calls), tuple(each.bound for each in numbers), flags)


def _is_made_of(value: Value, made: Mapping[Value, Node], given: Container[Value]) -> bool:
    """Whether a value is computed of constants and of what is given: a step that does not read an input does not have it."""
    if value in made:
        return all(_is_made_of(each, made, given) for each in operands(made[value]))
    return value.array is not None or value in given
