"""`fluid.backward`: gradients appended to programs (Paddle 1.8.5 backward.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluidtool.fluid.offers import refuse_other_names
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ops.gradient import grad_name
from fluidtool.passes.backward import append_backward, gradients
from fluidtool.passes.backward.descriptions import strip_grad
from fluidtool.passes.backward.paths import operator_path, unused_outputs

__all__ = ["append_backward", "gradients"]


def calc_gradient(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> Variable | list[Variable | None] | None:
    """`gradients`, with a single result unpacked."""
    found = gradients(targets, inputs, target_gradients, no_grad_set)
    return found if len(found) > 1 else next(iter(found), None)


def _append_grad_suffix_(name: str) -> str:
    return grad_name(name)


def _strip_grad_suffix_(name: str) -> str:
    return strip_grad(name)


def _find_op_path_(
    block: Block, outputs: Sequence[Variable], inputs: Sequence[Variable], no_grad_set: set[str]
) -> list[Operator]:
    """The operators between inputs (all, when there are none) and outputs; what is not to be differentiated by joins the set."""
    path, no_grad = operator_path(block, outputs, inputs, no_grad_set)
    no_grad_set |= no_grad
    return path


def _find_no_grad_vars(
    block: Block, op_path: Sequence[Operator], targets: Sequence[Variable], no_grad_set: set[str]
) -> set[str]:
    """What operators on the path write and none of them reads: it has no gradient."""
    return unused_outputs(block, op_path, targets, no_grad_set)


def _as_list(value: Any) -> list[Any]:
    """A sequence as a list, nothing as an empty one, anything else as the only item."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) else [value]


def _get_stop_gradients_(program: Program) -> dict[int, set[str]]:
    """For every block, the names of the gradients of its variables that stop gradients."""
    return {
        block.idx: {grad_name(var.name) for var in block.vars.values() if var.stop_gradient} for block in program.blocks
    }


__getattr__ = refuse_other_names("paddle.fluid.backward", __all__)
