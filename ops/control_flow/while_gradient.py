"""while_grad: the gradient of a loop, from those of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.loop_backwards import Wanted, run_backwards
from fluidtool.ops.control_flow.loop_gradients import FirstRows, Products, Total, sums_of_steps
from fluidtool.ops.control_flow.scopes import handed_on, kept_scopes, zeros_like
from fluidtool.ops.control_flow.while_loop import ATTRS
from fluidtool.ops.gradient import grad_name
from fluidtool.ops.registry import op
from fluidtool.ops.schema import strings
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, LoDTensorArray, numpy_dtype


@op(
    "while_grad",
    inputs="X* Out* Out@GRAD* StepScopes",
    outputs="X@GRAD*",
    attrs={**ATTRS, "original_output_grad": strings()},
    raw=True,
)
def while_grad(ctx: OpContext, *, sub_block: int, is_test: bool, original_output_grad: list[str]) -> None:
    """Run the gradient block over the steps in reverse (Paddle 1.8.5 while_op.cc).

    Gradients from outside are linked into every step. The gradient of a variable that is carried from step to
    step replaces the outer one; all others are summed.
    """
    if is_test:
        raise ctx.error("is_test is set, so the loop kept no steps to run backwards; set it to False")
    scopes = kept_scopes(ctx, "StepScopes")
    outside = ctx.inputs.get("Out@GRAD", ())
    if len(outside) != len(original_output_grad):
        raise ctx.error(
            f"Out@GRAD and original_output_grad must be equally many, found {len(outside)} and {len(original_output_grad)}"
        )
    links = [(holder, name) for holder, name in zip(outside, original_output_grad, strict=True) if holder is not None]
    for holder, _ in links:
        _fill_missing(ctx, holder)
    carried = {holder.name for holder, _ in links}
    targets = [
        (grad_name(name), holder)
        for name, holder in zip(ctx.op.input("X"), ctx.outputs.get("X@GRAD", ()), strict=False)
        if holder is not None
    ]
    summed = {name for name, holder in targets if holder.name not in carried}
    sums = _sums(ctx, sub_block, summed)
    totals: dict[str, Total] = {holder.name: Total(ctx) for _, holder in targets}
    wanted = Wanted(
        sums={name: each.reads for name, each in sums.items()},
        each=frozenset(name for name, holder in targets if name not in sums and holder.name not in carried),
        handed=tuple((name, holder.name) for name, holder in targets if holder.name in carried),
        summed=frozenset(summed),
    )
    for ran in run_backwards(ctx, sub_block, scopes, links, wanted):
        for name, holder in targets:
            if name in sums:
                if name in ran.totals:
                    sums[name].add(ran.totals[name])
                elif sums[name].op in ran.ops:
                    sums[name].take(ran.value)
            elif holder.name not in carried:
                totals[holder.name].add(ran.totals[name] if name in ran.totals else ran.value(name))
            elif not ran.is_compiled and (value := ran.value(name)) is not None:
                holder.value = handed_on(value)
    for (name, holder), source in zip(targets, _forward_inputs(ctx), strict=True):
        if holder.name not in carried:
            total = sums[name].total(source.value) if name in sums else totals[holder.name].value
            holder.value = zeros_like(ctx, source.value) if total is None else total


def _sums(ctx: OpContext, sub_block: int, wanted: Collection[str]) -> dict[str, Products | FirstRows]:
    """The wanted gradients that need not be computed in each step, and that no operator of the block reads.

    What such a gradient is computed from must still be there when the block has run: Paddle's own memory_optimize writes
    other values to its names, and leaves no note of it.
    """
    ops = ctx.op.block.program.block(sub_block).ops
    if any(inner.sub_blocks() for inner in ops):
        return {}
    used = Counter(name for inner in ops for name in (*inner.input_arg_names, *inner.output_arg_names))
    found: dict[str, Products | FirstRows] = {}
    overwritten: set[str] = set()
    for inner in reversed(ops):
        if overwritten.isdisjoint(inner.output_arg_names):
            overwritten.update(inner.output_arg_names)
            if overwritten.isdisjoint(inner.input_arg_names):
                found.update(sums_of_steps(ctx, inner))
        overwritten.update(inner.output_arg_names)
    return {name: each for name, each in found.items() if name in wanted and used[name] == 1}


def _forward_inputs(ctx: OpContext) -> list[Any]:
    grads = ctx.outputs.get("X@GRAD", ())
    return [x for x, grad in zip(ctx.inputs.get("X", ()), grads, strict=False) if grad is not None]


def _fill_missing(ctx: OpContext, holder: Any) -> None:
    """A declared gradient that was not computed is 0."""
    if holder.value is not None and not (isinstance(holder.value, LoDTensor) and holder.value.array is None):
        return
    declared = ctx.op.block.find_var_recursive(holder.name)
    if declared is None:
        return
    if declared.type == VarType.LOD_TENSOR_ARRAY:
        holder.value = LoDTensorArray()
    elif declared.type == VarType.LOD_TENSOR:
        forward = ctx.scope.find_var(holder.name.split("@GRAD")[0])
        like = None if forward is None else zeros_like(ctx, forward.value)
        if like is None and declared.has_shape and -1 not in declared.shape and declared.dtype is not None:
            like = LoDTensor(ctx.xp.zeros(declared.shape, dtype=numpy_dtype(declared.dtype)))
        holder.value = like
