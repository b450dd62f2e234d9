"""append_backward: gradient operators for a loss, op by op and name by name as Paddle 1.8.5 appends them (backward.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluidtool.errors import ArgumentTypeError, ProgramError
from fluidtool.ir import Block, Operator, Parameter, Program, Variable, unique_name
from fluidtool.ir.reuse import restore_names
from fluidtool.ir.roles import DEVICE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.gradient import EMPTY, GRAD, OpDescription, grad_name, make_grad_ops
from fluidtool.ops.inference import TENSOR_KINDS, infer_declared
from fluidtool.ops.registry import find_op
from fluidtool.passes.gradient_ops import (
    backward_op,
    drop_no_grad,
    input_arguments,
    output_arguments,
    strip_grad,
    sum_repeated,
    unconnected,
)
from fluidtool.passes.recompute import recompute_gradients
from fluidtool.proto.enums import AttrType, VarType

Callback = Callable[..., None]
ParamGrads = list[tuple[Variable, Variable | None]]


@dataclass(slots=True)
class _Backward:
    """What one call collects on its way."""

    no_grad: dict[int, set[str]]
    callbacks: Sequence[Callback] = ()
    grad_to_var: dict[str, str] = field(default_factory=dict)
    info: dict[str, tuple[str, Block]] = field(default_factory=dict)


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
    Raises ArgumentTypeError for wrong argument types, ProgramError when nothing computes the loss.
    """
    if not isinstance(loss, Variable):
        raise ArgumentTypeError(
            "The type of 'loss' in fluid.backward.append_backward must be Variable, "
            f"but received {type(loss).__name__}."
        )
    restore_names(loss.block.program)
    loss_op = _loss_op(loss)
    loss_op.set_attr(ROLE_ATTR, int(OpRole.Forward) | int(OpRole.Loss), AttrType.INT)
    program, current = loss.block.program, loss.block.program.current_block()
    within = current.idx != 0
    if not within:
        program._appending_grad_times += 1
    state = _Backward(_stop_gradients(program), tuple(callbacks or ()))
    state.no_grad[0] |= {grad_name(name) for name in _names(no_grad_set, "no_grad_set")}

    target = program.global_block()
    if within:
        target = program.create_block(parent_idx=current.parent_idx)
        target.set_forward_block_idx(current.idx)
    start = 0 if within else len(current.ops)
    _loss_gradient(loss, loss_op).insert(target)
    for block in list(current.ancestry()):
        _differentiate(program, block, target, loss, state, within, checkpoints)
    _rename_existing(target, start, state.grad_to_var, {})
    _declare(target, start, state)
    program.current_block_idx = current.idx
    program.touch()
    return _pairs(loss, _wanted(program, parameter_list), state, within)


def _differentiate(
    program: Program,
    block: Block,
    target: Block,
    loss: Variable,
    state: _Backward,
    within: bool,
    checkpoints: Sequence[Variable | str] | None,
) -> None:
    no_grad = {strip_grad(name) for name in state.no_grad[block.idx]}
    path = operator_path(block, [loss], [], no_grad)
    no_grad |= _unused_outputs(block, path, [loss], no_grad)
    state.no_grad[block.idx] |= {grad_name(name) for name in no_grad}
    if checkpoints:
        names = _names(checkpoints, "checkpoints")
        descriptions, origins = recompute_gradients(block, path, state.no_grad[block.idx], names)
        for description in descriptions:
            description.insert(target).set_attr(ROLE_ATTR, int(OpRole.Backward), AttrType.INT)
        state.grad_to_var |= origins
        return
    known = {grad_name(loss.name)} if not within and program._appending_grad_times > 1 else None
    append_gradient_ops(block, path, target, state, known)


# ---------------------------------------------------------------- which operators
def operator_path(
    block: Block, outputs: Sequence[Variable], inputs: Sequence[Variable], no_grad: set[str]
) -> list[Operator]:
    """The operators of `block` between inputs (all, when there are none) and outputs that have a gradient."""
    forward = {var.name for var in inputs}
    wanted = _output_names(block, outputs)
    relevant = [True] * len(block.ops)
    if inputs:
        for position, op in enumerate(block.ops):
            if forward.intersection(op.input_arg_names) and has_gradient(op):
                forward.update(name for name in op.output_arg_names if name not in no_grad)
            else:
                relevant[position] = False
    for position in range(len(block.ops) - 1, -1, -1):
        op = block.ops[position]
        if wanted.intersection(op.output_arg_names) and has_gradient(op):
            wanted.update(name for name in op.input_arg_names if name not in no_grad)
        else:
            relevant[position] = False
    path = [op for position, op in enumerate(block.ops) if relevant[position]]
    if inputs:
        for op in path:
            no_grad.update(
                name for name in op.input_arg_names if name not in forward and block.var_recursive(name).stop_gradient
            )
    return path


