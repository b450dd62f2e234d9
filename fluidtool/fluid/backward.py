"""`fluid.backward`: gradients appended to programs (Paddle 1.8.5 backward.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluidtool.fluid.offers import refuse_other_names
from fluidtool.ir import Variable
from fluidtool.ops.gradient import grad_name
from fluidtool.passes.backward import append_backward, gradients

__all__ = ["append_backward", "gradients"]


def calc_gradient(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> Variable | list[Variable | None] | None:
    """`gradients`, with a single result unpacked."""
    found = gradients(targets, inputs, target_gradients, no_grad_set)
    return found[0] if len(found) == 1 else found


def _append_grad_suffix_(name: str) -> str:
    return grad_name(name)


__getattr__ = refuse_other_names("paddle.fluid.backward", __all__)
