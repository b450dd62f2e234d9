"""What a pass says about its work: one decision for each candidate that it looked at."""

from __future__ import annotations

from fluidtool.ir import Operator
from fluidtool.records import dataclass

MAIN_RESULTS = ("Out", "Output", "Y")  # not what batch_norm does to its MeanOut by the way


@dataclass(frozen=True, slots=True)
class Decision:
    """One candidate: the pass, the operator and the variable that it was about, whether it was rewritten, and why."""

    rule: str
    block: int
    operator: str
    variable: str
    done: bool
    reason: str

    def __str__(self) -> str:
        sign = "done" if self.done else "left"
        return f"{self.rule}: {sign}: {self.operator} -> {self.variable or '(no output)'} in block {self.block}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PassResult:
    """Every decision of one run of a pass, in the order of the program."""

    decisions: tuple[Decision, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the program was changed."""
        return any(decision.done for decision in self.decisions)

    @property
    def done(self) -> tuple[Decision, ...]:
        """The candidates that were rewritten."""
        return tuple(decision for decision in self.decisions if decision.done)

    @property
    def left(self) -> tuple[Decision, ...]:
        """The candidates that were left as they are."""
        return tuple(decision for decision in self.decisions if not decision.done)


def decide(rule: str, op: Operator, done: bool, reason: str) -> Decision:
    """A decision about an operator, known by its main result, or else by its first output."""
    names = next(filter(None, map(op.output, MAIN_RESULTS)), None) or op.output_arg_names
    return Decision(rule, op.block.idx, op.type, names[0] if names else "", done, reason)
