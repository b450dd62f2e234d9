"""Chains: a convolution and the elementwise operators right after it, computed in place on numpy.

Results are bit for bit those of the operators one by one: the same sums in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.elementwise_common import aligned
from fluidtool.ops.math.rectified import rectified
from fluidtool.ops.math.repeated import repeated
from fluidtool.ops.nn.batch_norm import channels_with, running_line, uses_running_statistics
from fluidtool.records import dataclass
from fluidtool.runtime.step import BoundStep, Step
from fluidtool.tensor import LoDTensor

HEADS = frozenset({"conv2d", "depthwise_conv2d"})  # each result is a new array without other references
STATISTICS = ("Scale", "Bias", "Mean", "Variance")
Lines = dict[str, tuple[list[Any], Any, tuple[Any, Any]]]
Inputs = dict[str, Any]  # by slot; None is the array of the previous step


@dataclass(frozen=True, slots=True)
class Chain:
    """Consecutive steps, each the only reader of the result of the previous one.

    `lines` are the scale and shift of each batch_norm, by its result, with the arrays that they were computed from and the
    shape and data type that they are for.
    """

    steps: tuple[Step, ...]
    lines: Lines = field(default_factory=dict)

    @property
    def release(self) -> tuple[str, ...]:
        """Names that are dead after the last step, except those written again (where variables share a name)."""
        dead: dict[str, None] = {}
        for step in self.steps:
            dead = {name: None for name in dead if name not in step.op.output_arg_names} | dict.fromkeys(step.release)
        return tuple(dead)


def find_chains(steps: Sequence[Step], used: Sequence[set[str]], kept: frozenset[str]) -> list[Step | Chain]:
    """The steps grouped into chains. used: all names that each step mentions; kept: names needed afterwards."""
    mentions = Counter(name for names in used for name in names)
    found: list[Step | Chain] = []
    links: list[Step] = []

    def close() -> None:
        found.extend(links if len(links) < 2 else [Chain(tuple(links))])
        links.clear()

    for step in steps:
        if not (links and _continues(links[-1], step, mentions, kept)):
            close()
        if links or step.op.type in HEADS:
            links.append(step)
        else:
            found.append(step)
    close()
    return found


def _continues(before: Step, step: Step, mentions: Mapping[str, int], kept: frozenset[str]) -> bool:
    """Whether the step changes the previous one's result, nothing else mentions it, and further outputs are not used."""
    op, made = step.op, before.op.output(before.info.outputs[0].name)
    if op.type not in CHANGES or len(made) != 1 or made[0] in kept or mentions[made[0]] != 2:
        return False
    result = op.output(step.info.outputs[0].name)
    further = [name for name in op.output_arg_names if name not in result and name not in op.input_arg_names]
    return (
        op.input_arg_names.count(made[0]) == 1
        and made[0] not in op.output_arg_names
        and not any(mentions[name] > 1 or name in kept for name in further)
    )


class BoundChain:
    """A chain whose names have been looked up."""

    __slots__ = ("_current", "lines", "release", "steps")

    def __init__(self, chain: Chain, steps: Sequence[BoundStep], release: tuple[Any, ...]) -> None:
        self.steps, self.lines, self.release = steps, chain.lines, release
        self._current = 0

    @property
    def context(self) -> OpContext:
        """The operator that is running, for messages."""
        return self.steps[self._current].context

    def run(self) -> None:
        """Run in place; from a step on that has a LoD, other data types or a larger result, one by one."""
        head, *others = self.steps
        self._current = 0
        array = head.compute()
        in_place = _inputs(head) is not None and isinstance(array, head.context.xp.ndarray)
        last: BoundStep | None = head
        for number, step in enumerate(others, 1):
            self._current = number
            in_place = in_place and self._changed(step, array)
            if in_place:
                last = step
                continue
            if last is not None:
                last.store(array)
                last = None
            step.run()
        if last is not None:
            last.store(array)

    def _changed(self, step: BoundStep, array: Any) -> bool:
        """Apply the step to the array; False if the step must run separately."""
        inputs = _inputs(step)
        if inputs is None or sum(value is None for value in inputs.values()) != 1:
            return False
        return CHANGES[step.context.op.type](step, inputs, array, self.lines)


def _inputs(step: BoundStep) -> Inputs | None:
    """The input arrays of a step; None if one has a LoD, which the results would get."""
    found: Inputs = {}
    for slot, _, holders in step.args:
        for holder in holders[:1]:
            value = holder.value if holder is not None else None
            if not (value is None or isinstance(value, LoDTensor)) or (value is not None and value.offsets):
                return None
            found[slot.name] = None if value is None else value.array
    return found


def _fits(array: Any, operand: Any) -> bool:
    """Whether the result of array and operand has the array's shape and data type."""
    return bool(
        operand.dtype == array.dtype
        and operand.ndim == array.ndim
        and all(size in (1, whole) for size, whole in zip(operand.shape, array.shape, strict=True))
    )


def _add(step: BoundStep, inputs: Inputs, array: Any, lines: Lines) -> bool:
    other = inputs["Y"] if inputs["X"] is None else inputs["X"]
    pair = (array, other) if inputs["X"] is None else (other, array)
    x, y = aligned(step.context, *pair, step.attrs["axis"])
    operand = y if inputs["X"] is None else x
    if not _fits(array, operand) or (inputs["X"] is not None and operand.shape != array.shape):
        return False
    repeated(step.context.xp, step.context.xp.add, array, operand, out=array)
    return True


def _batch_norm(step: BoundStep, inputs: Inputs, array: Any, lines: Lines) -> bool:
    ctx = step.context
    if inputs["X"] is not None or not ctx.settled(None, lambda: _is_line(ctx)):
        return False
    statistics, name, form = [inputs[slot] for slot in STATISTICS], ctx.op.output("Y")[0], (array.shape, array.dtype)
    kept = lines.get(name)
    if kept is None or kept[1] != form or any(a is not b for a, b in zip(kept[0], statistics, strict=True)):
        line = running_line(ctx, channels_with(ctx, array, *statistics), *statistics)
        if not all(_fits(array, operand) for operand in line):
            return False
        kept = lines[name] = statistics, form, line
    factor, shift = kept[2]
    repeated(ctx.xp, ctx.xp.multiply, array, factor, out=array)
    repeated(ctx.xp, ctx.xp.add, array, shift, out=array)
    return True


def _is_line(ctx: OpContext) -> bool:
    """Whether a batch_norm only multiplies and adds."""
    return uses_running_statistics(ctx) and not ctx.attr("fuse_with_relu")


def _relu(step: BoundStep, inputs: Inputs, array: Any, lines: Lines) -> bool:
    rectified(step.context.xp, array, out=array)
    return True


CHANGES: Mapping[str, Callable[[BoundStep, Inputs, Any, Lines], bool]] = {
    "batch_norm": _batch_norm,
    "elementwise_add": _add,
    "relu": _relu,
}
