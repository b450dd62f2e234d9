"""Which operators the backward pass differentiates, and which variables have no gradient because of that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fluidtool.ir import Block, Operator, Variable
from fluidtool.ops.registry import find_op


def operator_path(
    block: Block, outputs: Sequence[Variable], inputs: Sequence[Variable], no_grad: Collection[str]
) -> tuple[list[Operator], frozenset[str]]:
    """The operators of `block` between inputs (all, when there are none) and outputs that have a gradient.

    The second is no_grad with what the path reads beside the inputs and nothing is to be differentiated by.
    """
    path = _upstream(block.ops, _output_names(block, outputs), no_grad)
    if not inputs:
        return path, frozenset(no_grad)
    dependent, forward = _downstream(block.ops, {var.name for var in inputs}, no_grad)
    path = [op for op in path if id(op) in dependent]
    others = [name for op in path for name in op.input_arg_names if name not in forward]
    return path, frozenset(no_grad).union(name for name in others if block.var_recursive(name).stop_gradient)


def _downstream(ops: Iterable[Operator], names: Collection[str], no_grad: Collection[str]) -> tuple[set[int], set[str]]:
    """The identities of the operators that depend on `names` and have a gradient, and the names with what those write."""
    reached, found = set(names), set()
    for op in ops:
        if reached.intersection(op.input_arg_names) and has_gradient(op):
            reached.update(name for name in op.output_arg_names if name not in no_grad)
            found.add(id(op))
    return found, reached


def _upstream(ops: Sequence[Operator], names: Collection[str], no_grad: Collection[str]) -> list[Operator]:
    """The operators that `names` depend on and that have a gradient."""
    wanted, found = set(names), []
    for op in reversed(ops):
        if wanted.intersection(op.output_arg_names) and has_gradient(op):
            wanted.update(name for name in op.input_arg_names if name not in no_grad)
            found.append(op)
    return found[::-1]


def has_gradient(op: Operator) -> bool:
    """Whether the operator's type has a gradient maker that makes something."""
    info = find_op(op.type)
    return info is not None and (info.gradient is not None or info.maker is not None)


def unused_outputs(
    block: Block, path: Sequence[Operator], targets: Sequence[Variable], no_grad: Collection[str]
) -> set[str]:
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


def sub_block_path(block: Block, op: Operator, no_grad: Collection[str]) -> list[Operator]:
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
    path, _ = operator_path(block, sources, [], no_grad)
    return path + [inner for inner in dict.fromkeys(assigns) if not any(inner is op for op in path)]


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
