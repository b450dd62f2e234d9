"""append_backward: the gradient of a loss by the parameters of its program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluidtool.errors import ArgumentTypeError, ProgramError, UsageError
from fluidtool.ir import Block, Operator, Parameter, Program, Variable
from fluidtool.ir.reuse import restore_names
from fluidtool.ir.roles import DEVICE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.gradient import OpDescription, grad_name
from fluidtool.passes.backward.arguments import names
from fluidtool.passes.backward.build import Backward, Callback, append_gradient_ops, new_backward
from fluidtool.passes.backward.declare import Declared, declare
from fluidtool.passes.backward.descriptions import strip_grad
from fluidtool.passes.backward.paths import operator_path, unused_outputs
from fluidtool.passes.backward.recompute import recompute_gradients
from fluidtool.passes.backward.rename import rename_existing, with_new_names
from fluidtool.proto.enums import AttrType, VarType

ParamGrads = list[tuple[Variable, Variable | None]]


def append_backward(
    loss: Variable,
    parameter_list: Iterable[Variable | str] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
    callbacks: Sequence[Callback] | None = None,
    checkpoints: Sequence[Variable | str] | None = None,
) -> ParamGrads:
    """Append the gradient of `loss` to its program and return (parameter, gradient) pairs.

    parameter_list: parameters wanted (default: all trainable ones). no_grad_set: variables of block 0 without gradient,
    beside those with stop_gradient. callbacks: called as callback(block=, context=) after each gradient operator.
    checkpoints: variables between which the forward pass is computed again instead of being kept (recompute).
    What `memory_optimize` did before is undone: gradients need values that it let go.
    Raises ArgumentTypeError for wrong argument types, UsageError for a callback that cannot be called, ProgramError when
    nothing computes the loss.
    """
    if not isinstance(loss, Variable):
        raise ArgumentTypeError(
            "The type of 'loss' in fluid.backward.append_backward must be Variable, "
            f"but received {type(loss).__name__}."
        )
    _check_callbacks(callbacks)
    restore_names(loss.block.program)
    loss_op = _loss_op(loss)
    loss_op.set_attr(ROLE_ATTR, int(OpRole.Forward) | int(OpRole.Loss), AttrType.INT)
    program, current = loss.block.program, loss.block.program.current_block()
    within = current.idx != 0
    if not within:
        program._appending_grad_times += 1
    backward = new_backward(program, names(no_grad_set, "no_grad_set"), callbacks or ())

    target = program.global_block()
    if within:
        target = program.create_block(parent_idx=current.parent_idx)
        target.set_forward_block_idx(current.idx)
    start = 0 if within else len(current.ops)
    _loss_gradient(loss, loss_op).insert(target)
    for block in list(current.ancestry()):
        backward = _differentiate(block, target, loss, backward, within, checkpoints)
    declared = declare(target, start, with_new_names(backward.origins, rename_existing(target, start, {})))
    program.current_block_idx = current.idx
    program.touch()
    return _pairs(loss, _wanted(program, parameter_list), declared, within)


def _differentiate(
    block: Block,
    target: Block,
    loss: Variable,
    backward: Backward,
    within: bool,
    checkpoints: Sequence[Variable | str] | None,
) -> Backward:
    path, no_grad = operator_path(block, [loss], [], set(map(strip_grad, backward.unwanted(block))))
    no_grad |= unused_outputs(block, path, [loss], no_grad)
    backward = backward.without(block, map(grad_name, no_grad))
    if checkpoints:
        kept = names(checkpoints, "checkpoints")
        descriptions, origins = recompute_gradients(block, path, backward.unwanted(block), kept)
        for description in descriptions:
            description.insert(target).set_attr(ROLE_ATTR, int(OpRole.Backward), AttrType.INT)
        return backward.with_origins(origins)
    again = not within and block.program._appending_grad_times > 1
    return append_gradient_ops(block, path, target, backward, {grad_name(loss.name)} if again else None)


# ---------------------------------------------------------------- the loss
def _check_callbacks(callbacks: object) -> None:
    if callbacks is None:
        return
    if not isinstance(callbacks, list):
        raise ArgumentTypeError(
            "The type of 'callbacks' in fluid.backward.append_backward must be list, "
            f"but received {type(callbacks).__name__}."
        )
    for callback in callbacks:
        if not callable(callback):
            raise UsageError(f"'callback' must be a callable object, found {callback!r}")


def _loss_op(loss: Variable) -> Operator:
    for op in reversed(loss.block.ops):
        if loss.name in op.output_arg_names:
            return op
    raise ProgramError(f"loss.op is None. Should not happend: no operator of the program computes {loss.name}")


def _loss_gradient(loss: Variable, loss_op: Operator) -> OpDescription:
    attrs = {
        "shape": [1],
        "value": 1.0,
        "dtype": int(loss.dtype if loss.dtype is not None else VarType.FP32),
        "force_cpu": False,
        ROLE_ATTR: int(OpRole.Backward) | int(OpRole.Loss),
        DEVICE_ATTR: loss_op.get_attr(DEVICE_ATTR, ""),
    }
    return OpDescription("fill_constant", {}, {"Out": [grad_name(loss.name)]}, attrs)


# ---------------------------------------------------------------- the parameters
def _wanted(program: Program, parameter_list: Iterable[Variable | str] | None) -> list[str]:
    if parameter_list is not None:
        return names(parameter_list, "parameter_list")
    return [var.name for var in program.global_block().vars.values() if isinstance(var, Parameter) and var.trainable]


def _pairs(loss: Variable, parameters: list[str], declared: Declared, within: bool) -> ParamGrads:
    program = loss.block.program
    pairs: ParamGrads = []
    for name in parameters:
        if name not in declared:
            continue
        gradient, block = declared[name]
        param = program.global_block().var(name)
        found = block.vars.get(gradient)
        if not within and gradient not in loss.block.vars:
            found = None
        pairs.append((param, found))
    writers: dict[int, dict[str, Operator]] = {}
    for param, found in pairs:
        if found is not None:
            block = found.block if within else program.global_block()
            if block.idx not in writers:
                writers[block.idx] = {name: op for op in block.ops for name in op.output_arg_names}
            _note_role(param, found, block, writers[block.idx])
    return pairs


def _note_role(param: Variable, gradient: Variable, block: Block, writers: Mapping[str, Operator]) -> None:
    """The operator that writes a parameter's gradient last carries both names in `op_role_var`."""
    op = writers.get(gradient.name)
    if op is None:
        raise ProgramError(f"no operator of block {block.idx} writes {gradient.name}, the gradient of {param.name}")
    op.set_attr(ROLE_VAR_ATTR, [param.name, gradient.name, *op.get_attr(ROLE_VAR_ATTR, [])], AttrType.STRINGS)
