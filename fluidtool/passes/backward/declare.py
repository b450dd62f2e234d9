"""The variables that gradient operators write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluidtool.ir import Block, Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.inference import TENSOR_KINDS, infer_declared
from fluidtool.passes.backward.descriptions import strip_grad
from fluidtool.proto.enums import VarType

Declared = dict[str, tuple[str, Block]]


def declare(block: Block, start: int, origins: Mapping[str, str]) -> Declared:
    """Declare what the operators from `start` on write; drop those that write nothing or read no gradient that exists.

    origins: gradient name -> forward name. Returns by forward name the gradient and the block that declares it.
    """
    owner = next((op for other in block.program.blocks for op in other.ops if _holds(op, block)), None)
    return _declare_below(block, block.ops[start:], owner, origins)


def _holds(op: Operator, block: Block) -> bool:
    return bool(block.idx) and op.has_attr("sub_block") and op.block_attr_id("sub_block") == block.idx


def _declare_below(
    block: Block, new: Iterable[Operator], owner: Operator | None, origins: Mapping[str, str]
) -> Declared:
    """The same for a block whose operators are run by `owner`, and the blocks below it."""
    recursive = set(owner.input_arg_names) & set(owner.output_arg_names) if owner is not None else set[str]()
    declared: Declared = {}
    dead = set[int]()
    for op in new:
        if op.has_attr("sub_block"):
            inner = block.program.block(op.block_attr_id("sub_block"))
            declared |= _declare_below(inner, inner.ops, op, origins)
        outputs = [name for name in op.output_arg_names if name != EMPTY]
        gradients = [name for name in op.input_arg_names if GRAD in name]
        known = [name for name in gradients if block.has_var_recursive(name) or name in recursive]
        if not outputs or (gradients and not known and op.type != "rnn_memory_helper_grad"):
            dead.add(id(op))
            continue
        fresh = _declare_outputs(block, op, outputs)
        declared |= {origins[name]: (name, block) for name in fresh if name in origins}
    block.ops = [op for op in block.ops if id(op) not in dead]
    return declared


def _declare_outputs(block: Block, op: Operator, outputs: Iterable[str]) -> list[str]:
    """Declare the outputs that nothing declares yet, and return them."""
    fresh = [name for name in dict.fromkeys(outputs) if not block.has_var_recursive(name)]
    for name in fresh:
        # What is no gradient has no data type yet; Paddle's declarations begin with the first one, bool.
        block.create_var(name=name, dtype=None if GRAD in name else VarType.BOOL)
    infer_declared(op)
    for name in fresh:
        var, like = block.vars[name], block.find_var_recursive(strip_grad(name))
        if like is None or var.type not in TENSOR_KINDS:
            var.dtype = VarType.FP32 if like is None else like.dtype
            continue
        var.dtype, var.shape = like.dtype, like.shape
    return fresh
