"""ConditionalBlock: a block that runs if a condition is true; all branches are built from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fluidtool.fluid.checks import check_type
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.control_flow.blocks import declared, inner_block, reads_and_writes
from fluidtool.ir import Block, Operator, Variable
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.roles import DEVICE_ATTR, ROLE_ATTR, OpRole
from fluidtool.ops.gradient import grad_name, make_grad_ops
from fluidtool.ops.inference import infer_declared
from fluidtool.proto.enums import AttrType, VarType


class ConditionalBlock:
    """A block that runs if `inputs`, one boolean, is true (is_scalar_condition), else if none of `inputs` is empty."""

    def __init__(self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None) -> None:
        for item in inputs:
            check_type(item, "input", Variable, "ConditionalBlock")
        self.inputs, self.is_scalar_condition = list(inputs), is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Operators appended within are the branch."""
        with inner_block(self.helper.main_program) as inside:
            yield
            self._complete(inside)

    def _complete(self, inside: Block) -> None:
        around = inside.parent
        assert around is not None
        reads, writes = reads_and_writes(inside)
        inputs = {"Cond": self.inputs, "Input": [around.var_recursive(name) for name in reads]}
        outputs = {"Out": declared(around, writes), "Scope": [around.create_var(type=VarType.STEP_SCOPES)]}
        attrs = {"sub_block": inside, "is_scalar_condition": self.is_scalar_condition}
        op = around.append_op(type="conditional_block", inputs=inputs, outputs=outputs, attrs=attrs)
        gradient = next((block for block in inside.program.blocks if block.forward_block_idx == inside.idx), None)
        if gradient is not None:
            _append_gradient(around, gradient, op)


def _append_gradient(around: Block, gradient: Block, op: Operator) -> None:
    """A branch with its own backward pass (an optimizer within a branch): its gradient block becomes an operator."""
    reads, _ = reads_and_writes(gradient)
    names = [var.name for var in declared(around, reads)]
    description = make_grad_ops(op, (), gradient)[0]
    description.inputs["Input"] = names
    description.outputs["Input@GRAD"] = [grad_name(name) for name in names]
    description.attrs.pop(DEVICE_ATTR, None)
    made = description.insert(around)
    made.set_attr(ROLE_ATTR, int(OpRole.Backward), AttrType.INT)
    for name in made.output_arg_names:
        if name != EMPTY and not gradient.has_var_recursive(name):
            like = gradient.find_var_recursive(name.removesuffix("@GRAD"))
            var = gradient.create_var(name=name)
            if like is not None and like.dtype is not None:
                var.dtype, var.shape = like.dtype, like.shape
    infer_declared(made)
