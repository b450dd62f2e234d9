"""gradients: the gradient of variables by variables, appended to their block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluidtool.errors import ArgumentTypeError, ProgramError
from fluidtool.ir import Block, Variable
from fluidtool.ops.gradient import OpDescription, grad_name
from fluidtool.passes.backward.arguments import names, sequence, variables
from fluidtool.passes.backward.build import append_gradient_ops, new_backward
from fluidtool.passes.backward.declare import Declared, declare
from fluidtool.passes.backward.descriptions import backward_op, strip_grad
from fluidtool.passes.backward.paths import operator_path
from fluidtool.passes.backward.rename import rename_existing, with_new_names
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text


def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append the gradient of `targets` by `inputs` and return its variables (None where there is none; [] for a single
    input without one, as Paddle's).

    target_gradients: the gradients of the targets themselves (default: ones, which for several targets add up).
    """
    target_list, input_list = variables(targets, "targets"), variables(inputs, "inputs")
    block = target_list[0].block
    program = block.program
    given = _given_gradients(target_gradients, len(target_list))
    if len(given) != len(target_list):
        raise ProgramError(
            f"Should have the same number of target_gradients as targets: {len(given)} for {len(target_list)}"
        )
    program._appending_grad_times += 1
    backward = new_backward(program, names(no_grad_set, "no_grad_set"))
    start, again = len(block.ops), program._appending_grad_times > 1
    renames, known = _give_target_gradients(block, target_list, given)
    for var in input_list:
        if var.block.program is not program:
            raise ProgramError(f"input {var.name} must be in the same program as targets")
    first = program.global_block()
    path, no_grad = operator_path(block, target_list, input_list, set(map(strip_grad, backward.unwanted(first))))
    backward = backward.without(first, map(grad_name, no_grad))
    backward = append_gradient_ops(block, path, block, backward, known if again else None)
    origins = with_new_names(backward.origins, rename_existing(block, start, renames))
    declared = declare(block, start, origins)
    program.touch()
    found = [_gradient_of(var, declared) for var in input_list]
    return [] if len(found) == 1 and found[0] is None else found


def _given_gradients(given: Variable | Sequence[Variable | None] | None, count: int) -> list[Variable | None]:
    items: list[Variable | None] = [None] * count if given is None else list(sequence(given))
    for item in items:
        if item is not None and not isinstance(item, Variable):
            raise ArgumentTypeError(
                "The type of 'target_gradients' in fluid.backward.gradients must be Variable or a list of them, "
                f"but received {type(item).__name__}."
            )
    return items


def _give_target_gradients(
    block: Block, targets: Iterable[Variable], given: Iterable[Variable | None]
) -> tuple[dict[str, str], set[str]]:
    """Append ones where no gradient of a target is given.

    Returns the names that take the place of gradients, and everything that is known of gradients then.
    """
    renames: dict[str, str] = {}
    known: set[str] = set()
    for target, gradient in zip(targets, given, strict=True):
        if gradient is None:
            for made in _ones_like(target):
                made.insert(block)
            known |= {target.name + "_shape", grad_name(target.name)}
            continue
        if gradient.block.idx != block.idx or gradient.shape != target.shape:
            raise ProgramError(
                f"The target gradient {gradient.name} must stand in the block and have the shape of {target.name}: "
                f"expected {shape_text(target.shape)}, found {shape_text(gradient.shape)}"
            )
        renames[grad_name(target.name)] = gradient.name
        known.add(gradient.name)
    return renames, known


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


def _gradient_of(var: Variable, declared: Declared) -> Variable | None:
    if var.name not in declared:
        return None
    name, block = declared[var.name]
    return block.vars.get(name)
