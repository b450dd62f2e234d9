"""Who reads, writes, declares and passes on the names of a program, kept up to date while edits come and go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from fluidtool.ir import Operator, Program, Variable
from fluidtool.passes.inference.quantisers import is_quantiser
from fluidtool.records import dataclass

BATCH_NORMS = frozenset({"batch_norm", "sync_batch_norm"})


@dataclass(slots=True)
class Names:
    """The names of one program, looked up once for all of its operators.

    written: how many operators give a name another value. read_in: how many operators of each block read it. declared: the
    variables of that name. owners: the operators that hold a block. quantises: whether an operator quantises.
    pending: what edits bring that are not applied yet, with the arrays of parameters.
    """

    written: Counter[str] = field(default_factory=Counter)
    read_in: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    declared: defaultdict[str, list[Variable]] = field(default_factory=lambda: defaultdict(list))
    owners: defaultdict[int, list[Operator]] = field(default_factory=lambda: defaultdict(list))
    quantises: bool = False
    pending: dict[str, Any] = field(default_factory=dict)
    _passed_on: dict[int, dict[str, str]] = field(default_factory=dict)

    def add(self, op: Operator) -> None:
        """Count an operator in."""
        self.written.update(changed_by(op))
        for name in set(op.input_arg_names):
            self.read_in[name][op.block.idx] += 1

    def drop(self, op: Operator) -> None:
        """Count an operator out."""
        self.written.subtract(changed_by(op))
        for name in set(op.input_arg_names):
            blocks = self.read_in[name]
            blocks[op.block.idx] -= 1
            if not blocks[op.block.idx]:
                del blocks[op.block.idx]

    def passed_on_by(self, block: int, name: str) -> str:
        """The type of the operator around a block that takes a name out of it, as `recurrent` does; or empty."""
        if block not in self._passed_on:
            owners = self.owners.get(block, [])
            self._passed_on[block] = {
                text: op.type for op in reversed(owners) for text in (*op.output_arg_names, *texts_of(op))
            }
        return self._passed_on[block].get(name, "")


def names_of(program: Program) -> Names:
    """The names of all operators and variables of a program."""
    names = Names()
    for block in program.blocks:
        for op in block.ops:
            names.add(op)
            names.quantises = names.quantises or is_quantiser(op.type)
            for index in dict.fromkeys(op.sub_blocks()):
                names.owners[index].append(op)
        for name, var in block.vars.items():
            names.declared[name].append(var)
    return names


def texts_of(op: Operator) -> set[str]:
    """Every string that the attributes hold."""
    values = [op.attr(name) for name in op.attr_names]
    return {
        text for value in values for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)
    }


def changed_by(op: Operator) -> Iterable[str]:
    """The names that an operator gives another value; batch_norm in inference writes its statistics as they were."""
    if op.type in BATCH_NORMS and uses_running_statistics(op):
        kept = {name for slot in ("Mean", "Variance") for name in op.inputs.get(slot, [])}
        return [name for name in op.output_arg_names if name not in kept]
    return op.output_arg_names


def uses_running_statistics(op: Operator) -> bool:
    """Whether a batch_norm normalizes by its running statistics, as inference does, and leaves them as they are."""
    tests = op.get_attr("is_test", False) and not op.get_attr("trainable_statistics", False)
    return bool(tests or op.get_attr("use_global_stats", False))
