"""Lists of gradient operators before they enter a block: summing what several give, dropping what nobody needs.

The rules and the names that they make are those of Paddle 1.8.5 (backward.py). Slots are walked in the order of their
names, as Paddle's maps are.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.roles import DEVICE_ATTR, ROLE_ATTR, OpRole
from fluidtool.ops.gradient import GRAD, OpDescription
from fluidtool.records import dataclass


def input_arguments(description: OpDescription) -> list[str]:
    """Every variable read, slots in the order of their names."""
    return [name for slot in sorted(description.inputs) for name in description.inputs[slot]]


def output_arguments(description: OpDescription) -> list[str]:
    """Every variable written, slots in the order of their names."""
    return [name for slot in sorted(description.outputs) for name in description.outputs[slot]]


def strip_grad(name: str) -> str:
    """`x@GRAD@RENAME@block0@1` -> `x`."""
    return name.split(GRAD, maxsplit=1)[0]


def backward_op(
    type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], **attrs: object
) -> OpDescription:
    """An operator of the backward pass that is no operator's gradient."""
    return OpDescription(type, inputs, outputs, {**attrs, ROLE_ATTR: int(OpRole.Backward), DEVICE_ATTR: ""})


# ---------------------------------------------------------------- sums
@dataclass(slots=True)
class _Renames:
    """What one gradient variable has been renamed to, because several operators write it."""

    names: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class _Place:
    """Where a name stands: in a slot of an operator, which may have very many."""

    names: list[str]
    index: int

    @property
    def name(self) -> str:
        return self.names[self.index]

    @name.setter
    def name(self, name: str) -> None:
        self.names[self.index] = name


def _places(names: list[str]) -> Iterator[_Place]:
    return (_Place(names, index) for index in range(len(names)))


class _Summing:
    """Gives every writer of a gradient its own name, and sums them up before the first reader."""

    def __init__(self, descriptions: list[OpDescription], block_idx: int) -> None:
        self.descriptions = descriptions
        self.suffix = f"@RENAME@block{block_idx}@"
        self.renames: defaultdict[str, _Renames] = defaultdict(_Renames)
        self.sums: defaultdict[int, list[OpDescription]] = defaultdict(list)  # by the operator that they stand before
        self.mentions: defaultdict[str, list[_Place]] = defaultdict(list)  # where a gradient stands so far

    def run(self) -> list[OpDescription]:
        for position, description in enumerate(self.descriptions):
            reads = dict.fromkeys(input_arguments(description))
            for name in reads:
                if GRAD in name and len(self.renames[name].names) > 1:
                    self._sum(name, position)
                    self.renames[name].names = [name]
            self._note(description.inputs)
            for slot in sorted(description.outputs):
                for place in _places(description.outputs[slot]):
                    self._written(place, reads)
        for name, renames in self.renames.items():
            if len(renames.names) > 1:
                self._sum(name, len(self.descriptions))
        found: list[OpDescription] = []
        for position, description in enumerate(self.descriptions):
            found += [*self.sums.get(position, ()), description]
        return found + self.sums.get(len(self.descriptions), [])

    def _sum(self, name: str, position: int) -> None:
        made = backward_op("sum", {"X": list(self.renames[name].names)}, {"Out": [name]}, use_mkldnn=False)
        self.sums[position].append(made)
        self._note(made.inputs)
        self._note(made.outputs)

    def _note(self, slots: Mapping[str, list[str]]) -> None:
        for names in slots.values():
            for place in _places(names):
                if GRAD in place.name:
                    self.mentions[place.name].append(place)

    def _written(self, place: _Place, reads: Collection[str]) -> None:
        name = place.name
        if GRAD not in name:
            return
        if name != EMPTY and name not in reads:
            self._rename(place, self.renames[name])
        self.mentions[place.name].append(place)

    def _rename(self, place: _Place, renames: _Renames) -> None:
        name = place.name
        if not renames.names:
            renames.names = [name]
            self.mentions.pop(name, None)
            return
        if len(renames.names) == 1:
            self._rename_first(name)
        place.name = self._fresh(name)
        renames.names.append(place.name)

    def _rename_first(self, name: str) -> None:
        fresh = self._fresh(name)
        self.renames[name].names[0] = fresh
        earlier = self.mentions.pop(name, [])
        for place in earlier:
            place.name = fresh
        self.mentions[fresh] += earlier

    def _fresh(self, name: str) -> str:
        renames = self.renames[name]
        renames.count += 1
        return f"{name}{self.suffix}{renames.count - 1}"