def has_gradient(op: Operator) -> bool:
    """Whether the operator's type has a gradient maker that makes something."""
    info = find_op(op.type)
    return info is not None and (info.gradient is not None or info.maker is not None)


def _output_names(block: Block, targets: Sequence[Variable]) -> set[str]:
    """The names in `block` that the targets, which may stand in a block within, come from."""
    origin = targets[0].block if targets else block
    if origin is not block and origin in list(block.ancestry()):
        return set()
    names = {var.name for var in targets}
    while origin is not block:
        parent = origin.parent
        assert parent is not None
        outer: set[str] = set()
        for op in reversed(origin.ops):
            if names.intersection(op.output_arg_names):
                names.update(op.input_arg_names)
                outer |= {name for name in op.input_arg_names if name not in origin.vars and name in parent.vars}
        origin, names = parent, outer
    return names


def _unused_outputs(block: Block, path: list[Operator], targets: Sequence[Variable], no_grad: set[str]) -> set[str]:
    """Outputs on the path that nothing on the path reads: they have no gradient."""
    used = _output_names(block, targets)
    unused = set()
    for op in reversed(path):
        if not op.has_attr("sub_block"):
            for name in op.output_arg_names:
                if name not in used and name not in op.input_arg_names and not block.var_recursive(name).stop_gradient:
                    unused.add(name)
        used |= {name for name in op.input_arg_names if name not in no_grad}
    return unused


def _sub_block_path(block: Block, op: Operator, no_grad: set[str]) -> list[Operator]:
    """The operators of a sub-block to differentiate: of a branch only those that its results come from."""
    if op.type != "conditional_block":
        return block.ops
    assigns = [
        inner
        for name in op.output_arg_names
        for inner in block.ops
        if inner.type == "assign" and name in inner.output_arg_names
    ]
    sources = [block.vars[name] for inner in assigns for name in inner.input_arg_names if name in block.vars]
    path = operator_path(block, sources, [], no_grad)
    return path + [inner for inner in dict.fromkeys(assigns) if not any(inner is op for op in path)]


# ---------------------------------------------------------------- gradient operators into blocks
def append_gradient_ops(
    block: Block, ops: Sequence[Operator], target: Block, state: _Backward, known: set[str] | None
) -> None:
    """Append the gradients of `ops`, last first, to `target`.

    known: gradient names given so far; with it, operators that none of them reaches are left out.
    """
    program = block.program
    descriptions: list[OpDescription] = []
    renamed: dict[str, str] = {}
    for op in reversed(ops):
        made = _gradients_of(program, block, op, state)
        grad_to_var = _origins(made, op)
        if program._appending_grad_times > 1:
            _rename_again(block, op, made, grad_to_var, renamed)
        reached = made if known is None else _reached(made, known)
        descriptions += reached
        if known is None or reached or any(not _grad_inputs(d) for d in made):
            state.grad_to_var |= grad_to_var
    descriptions = sum_repeated(descriptions, block.idx)
    descriptions = drop_no_grad(descriptions, state.no_grad[block.idx])
    dropped = unconnected(descriptions, ops, known)
    context: dict[str, Any] = dict(state.grad_to_var)
    for description in descriptions:
        if id(description) not in dropped:
            made_op = context["__current_op_desc__"] = description.insert(target)
            made_op.set_attr(ROLE_ATTR, int(OpRole.Backward), AttrType.INT)
            for callback in state.callbacks:
                callback(block=target, context=context)


def _gradients_of(program: Program, block: Block, op: Operator, state: _Backward) -> list[OpDescription]:
    grad_block = _gradient_block(program, block, op, state) if op.has_attr("sub_block") else None
    made = make_grad_ops(op, state.no_grad[block.idx], grad_block)
    if op.has_attr(DEVICE_ATTR):
        for description in made:
            description.attrs[DEVICE_ATTR] = op.get_attr(DEVICE_ATTR)
    return made


def _gradient_block(program: Program, block: Block, op: Operator, state: _Backward) -> Block:
    """A new block with the gradients of the operator's sub-block."""
    inner = program.block(op.block_attr_id("sub_block"))
    grad_block = program.create_block()
    grad_block.set_forward_block_idx(inner.idx)
    append_gradient_ops(inner, _sub_block_path(inner, op, state.no_grad[inner.idx]), grad_block, state, None)
    program.rollback()
    state.no_grad.setdefault(grad_block.idx, set())
    return grad_block


