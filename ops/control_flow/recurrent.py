"""recurrent: a block run once for every step of its inputs' first dimension (StaticRNN), and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.control_flow.scopes import (
    added,
    drop_scopes,
    has_gradient,
    keep_scopes,
    kept_scopes,
    local_variables,
    shared,
    zeros_like,
)
from fluidtool.ops.gradient import GradMakerContext, OpDescription, grad_name
from fluidtool.ops.registry import op
from fluidtool.ops.schema import STRINGS, block, required, strings
from fluidtool.ops.traits import Traits
from fluidtool.shapes import shapes_text
from fluidtool.tensor import LoDTensor

ATTRS: dict[str, Any] = {
    "has_states": False,
    "ex_states": required(STRINGS),
    "states": required(STRINGS),
    "sub_block": block(),
    "reverse": False,
    "is_train": True,
    "skip_eager_deletion_vars": strings(),
}


@op(
    "recurrent",
    inputs="inputs* initial_states* parameters*",
    outputs="outputs* step_scopes",
    attrs=ATTRS,
    raw=True,
    traits=Traits(memory="scoped"),
)
def recurrent(
    ctx: OpContext,
    *,
    has_states: bool,
    ex_states: list[str],
    states: list[str],
    sub_block: int,
    reverse: bool,
    is_train: bool,
) -> dict[str, list[Any]]:
    """Run `sub_block` for every step; outputs [steps, …] (Paddle 1.8.5 recurrent_op.cc).

    Within a step the inputs have the same names, `ex_states` are the `states` of the previous step (initial_states in
    the first), and the outputs are variables of the same names. `reverse` starts with the last step. The scopes of the
    steps are kept if the program contains the gradient.
    """
    length = _steps(ctx)
    _check_states(ctx, has_states, ex_states, states)
    previous = [shared(ctx.value("initial_states", i)) for i in range(len(states))] if has_states else []
    keep = is_train and has_gradient(ctx, "step_scopes")
    scopes: list[Any] = []
    outputs: list[list[Any]] = [[] for _ in ctx.op.output("outputs")]
    step, variables = None, []
    for offset in _order(length, reverse):
        if step is None or keep:
            scope = ctx.scope.new_scope()
            scopes.append(scope)
            for name in ctx.op.input("inputs"):
                scope.var(name)
            for name in ex_states:
                scope.var(name)
            step, variables = ctx.bind_block(sub_block, scope), local_variables(scope)
        for variable in variables:
            variable.value = None
        _link(ctx, scope, "inputs", offset)
        for name, value in zip(ex_states, previous, strict=False):
            scope.var(name).value = value
        step.run()
        previous = [shared(_held(ctx, scope, name)) for name in states] if has_states else []
        for name, values in zip(ctx.op.output("outputs"), outputs, strict=True):
            values.append(_held(ctx, scope, name).array)
    if keep:
        keep_scopes(ctx, "step_scopes", scopes)
    else:
        drop_scopes(ctx, scopes)
    return {"outputs": [ctx.xp.stack(values[::-1] if reverse else values) for values in outputs]}


@recurrent.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    if context.grad_block is None:
        return []
    inputs: dict[str, list[str]] = {}
    outputs: dict[str, list[str]] = {}
    for slot in ("inputs", "initial_states", "parameters"):
        inputs[slot] = context.input(slot)
        outputs[grad_name(slot)] = context.input_grad(slot, drop_empty=False)
    if context.output("outputs"):
        inputs["outputs"] = context.output("outputs")
        inputs["outputs@GRAD"] = context.output_grad("outputs")
    if context.output("step_scopes"):
        inputs["step_scopes"] = inputs["step_scopes@GRAD"] = context.output("step_scopes")
    return [context.describe("recurrent_grad", inputs, outputs, sub_block=context.grad_block.idx)]


@op(
    "recurrent_grad",
    inputs="inputs* initial_states* parameters* outputs* outputs@GRAD* step_scopes step_scopes@GRAD",
    outputs="inputs@GRAD* initial_states@GRAD* parameters@GRAD*",
    attrs=ATTRS,
    raw=True,
    traits=Traits(memory="scoped"),
)
def recurrent_grad(
    ctx: OpContext,
    *,
    has_states: bool,
    ex_states: list[str],
    states: list[str],
    sub_block: int,
    reverse: bool,
    is_train: bool,
) -> dict[str, list[Any]]:
    """Run the gradient block over the steps, last run first (Paddle 1.8.5 recurrent_op.cc).

    The gradient of an ex-state becomes that of the previous step's state; gradients of parameters are summed.
    """
    if not is_train:
        raise ctx.error("is_train is not set, so recurrent kept no steps to run backwards; set it to True")
    length = _steps(ctx)
    scopes = kept_scopes(ctx, "step_scopes")
    if len(scopes) != length:
        raise ctx.error(f"recurrent kept {len(scopes)} steps, but its inputs have {length}")
    input_names, parameter_names = ctx.op.input("inputs"), ctx.op.input("parameters")
    gradients: list[list[Any]] = [[] for _ in input_names]
    totals: list[Any] = [None] * len(parameter_names)
    carried: list[Any] = []
    for offset in _order(length, not reverse):
        scope = scopes[-1]
        _link(ctx, scope, "outputs@GRAD", offset)
        for name, value in zip(states, carried, strict=False):
            variable = scope.var(grad_name(name))
            linked = grad_name(name) in ctx.op.input("outputs@GRAD")
            variable.value = added(ctx, variable.value, value) if linked else shared(value)
        ctx.run_block(sub_block, scope)
        for index, name in enumerate(parameter_names):
            totals[index] = added(ctx, totals[index], _local(scope, grad_name(name)))
        for name, values in zip(input_names, gradients, strict=True):
            values.append(_local(scope, grad_name(name)))
        carried = [_local(scope, grad_name(name)) for name in ex_states] if has_states else []
        drop_scopes(ctx, [scopes.pop()])
    return {
        "inputs@GRAD": [_stacked(ctx, values if reverse else values[::-1]) for values in gradients],
        "initial_states@GRAD": [shared(value) for value in carried],
        "parameters@GRAD": [
            zeros_like(ctx, holder.value) if total is None and holder is not None else total
            for total, holder in zip(totals, ctx.inputs.get("parameters", ()), strict=False)
        ],
    }


def _steps(ctx: OpContext) -> int:
    """The number of steps: the first dimension of every input."""
    if not ctx.inputs.get("inputs"):
        raise ctx.error("recurrent needs at least one variable in its slot inputs to know the number of steps")
    shapes = [ctx.value("inputs", i).shape() for i in range(len(ctx.inputs["inputs"]))]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1:
        raise ctx.error(f"the inputs must have the same number of steps, found shapes {shapes_text(shapes)}")
    length = lengths.pop()
    if length <= 0:
        raise ctx.error(f"the inputs have no steps, found shapes {shapes_text(shapes)}")
    return int(length)


def _check_states(ctx: OpContext, has_states: bool, ex_states: list[str], states: list[str]) -> None:
    initial = len(ctx.inputs.get("initial_states", ()))
    if has_states and not len(ex_states) == len(states) == initial:
        raise ctx.error(
            f"ex_states, states and initial_states must be equally many, found {len(ex_states)}, {len(states)} and {initial}"
        )


def _order(length: int, reverse: bool) -> Sequence[int]:
    return range(length - 1, -1, -1) if reverse else range(length)


def _link(ctx: OpContext, scope: Any, slot: str, offset: int) -> None:
    """Put the step of every outer variable of an input slot into the scope, under the same name."""
    for holder in ctx.inputs.get(slot, ()):
        if holder is not None and isinstance(holder.value, LoDTensor) and holder.value.array is not None:
            scope.var(holder.name).value = LoDTensor(ctx.array(holder.value.array[offset]))


def _held(ctx: OpContext, scope: Any, name: str) -> LoDTensor:
    variable = scope.find_var(name)
    value = None if variable is None else variable.value
    if not isinstance(value, LoDTensor) or value.array is None:
        raise ctx.error(f"the block of the step did not set its variable {name}")
    return value


def _local(scope: Any, name: str) -> Any:
    variable = scope.find_local_var(name)
    return None if variable is None else shared(variable.value)


def _stacked(ctx: OpContext, values: list[Any]) -> Any:
    """The gradients of steps combined, zeros for steps without one; None if no step has one."""
    like = next((value for value in values if value is not None and value.array is not None), None)
    if like is None:
        return None
    zeros = ctx.xp.zeros_like(like.array)
    return ctx.xp.stack([zeros if value is None or value.array is None else value.array for value in values])