def rename_inputs(description: OpDescription, renamed: Mapping[str, str]) -> None:
    """Read the new names wherever the old ones are read."""
    for names in description.inputs.values():
        names[:] = [renamed.get(name, name) for name in names]


def rename_outputs(description: OpDescription, old: str, new: str) -> None:
    """Write `new` wherever `old` is written."""
    for names in description.outputs.values():
        names[:] = [new if name == old else name for name in names]


def sum_repeated(descriptions: list[OpDescription], block_idx: int) -> list[OpDescription]:
    """Where several operators write one gradient, rename what they write and insert a `sum`."""
    return _Summing(descriptions, block_idx).run()


# ---------------------------------------------------------------- branches without gradients
def drop_no_grad(
    descriptions: Iterable[OpDescription], no_grad: Collection[str]
) -> tuple[list[OpDescription], frozenset[str]]:
    """Drop operators that give or take only unwanted gradients; fill the gaps with zeros where an operator that stays
    reads an unwanted gradient. The second is no_grad with what was dropped for what it takes.
    """
    kept, unwanted = _without_no_grad(descriptions, no_grad)
    out: list[OpDescription] = []
    for description in kept:
        for name in input_arguments(description):
            if GRAD in name and name in unwanted:
                out.append(backward_op("fill_zeros_like", {"X": [strip_grad(name)]}, {"Out": [name]}))
        out.append(description)
    return out, unwanted


def _without_no_grad(
    descriptions: Iterable[OpDescription], no_grad: Collection[str]
) -> tuple[list[OpDescription], frozenset[str]]:
    kept, unwanted = [], set(no_grad)
    for description in descriptions:
        written = output_arguments(description)
        gradients = [name for name in input_arguments(description) if GRAD in name]
        if unwanted.issuperset(written):
            continue
        if gradients and unwanted.issuperset(gradients):
            unwanted.update(written)
        else:
            kept.append(description)
    return kept, frozenset(unwanted)


# ---------------------------------------------------------------- parts that are not connected to the loss
def unconnected(
    descriptions: list[OpDescription], forward_ops: Iterable[Operator], known: Iterable[str] | None
) -> set[int]:
    """Identities of the operators that compute only from gradients which nothing gives.

    Their heads read nothing but such variables; the rest follows from the heads alone. Never all of them.
    """
    forward = set(known or ())
    for op in forward_ops:
        forward.update(op.input_arg_names, op.output_arg_names)
    given: set[str] = set()
    heads = []
    for position, description in enumerate(descriptions):
        reads = set(input_arguments(description))
        if not reads & forward and not reads & given:
            heads.append(position)
        given.update(output_arguments(description))
    readers = _readers(descriptions)
    dropped: set[int] = set()
    for head in heads:
        dropped |= _follow(head, descriptions, readers)
    found = {id(descriptions[position]) for position in dropped}
    return set() if len(dropped) == len(descriptions) else found


def _readers(descriptions: list[OpDescription]) -> list[list[int]]:
    """For each operator the ones that read what it writes, up to the next write of the same name."""
    last_writer: dict[str, int] = {}
    readers: list[list[int]] = [[] for _ in descriptions]
    for position, description in enumerate(descriptions):
        for name in input_arguments(description):
            if name in last_writer:
                readers[last_writer[name]].append(position)
        for name in output_arguments(description):
            last_writer[name] = position
    return readers


def _follow(head: int, descriptions: list[OpDescription], readers: list[list[int]]) -> set[int]:
    """The operators downstream of a head, if all that they read comes from it; else nothing."""
    ready = set(input_arguments(descriptions[head]))
    reached, todo = {head}, deque([head])
    while todo:
        position = todo.popleft()
        if not set(input_arguments(descriptions[position])) <= ready:
            return set()
        ready.update(output_arguments(descriptions[position]))
        fresh = list(_unseen(readers[position], reached))
        reached.update(fresh)
        todo += fresh
    return reached


def _unseen(positions: Iterable[int], reached: set[int]) -> Iterator[int]:
    return (position for position in dict.fromkeys(positions) if position not in reached)
