"""`is-test`: operators with a training mode are put into inference, where that does not change what they compute."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fluidtool.ir import Operator, Program
from fluidtool.ops.registry import find_op
from fluidtool.passes.inference.names import texts_of
from fluidtool.passes.inference.rewriting import BATCH_NORMS, uses_running_statistics
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.runtime.scope import Scope

NAME = "is-test"
# Only what they keep for their gradient depends on the attribute.
SAME_NUMBERS = frozenset(
    {
        "conv2d",
        "conv2d_transpose",
        "conv3d",
        "conv3d_transpose",
        "depthwise_conv2d",
        "depthwise_conv2d_transpose",
        "lrn",
        "pool2d",
        "pool3d",
        "sequence_pool",
        "softmax",
        "while",
    }
)
NOT_IN_INFERENCE = {"dropout": "Mask", "sequence_pool": "MaxIndex"}  # the outputs that is_test takes away
TRAINS = "it computes different values in training; clone(for_test=True) makes an inference program"


def set_is_test(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Set the attribute `is_test`, in place (InferenceTranspiler of Paddle 1.2, is_test_pass of 1.8).

    batch_norm by the statistics of the batch, dropout and the like, which Paddle's pass switches over, are left: their
    numbers would change; so is what computes an output that inference does not give, such as a Mask, where that is wanted.
    A program with gradient operators is left as a whole.
    """
    ops = [op for block in program.blocks for op in block.ops]
    trains = any(op.type.endswith("_grad") for op in ops)
    wanted = {*keep, *(name for op in ops for name in _names_used(op))}
    decisions = [decision for op in ops if (decision := _set(op, trains, wanted)) is not None]
    return PassResult(tuple(decisions))


def _set(op: Operator, trains: bool, wanted: set[str]) -> Decision | None:
    info = find_op(op.type)
    declared = info is not None and "is_test" in info.attrs and not op.type.endswith("_grad")
    if op.get_attr("is_test", False) or not (op.has_attr("is_test") or declared):
        return None
    if trains:
        return decide(NAME, op, False, "the program computes gradients")
    if op.type not in SAME_NUMBERS and not _trained_already(op):
        return decide(NAME, op, False, TRAINS)
    slot = NOT_IN_INFERENCE.get(op.type, "")
    for name in op.output(slot) if slot else ():
        if name in wanted or _persistable(op, name):
            return decide(NAME, op, False, f"its output {slot} ({name}) is used, but it is not computed in inference")
    op.set_attr("is_test", True)
    return decide(NAME, op, True, "is_test is set")


def _names_used(op: Operator) -> Iterator[str]:
    """The names that an operator reads, or takes out of its sub-blocks by name as `recurrent` does."""
    yield from op.input_arg_names
    if op.sub_blocks():
        yield from op.output_arg_names
        yield from texts_of(op)


def _persistable(op: Operator, name: str) -> bool:
    var = op.block.find_var_recursive(name)
    return var is not None and var.persistable


def _trained_already(op: Operator) -> bool:
    """Whether an operator with a training mode computes as in inference all the same."""
    if op.type in BATCH_NORMS:
        return uses_running_statistics(op)
    return op.type == "dropout" and float(op.get_attr("dropout_prob", 0.5)) == 0.0
