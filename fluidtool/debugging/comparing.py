"""Two recordings beside each other: pairs of values in program order, the first that differs, and what has no partner."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fluidtool.debugging.places import Place, nearest, places
from fluidtool.debugging.sides import Recording
from fluidtool.debugging.values import Allowed, NotFinite, compare_values, largest, not_finite
from fluidtool.ir import Operator, Program
from fluidtool.ir.dataflow import operator_effects
from fluidtool.records import dataclass
from fluidtool.tensor.compare import Comparison


@dataclass(frozen=True, slots=True)
class Compared:
    """A value of A beside that of B.

    place: where A computes it, None for an input. partner: its name in B. largest: the largest magnitude in A. rewritten: B
    computes it by another operator or from other parameters, and everything computed from it agrees: it means something else there.
    """

    name: str
    partner: str
    place: Place | None
    comparison: Comparison
    largest: float
    left: NotFinite
    right: NotFinite
    rewritten: bool = False

    @property
    def differs(self) -> bool:
        """Whether the two are further apart than allowed, and mean the same."""
        return not (self.comparison.agrees or self.rewritten)

    @property
    def relative(self) -> float:
        """The largest difference relative to the largest element; infinite where they cannot be compared."""
        if self.comparison.fault or self.left != self.right:
            return float("inf")
        return self.comparison.largest_error / self.largest if self.largest else self.comparison.largest_error


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A value of A that B does not have, and why: the value of B that its computation went into."""

    name: str
    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """All values of A that B has, in program order, and those that it does not have."""

    outputs: tuple[Compared, ...]
    values: tuple[Compared, ...]
    unpaired: tuple[Unpaired, ...]
    extra: tuple[str, ...]  # of B alone


def pair(
    left: Program,
    right: Program | None,
    recordings: tuple[Recording, Recording],
    outputs: Mapping[str, str],
    allowed: Allowed,
) -> Pairs:
    """Compare what both recordings have. right: None for values recorded elsewhere. outputs: of A, with their names in B."""
    mine, other = recordings
    where = places(left)
    judged = {**{name: name for name in where}, **outputs}
    found: list[Compared] = []
    unpaired: list[str] = []
    for name, place in where.items():
        if name in mine.values and judged[name] in other.values and name not in outputs:
            found.append(_compared(name, name, place, mine.values, other.values, allowed))
        elif name in mine.values and name not in outputs:
            unpaired.append(name)
    ends = [_output(name, partner, where.get(name), recordings, allowed) for name, partner in outputs.items()]
    everything = _in_order([*found, *ends], where)
    if right is not None and right is not left:
        everything = _explained(left, right, everything)
    goals = nearest(left, {each.name: each for each in everything})
    writers = {} if right is None else writer_types(right)
    lost = tuple(
        Unpaired(name, where[name], _reason(where[name], goals.get(name, ""), right, writers)) for name in unpaired
    )
    partners = {each.partner for each in everything}
    extra = tuple(
        name for name in (() if right is None else places(right)) if name in other.values and name not in partners
    )
    final = [each for each in everything if each.name in outputs]
    return Pairs(tuple(final), tuple(everything), lost, extra)


def _output(
    name: str, partner: str, place: Place | None, recordings: tuple[Recording, Recording], allowed: Allowed
) -> Compared:
    """An output, as the runs normally give it; one that a side does not have is a difference."""
    mine, other = recordings[0].outputs, recordings[1].outputs
    if name in mine and partner in other:
        return _compared(name, partner, place, mine, other, allowed)
    side = "A" if name not in mine else "B"
    return Compared(name, partner, place, Comparison(name, f"has no value in {side}"), 0.0, NotFinite(), NotFinite())


def _compared(
    name: str,
    partner: str,
    place: Place | None,
    mine: Mapping[str, object],
    other: Mapping[str, object],
    allowed: Allowed,
) -> Compared:
    left, right = mine[name], other[partner]
    found = compare_values(name, left, right, allowed)
    return Compared(name, partner, place, found, largest(left), not_finite(left), not_finite(right))


def _in_order(found: Sequence[Compared], where: Mapping[str, Place]) -> list[Compared]:
    order = {name: number for number, name in enumerate(where)}
    return sorted(found, key=lambda each: order.get(each.name, -1))


def writer_types(program: Program) -> dict[str, str]:
    """The type of the operator of block 0 that writes a value last."""
    return {name: op.type for op in program.global_block().ops for name in op.output_arg_names}


def _reason(place: Place, goal: str, right: Program | None, writers: Mapping[str, str]) -> str:
    if right is None:
        return "not recorded"
    if place.block:
        return f"what block {place.block} computes is not known in B"
    if not goal:
        return "nothing that is compared is computed from it"
    return f"part of {goal} ({writers[goal]})" if goal in writers else f"part of {goal}"


# ---------------------------------------------------------------- values that mean something else in B
def _explained(left: Program, right: Program, found: Sequence[Compared]) -> list[Compared]:
    """Mark what differs because B computes it otherwise, as a fold leaves it, and what agrees again right after."""
    state = {each.name: each for each in found}
    writers = {name: op for op in right.global_block().ops for name in op.output_arg_names}
    after = _agreement_after(left, state)
    return [
        replace(each, rewritten=True)
        if each.place is not None
        and not each.comparison.agrees
        and not each.comparison.fault
        and after.get(each.name, False)
        and _computed_otherwise(each.place.op, writers.get(each.partner))
        else each
        for each in found
    ]


def _agreement_after(program: Program, state: Mapping[str, Compared]) -> dict[str, bool]:
    """For each value that is read: whether all that is computed from it agrees, as far as B has it."""
    after: dict[str, bool] = {}
    for op in reversed(program.global_block().ops):
        if op.type == "fetch":
            after.update({name: False for name in op.input_arg_names})
            continue
        names = [name for name in op.output_arg_names if name in state or name in after]
        if not names:
            continue
        agrees = all(state[name].comparison.agrees if name in state else after[name] for name in names)
        effects = operator_effects(program, op)
        for name in effects.reads - effects.writes:
            after[name] = after.get(name, True) and agrees
    return after


def _computed_otherwise(op: Operator, other: Operator | None) -> bool:
    return other is None or op.type != other.type or _parameters(op) != _parameters(other)


def _parameters(op: Operator) -> Collection[str]:
    found = ((name, op.block.find_var_recursive(name)) for name in op.input_arg_names)
    return [name for name, var in found if var is not None and var.persistable]
