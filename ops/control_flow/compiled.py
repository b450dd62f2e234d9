"""Loops that an engine compiles: it runs all of their steps in one call. What it is told, and what it leaves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from fluidtool.ir import Operator
from fluidtool.records import dataclass

ABSENT = object()  # in place of the value of a variable that there is not


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """A loop to compile.

    ops: of each step, in order. local: names of which each step begins without a value, unless they are among `given`, which
    it begins with. condition: the variable that is true as long as there is another step; "" where the steps are given.
    keeps: whether values of steps are kept: those of `kept`, by name, whether with their numbers or only with shape and LoD;
    and of `remembered` what they were before the step. without: results of which only the sum over all steps is wanted; links:
    variables outside, and the names that every step knows their values by; handed: what a step leaves by the first name is
    the second one's value from then on. rows: what the results of `without` are made of in each step, which is kept where
    the engine does not add them up. arrays: variables outside that hold arrays of tensors. gathered: arrays that each step begins
    without, and of which it writes items of its own: those of all steps are one array in the end.
    """

    ops: Sequence[Operator]
    local: frozenset[str]
    condition: str = ""
    keeps: bool = False
    kept: Mapping[str, bool] = field(default_factory=dict)
    remembered: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    links: tuple[tuple[str, str], ...] = ()
    handed: tuple[tuple[str, str], ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    arrays: frozenset[str] = frozenset()
    gathered: frozenset[str] = frozenset()

    @property
    def absent(self) -> object:
        """What `find` returns for a variable that there is not."""
        return ABSENT


class StepRecord(MutableMapping[str, Any]):
    """The values of a step that an engine ran, by name."""

    @property
    @abstractmethod
    def common(self) -> Mapping[str, Any]:
        """Those that are the same in all steps."""


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What a loop leaves: values of variables outside, and of its steps, by name.

    totals: sums over all steps by name, as arrays of numbers, or of tensors.
    """

    changed: Mapping[str, Any]
    steps: Sequence[StepRecord]
    totals: Mapping[str, Any]


class CompiledLoop(Protocol):
    """A loop that an engine has compiled."""

    def run(self, find: Callable[[str], Any], steps: Sequence[Mapping[str, Any]] | None = None) -> LoopResult | None:
        """Run it; None if it has to run operator by operator: then nothing has changed."""


class LoopCompiler(Protocol):
    """What compiles loops."""

    def compile(self, spec: LoopSpec) -> CompiledLoop | None:
        """The loop; None if it has to run operator by operator."""


SHAPES: Mapping[str, Collection[str]] = {
    "elementwise_add_grad": ("X", "Y"),
    "elementwise_sub_grad": ("X", "Y"),
    "gru_unit_grad": ("Input",),
    "mul_grad": (),
    "reshape2_grad": ("XShape",),
    "sequence_expand_grad": ("X", "Y"),
    "sequence_pool_grad": ("X",),
    "sequence_softmax_grad": ("X",),
    "shrink_rnn_memory_grad": ("X",),
}
"""Inputs of which an operator reads only the shape and the LoD."""


def read_by(ops: Sequence[Operator]) -> dict[str, bool]:
    """What operators read, by name, and whether they read its numbers."""
    found: dict[str, bool] = {}
    for op in ops:
        for slot, names in op.inputs.items():
            for name in names:
                found[name] = found.get(name, False) or slot not in SHAPES.get(op.type, ())
    return found
