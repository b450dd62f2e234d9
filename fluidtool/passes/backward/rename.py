"""Gradients whose names are taken already get other ones."""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool.ir import Block, Operator, unique_name
from fluidtool.ir.roles import ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.gradient import GRAD, OpDescription
from fluidtool.passes.backward.descriptions import output_arguments, rename_inputs, rename_outputs


def rename_again(block: Block, op: Operator, made: list[OpDescription], renamed: dict[str, str]) -> None:
    """Another backward pass over a program: gradients that exist already get a `grad/` for every pass in front.

    made: the gradient of `op`. renamed: what was renamed in this pass so far, to which this adds.
    """
    times = block.program._appending_grad_times
    is_gradient = op.has_attr(ROLE_VAR_ATTR) and op.get_attr(ROLE_ATTR) == int(OpRole.Backward)
    for description in made:
        if not is_gradient:
            rename_inputs(description, renamed)
        for name in output_arguments(description):
            if GRAD in name and name in block.vars:
                renamed[name] = "grad/" * times + name
                rename_outputs(description, name, renamed[name])


def rename_existing(block: Block, start: int, given: Mapping[str, str]) -> dict[str, str]:
    """Give gradients that operators from `start` on write under a name that the block has unique names; old name -> new.

    given: names that are to be replaced in any case.
    """
    renamed = dict(given)
    for op in block.ops[start:]:
        if not renamed.keys().isdisjoint(op.input_arg_names):
            op.rename_inputs(renamed)
        for name in op.output_arg_names:
            if GRAD in name and name in block.vars:
                renamed[name] = unique_name.generate(name)
                op.rename_output(name, renamed[name])
    return renamed


def with_new_names(origins: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Gradient name -> forward name, once gradients have other names."""
    found = dict(origins)
    for old, new in renamed.items():
        if old in found:
            found[new] = found.pop(old)
    return found