def _origins(made: list[OpDescription], op: Operator) -> dict[str, str]:
    """gradient name -> forward name, for what the gradient operators write."""
    forward = {*op.input_arg_names, *op.output_arg_names}
    names = {name for description in made for name in output_arguments(description) if GRAD in name and name != EMPTY}
    return {name: name.removesuffix(GRAD) for name in names if name.removesuffix(GRAD) in forward}


def _grad_inputs(description: OpDescription) -> list[str]:
    return [name for name in input_arguments(description) if GRAD in name]


def _reached(made: list[OpDescription], known: set[str]) -> list[OpDescription]:
    reached = []
    for description in made:
        gradients = _grad_inputs(description)
        if not gradients:
            break
        if known.intersection(gradients):
            reached.append(description)
            known.update(output_arguments(description))
    return reached


def _rename_again(
    block: Block, op: Operator, made: list[OpDescription], grad_to_var: dict[str, str], renamed: dict[str, str]
) -> None:
    """A second backward pass over a program: gradients that exist already get a `grad/` for every pass in front."""
    times = block.program._appending_grad_times
    is_gradient = op.has_attr(ROLE_VAR_ATTR) and op.get_attr(ROLE_ATTR) == int(OpRole.Backward)
    for description in made:
        if not is_gradient:
            for name in input_arguments(description):
                if name in renamed:
                    _rename_inputs(description, name, renamed[name])
        for name in output_arguments(description):
            if GRAD in name and name in block.vars:
                fresh = "grad/" * times + name
                _rename_outputs(description, name, fresh)
                renamed[name] = fresh
                if name in grad_to_var:
                    grad_to_var[fresh] = grad_to_var.pop(name)


def _rename_inputs(description: OpDescription, old: str, new: str) -> None:
    for names in description.inputs.values():
        names[:] = [new if name == old else name for name in names]


def _rename_outputs(description: OpDescription, old: str, new: str) -> None:
    for names in description.outputs.values():
        names[:] = [new if name == old else name for name in names]


def _rename_existing(block: Block, start: int, grad_to_var: dict[str, str], given: dict[str, str]) -> None:
    """Gradients whose names are taken in the block already get unique ones."""
    renamed = dict(given)
    for op in block.ops[start:]:
        for name in [name for name in op.input_arg_names if name in renamed]:
            op.rename_input(name, renamed[name])
        for name in op.output_arg_names:
            if GRAD in name and name in block.vars:
                renamed[name] = unique_name.generate(name)
                op.rename_output(name, renamed[name])
    for old, new in renamed.items():
        if old in grad_to_var:
            grad_to_var[new] = grad_to_var.pop(old)


# ---------------------------------------------------------------- gradient variables
def _declare(block: Block, start: int, state: _Backward) -> None:
    """Declare what the new operators write; drop operators that write nothing or read no gradient that exists."""
    owner = next((op for other in block.program.blocks for op in other.ops if _holds(op, block)), None)
    _declare_below(block, block.ops[start:], owner, state)


def _holds(op: Operator, block: Block) -> bool:
    return bool(block.idx) and op.has_attr("sub_block") and op.block_attr_id("sub_block") == block.idx


def _declare_below(block: Block, new: Iterable[Operator], owner: Operator | None, state: _Backward) -> None:
    """The same for a block whose operators are run by `owner`, and the blocks below it."""
    recursive = set(owner.input_arg_names) & set(owner.output_arg_names) if owner is not None else set[str]()
    dead = set[int]()
    for op in new:
        if op.has_attr("sub_block"):
            inner = block.program.block(op.block_attr_id("sub_block"))
            _declare_below(inner, inner.ops, op, state)
        outputs = [name for name in op.output_arg_names if name != EMPTY]
        gradients = [name for name in op.input_arg_names if GRAD in name]
        known = [name for name in gradients if block.has_var_recursive(name) or name in recursive]
        if not outputs or (gradients and not known and op.type != "rnn_memory_helper_grad"):
            dead.add(id(op))
            continue
        _declare_outputs(block, op, outputs, state)
    block.ops = [op for op in block.ops if id(op) not in dead]


def _declare_outputs(block: Block, op: Operator, outputs: list[str], state: _Backward) -> None:
    fresh = [name for name in dict.fromkeys(outputs) if not block.has_var_recursive(name)]
    for name in fresh:
        # What is no gradient has no data type yet; Paddle's declarations begin with the first one, bool.
        block.create_var(name=name, dtype=None if GRAD in name else VarType.BOOL)
        if name in state.grad_to_var:
            state.info[state.grad_to_var[name]] = (name, block)
    infer_declared(op)
    for name in fresh:
        var, like = block.vars[name], block.find_var_recursive(strip_grad(name))
        if like is None or var.type not in TENSOR_KINDS:
            var.dtype = VarType.FP32 if like is None else like.dtype
            continue
        var.dtype, var.shape = like.dtype, like.shape


