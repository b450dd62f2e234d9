"""Regions within the blocks of loops that are trained, and of their gradients, in programs that run on a GPU.

The host goes from step to step, and keeps what each leaves for its gradient; what lies between the operators that it runs itself is
one call. Nothing here changes a variable where it is: steps remember the values before them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from fluidtool.ir import Block, Operator
from fluidtool.ops.gradient import grad_name
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.base import StepCompiler
from fluidtool.runtime.inner_regions import brought_together, names_elsewhere
from fluidtool.runtime.step import Step
from fluidtool.runtime.training_regions import TrainingRegion, group_steps

LOOPS = frozenset({"while", "while_grad"})
LOOKING = frozenset({"crf_decoding", "linear_chain_crf", "warpctc"})
"""Operators whose ids the host would look at in every step, since they read lines of them."""
TYPES = frozenset({VarType.FP32, VarType.INT64, VarType.INT32, VarType.BOOL})


@dataclass(eq=False, slots=True)
class InnerSteps:
    """The steps of such a block, grouped into regions, for each part of the block that runs by itself. numbers: results that the
    host computes.
    """

    block: Block
    steps: Sequence[Step]
    persistable: frozenset[str]
    fetched: frozenset[str]
    compiler: StepCompiler
    numbers: frozenset[str]
    _found: dict[tuple[frozenset[int], frozenset[str]], Sequence[Step | TrainingRegion]] = field(default_factory=dict)

    def work(self, only: Collection[Operator] | None, without: Collection[str]) -> Sequence[Step | TrainingRegion]:
        """The steps of these operators. without: results that nobody writes, whose operands are read behind the loop."""
        steps = self.steps if only is None else [step for step in self.steps if step.op in only]
        key = frozenset(id(step.op) for step in steps), frozenset(without)
        if key not in self._found:
            self._found[key] = self._grouped(steps, key[1])
        return self._found[key]

    def _grouped(self, steps: Sequence[Step], without: frozenset[str]) -> Sequence[Step | TrainingRegion]:
        here = {id(step.op) for step in steps if without.isdisjoint(step.op.output_arg_names)}
        others = (step.op for step in self.steps if id(step.op) not in here)
        read_by_others = frozenset(name for op in others for name in names_used(self.block.program, op))
        wanted = names_elsewhere(self.block) | gradients_of_inputs(self.block) | self.fetched | read_by_others
        together = {number for number, step in enumerate(steps) if self._may_be_within(step)}
        ordered = brought_together(self.block, steps, together)
        taken = {number for number, step in enumerate(ordered) if self._may_be_within(step)}
        return group_steps(self.block, ordered, self.persistable, wanted - without, self.compiler, taken, inner=True)

    def _may_be_within(self, step: Step) -> bool:
        """Whether a step may be in a region: it only computes tensors, none of which the host reads or stays."""
        op = step.op
        if not self.compiler.takes(op) or self.compiler.unrolls(op) or op.type in LOOKING or op.input("Param"):
            return False
        apart = self.persistable | self.numbers
        if op.sub_blocks() or step.info.side_effects or not apart.isdisjoint(op.output_arg_names):
            return False
        masks = op.output("Mask") if op.type == "dropout" else []
        results = (self.block.find_var_recursive(name) for name in op.output_arg_names if name not in masks)
        return all(var is None or (var.type == VarType.LOD_TENSOR and var.dtype in TYPES) for var in results)


def inner_steps(
    block: Block,
    steps: Sequence[Step],
    persistable: Collection[str],
    fetched: Collection[str],
    compiler: StepCompiler,
    numbers: frozenset[str],
) -> InnerSteps | None:
    """What groups the steps of a block; None unless it is that of a loop that is trained, or of its gradient."""
    if not any(op.type in LOOPS for op in users_of(block)):
        return None
    return InnerSteps(block, steps, frozenset(persistable), frozenset(fetched), compiler, numbers)


def users_of(block: Block) -> list[Operator]:
    """The operators that run a block."""
    return [op for other in block.program.blocks for op in other.ops if block.idx in op.sub_blocks()]


def gradients_of_inputs(block: Block) -> frozenset[str]:
    """What the gradient of a loop reads of what a run of its block leaves."""
    return frozenset(grad_name(name) for op in users_of(block) for name in op.inputs.get("X", ()))
