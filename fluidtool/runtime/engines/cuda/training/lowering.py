"""A training step -> calls: its graph, then the updates, then what else changes at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Buffer, Call, Place, Pointer, row_major
from fluidtool.runtime.engines.cuda.lowering import LARGEST, Lowering, cleared
from fluidtool.runtime.engines.cuda.training import drawing, reductions
from fluidtool.runtime.engines.cuda.training.attention import with_attention
from fluidtool.runtime.engines.cuda.training.building import BuiltStep
from fluidtool.runtime.engines.cuda.training.checking import Checked, checks
from fluidtool.runtime.engines.cuda.training.counters import COUNTED, store_counters
from fluidtool.runtime.engines.cuda.training.halves import narrow_values
from fluidtool.runtime.engines.cuda.training.kernels import update, update_rows, with_biases
from fluidtool.runtime.engines.cuda.training.softmax import with_softmax
from fluidtool.runtime.engines.cuda.training.updates import stored
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import Graph, Value

LOWERING = (drawing, reductions)
"""The modules that lower further kinds of nodes."""


@dataclass(frozen=True, slots=True)
class LoweredStep:
    """The calls of a training step, the value that each computes, and the buffers of its inputs, its states by name, and its
    outputs by name. mark: becomes 1 if a number that is to be marked is out of range, else 0; None without any.
    """

    calls: tuple[Call, ...]
    inputs: Mapping[Value, Buffer]
    states: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]
    graph: Graph
    results: tuple[Value | None, ...] = ()
    mark: Buffer | None = None


def lower_step(
    step: BuiltStep,
    given: Sequence[Value],
    states: Mapping[str, Value],
    wanted: Sequence[str],
    libraries: frozenset[str],
    constants: dict[str, Buffer],
    half: str = "",
    first: frozenset[Value] = frozenset(),
) -> LoweredStep:
    """The calls of a step. given: values that are copied in for every run. Raises UnsupportedError.

    half: 'fp16' or 'bf16' to keep activations and their gradients in 16 bits. first: images whose channels lie first.
    """
    results = [step.values[name] for name in wanted]
    ends = [*step.stores.values(), *(each.gradient for each in step.updates if each.gradient is not None)]
    numbers = [each.numbers for each in step.updates] + [each.numbers for each in step.row_updates]
    ends += [number for each in numbers for number in each]
    exact = [*ends, *step.reductions]
    ends += [grad for each in step.row_updates for grad in each.rows.grads]
    ends += step.reductions  # the other ranks wait for them
    ends += [value for value, _ in step.marked]
    graph = Graph((*given, *states.values()), list(dict.fromkeys([*results, *ends])), step.nodes).without_unread()
    graph = with_biases(with_softmax(with_attention(graph, bool(half) and "cudnn" in libraries)))
    read = {value for node in graph.nodes for value in node.inputs} | set(graph.outputs)
    read |= {ids for each in step.row_updates for ids in each.rows.ids}
    places, inputs, owned = {}, {}, {}
    for value in given:
        if value in read:
            need(prod(value.shape) <= LARGEST, f"{value.name} of more than {LARGEST} elements")
            inputs[value] = Buffer(value.floats, "input", integer=value.integer)
            places[value] = Place(inputs[value], row_major(value.shape))
    updated = [each.states for each in step.updates] + [each.states for each in step.row_updates]
    changed = {value for each in updated for value in each} | {states[name] for name in step.stores}
    for name, value in states.items():
        if value in read or value in changed:
            owned[name] = Buffer(value.floats, "state", integer=value.integer)
            places[value] = Place(owned[name], row_major(value.shape))
    low = Lowering(graph, libraries, constants, places=places, apart=frozenset(results), half=half, first=first)
    low.narrow = narrow_values(graph, exact)
    low.inlined.update({node.output: node for node in graph.nodes if node.kind == COUNTED})
    low.nodes()
    outputs = low.outputs(results)  # before anything changes
    for each in step.row_updates:
        update_rows(low, each)
    update(low, step.updates)
    update(low, [stored(states[name], value) for name, value in step.stores.items() if not value.integer])
    store_counters(low, [(states[name], value) for name, value in step.stores.items() if value.integer])
    if step.marked:
        mark_beyond(low, step)
    low.name_calls(None)
    return LoweredStep(
        tuple(low.calls), inputs, owned, dict(zip(wanted, outputs, strict=True)), graph, tuple(low.results), low.mark
    )


def mark_beyond(low: Lowering, step: BuiltStep) -> None:
    """Note whether numbers are out of range."""
    numbers = [Checked(low.contiguous(value).pointer, prod(value.shape), bound) for value, bound in step.marked]
    low.calls += [cleared(low.outside()), *checks(numbers, Pointer(low.outside()), one_flag=True)]
