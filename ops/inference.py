"""Shapes, data types and LoD levels without running: one operator, or a whole program.

Sizes known only at run time are -1. Inference functions are beside their operators; this module runs them, and has the
rule for most gradient operators: a gradient is like its variable, except for its LoD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from fluidtool.errors import LIST_VARIABLES, FluidError, OperatorError
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.context import InferContext
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.registry import Kernel, OpInfo, find_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

TENSOR_KINDS = frozenset({VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY})
Lookup = Callable[[str], TensorMeta | None]


def declared_meta(var: Variable | None) -> TensorMeta | None:
    """The metadata in a variable's declaration, or None if it is incomplete."""
    if var is None or var.type not in TENSOR_KINDS or not var.has_shape or var.dtype is None:
        return None
    return TensorMeta(var.shape, var.dtype, var.lod_level, VarType(var.type))


def infer_operator(op: Operator, lookup: Lookup) -> dict[str, TensorMeta]:
    """Metadata of the outputs of `op` by variable name; unknown ones are left out.

    Empty if attributes name variables. Raises OperatorError if the shapes are invalid.
    """
    info = find_op(op.type)
    if info is None or op.variable_attrs():
        return {}
    results = _by_rule(op, info, lookup)
    for slot in info.outputs:
        for index, name in enumerate(op.outputs.get(slot.name, ())):
            if name != EMPTY and name not in results and GRAD in name:
                like = lookup(_forward_name(name))
                if like is not None:
                    results[name] = _with_shared_lod(op, info, slot.name, index, like.with_lod_level(0), lookup)
    return results


def _forward_name(gradient: str) -> str:
    """The variable that this is the gradient of; second passes over a program put `grad/` in front."""
    name = gradient.split(GRAD, maxsplit=1)[0]
    while name.startswith("grad/"):
        name = name.removeprefix("grad/")
    return name


def _by_rule(op: Operator, info: OpInfo, lookup: Lookup) -> dict[str, TensorMeta]:
    if info.infer_by_kernel is None:
        return {}
    args: list[Any] = []
    if not info.raw:
        for slot in info.inputs:
            metas = [lookup(name) for name in op.inputs.get(slot.name, ())]
            unknown = any(meta is None for meta in metas) and not _is_opaque(op, slot.name)
            if unknown or (not metas and not slot.dispensable and not slot.duplicable):
                return {}
            args.append(metas if slot.duplicable else metas[0] if metas else None)
    result = _infer(op, info, info.infer_by_kernel, args, lookup)
    if result is None:
        return {}
    by_slot = result if isinstance(result, dict) else {info.outputs[0].name: result}
    found: dict[str, TensorMeta] = {}
    for slot_name, metas in by_slot.items():
        names = op.outputs.get(slot_name, [])
        items = metas if isinstance(metas, list) else [metas]
        for index, (name, meta) in enumerate(zip(names, items, strict=False)):
            if meta is not None and name != EMPTY:
                found[name] = _with_shared_lod(op, info, slot_name, index, meta, lookup)
    return found


def _infer(op: Operator, info: OpInfo, kernel: Kernel, args: list[Any], lookup: Lookup) -> Any:
    """The result of the inference function; invalid attributes raise OperatorError like shapes."""
    context = InferContext(op, info, lookup)
    for name in info.infer_attrs:
        if info.attrs[name].required and not op.has_attr(name):
            raise OperatorError(f"operator {op.type}: lacks the required attribute {name}")
    attrs = {name: context.attr(name) for name in info.infer_attrs}
    try:
        return kernel(context, *args, **attrs)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, FluidError):
            raise
        raise OperatorError(f"operator {op.type}: shapes cannot be inferred from its attributes: {error}") from error


def _is_opaque(op: Operator, slot: str) -> bool:
    """Whether a slot holds variables that never have metadata: caches of kind RAW."""
    found = (op.block.find_var_recursive(name) for name in op.inputs[slot])
    return all(var is not None and var.type == VarType.RAW for var in found)


def _with_shared_lod(op: Operator, info: OpInfo, slot: str, index: int, meta: TensorMeta, lookup: Lookup) -> TensorMeta:
    for source, target in info.share_lod:
        names = op.inputs.get(source, [])
        if target == slot and names:
            origin = lookup(names[index] if index < len(names) else names[0])
            if origin is not None and origin.lod_level:
                return meta.with_lod_level(origin.lod_level)
    return meta


@dataclass(slots=True)
class Inferred:
    """The metadata of a whole program: by (block index, name); errors by operator position."""

    metas: dict[tuple[int, str], TensorMeta] = field(default_factory=dict)
    faults: list[tuple[int, int, FluidError]] = field(default_factory=list)

    def find(self, block: Block, name: str) -> TensorMeta | None:
        """The metadata of a name as seen from a block."""
        for around in block.ancestry():
            if (around.idx, name) in self.metas:
                return self.metas[around.idx, name]
        return None


def infer_program(program: Program, feeds: dict[str, TensorMeta] | None = None) -> Inferred:
    """Infer every variable of a program from its declared inputs, or from `feeds` where these are more specific."""
    inferred = Inferred()
    for block in program.blocks:
        for var in block.vars.values():
            meta = declared_meta(var)
            if meta is not None:
                inferred.metas[block.idx, var.name] = meta
    for name, meta in (feeds or {}).items():
        inferred.metas[0, name] = meta
    _infer_block(program, program.global_block(), inferred)
    return inferred


def _infer_block(program: Program, block: Block, inferred: Inferred) -> None:
    for position, op in enumerate(block.ops):
        for index in op.sub_blocks():
            if index > block.idx:
                _infer_block(program, program.block(index), inferred)
        try:
            results = infer_operator(op, lambda name: inferred.find(block, name))
        except FluidError as error:
            inferred.faults.append((block.idx, position, error))
            continue
        for name, meta in results.items():
            owner = next((around for around in block.ancestry() if name in around.vars), block)
            inferred.metas[owner.idx, name] = meta


def infer_declared(op: Operator) -> None:
    """Write the inferred metadata of `op` into the declarations of its outputs, as Paddle does when it is appended.

    Raises OperatorError if the shapes are invalid, or if an input is no variable of the program.
    """
    block = op.block
    _require_declared(op)
    results = infer_operator(op, lambda name: declared_meta(block.find_var_recursive(name)))
    for name, meta in results.items():
        var = block.find_var_recursive(name)
        if var is None or var.type not in TENSOR_KINDS:
            continue
        if meta.kind != VarType.LOD_TENSOR and var.type != meta.kind:
            var.type = meta.kind
        if var.shape != meta.shape or not var.has_shape:
            var.shape = meta.shape
        if var.dtype != meta.dtype:
            var.dtype = meta.dtype
        if var.type != VarType.SELECTED_ROWS and var.lod_level != meta.lod_level:
            var.lod_level = meta.lod_level


def _require_declared(op: Operator) -> None:
    """Raise OperatorError for an input that must be there and that no block around `op` declares (HasInput in op_desc.cc)."""
    info = find_op(op.type)
    if info is None or info.infer_by_kernel is None or info.raw or op.type.endswith("_grad"):
        return
    for slot in info.inputs:
        for name in () if slot.dispensable else op.inputs.get(slot.name, ()):
            if name != EMPTY and op.block.find_var_recursive(name) is None:
                raise OperatorError(
                    f"operator {op.type}: input {slot.name} is {name!r}, but the program declares no such variable",
                    hint=LIST_VARIABLES,
                )