# ---------------------------------------------------------------- the loss and the parameters
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


def _stop_gradients(program: Program) -> dict[int, set[str]]:
    return {
        block.idx: {grad_name(name) for name, var in block.vars.items() if var.stop_gradient}
        for block in program.blocks
    }


def _names(items: Iterable[Variable | str] | None, what: str) -> list[str]:
    if items is None:
        return []
    if not isinstance(items, (set, frozenset, list, tuple)):
        raise ArgumentTypeError(f"The type of {what} should be set or list or tuple, but received {type(items)}")
    names = []
    for item in items:
        if not isinstance(item, (Variable, str)):
            raise ArgumentTypeError(
                f"The type of {what}'s member must be paddle.fluid.Variable or str, but received {type(item)}."
            )
        names.append(item if isinstance(item, str) else item.name)
    return names


def _wanted(program: Program, parameter_list: Iterable[Variable | str] | None) -> list[str]:
    if parameter_list is not None:
        return _names(parameter_list, "parameter_list")
    return [var.name for var in program.global_block().vars.values() if isinstance(var, Parameter) and var.trainable]


def _pairs(loss: Variable, parameters: list[str], state: _Backward, within: bool) -> ParamGrads:
    program = loss.block.program
    pairs: ParamGrads = []
    for name in parameters:
        if name not in state.info:
            continue
        gradient, block = state.info[name]
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


# ---------------------------------------------------------------- gradients of variables
def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the gradient of `targets` by `inputs` and return its variables (None where there is none).

    target_gradients: the gradients of the targets themselves (default: ones, which for several targets add up).
    """
    target_list, input_list = _variables(targets, "targets"), _variables(inputs, "inputs")
    block = target_list[0].block
    program = block.program
    given = [None] * len(target_list) if target_gradients is None else list(_sequence(target_gradients))
    if len(given) != len(target_list):
        raise ProgramError(
            f"Should have the same number of target_gradients as targets: {len(given)} for {len(target_list)}"
        )
    program._appending_grad_times += 1
    state = _Backward(_stop_gradients(program))
    state.no_grad[0] |= {grad_name(name) for name in _names(no_grad_set, "no_grad_set")}

    start = len(block.ops)
    renames: dict[str, str] = {}
    known = set()
    for target, gradient in zip(target_list, given, strict=True):
        if gradient is None:
            for made in _ones_like(target):
                made.insert(block)
            known |= {target.name + "_shape", grad_name(target.name)}
        else:
            if gradient.block.idx != block.idx or gradient.shape != target.shape:
                raise ProgramError(
                    f"The target gradient {gradient.name} must stand in the block and have the shape of {target.name}: "
                    f"expected {list(target.shape)}, found {list(gradient.shape)}"
                )
            renames[grad_name(target.name)] = gradient.name
            known.add(gradient.name)
    for var in input_list:
        if var.block.program is not program:
            raise ProgramError(f"input {var.name} must be in the same program as targets")
    no_grad = {strip_grad(name) for name in state.no_grad[0]}
    path = operator_path(block, target_list, input_list, no_grad)
    state.no_grad[0] |= {grad_name(name) for name in no_grad}
    append_gradient_ops(block, path, block, state, known if program._appending_grad_times > 1 else None)
    _rename_existing(block, start, state.grad_to_var, renames)
    _declare(block, start, state)
    program.touch()
    return [_gradient_of(var, state) for var in input_list]


def _gradient_of(var: Variable, state: _Backward) -> Variable | None:
    if var.name not in state.info:
        return None
    name, block = state.info[var.name]
    return block.vars.get(name)


def _ones_like(target: Variable) -> list[OpDescription]:
    """Ones of the target's shape, which is taken when running."""
    shape = target.name + "_shape"
    dtype = int(VarType.FP32 if target.dtype is None else target.dtype)
    return [
        backward_op("shape", {"Input": [target.name]}, {"Out": [shape]}),
        backward_op(
            "fill_constant",
            {"ShapeTensor": [shape]},
            {"Out": [grad_name(target.name)]},
            shape=list(target.shape),
            value=1.0,
            dtype=dtype,
        ),
    ]


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _variables(value: Any, what: str) -> list[Variable]:
    items = list(_sequence(value))
    for item in items:
        if not isinstance(item, Variable):
            raise ArgumentTypeError(
                f"The type of '{what}' in fluid.backward.gradients must be Variable or a list of them, "
                f"but received {type(item).__name__}."
            )
    if not items:
        raise ProgramError(f"fluid.backward.gradients needs at least one of '{what}'")
    return items


__all__ = ["append_backward", "append_gradient_ops", "gradients", "operator_path"]
