"""The part of the verifier that looks at shapes and data types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import prod

from fluidtool.errors import FluidError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.variable import data_type_name
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.inference import TENSOR_KINDS, declared_meta, infer_operator
from fluidtool.ops.registry import find_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.passes.findings import Finding, at
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

UNSET = VarType.FP32  # what Paddle's descriptions of variables say before anybody declares a data type
Place = tuple[int | None, int | None]  # of an operator: block, position


class Shapes:
    """FC201 to FC203: shapes that cannot work, and declarations that contradict what operators imply.

    A name that is written more than once has one declaration for several values, which says nothing about each: such
    a name is known only after an operator whose inference gives it. Nothing is asked of operators that are `malformed`.
    """

    def __init__(self, program: Program, malformed: Collection[Place] = ()) -> None:
        self.program, self.malformed = program, malformed
        self.found: list[Finding] = []
        self.writers = Counter(
            name for block in program.blocks for op in block.ops for name in set(op.output_arg_names)
        )
        self.given: set[str] = set()  # what was read before any operator wrote it
        self.written: set[str] = set()
        self.known: dict[tuple[int, str], TensorMeta | None] = {
            (block.idx, var.name): None if self.writers[var.name] > 1 else declared_meta(var)
            for block in program.blocks
            for var in block.vars.values()
        }

    def findings(self) -> list[Finding]:
        """What is wrong with the shapes and data types, operator by operator."""
        self._follow(self.program.global_block())
        return self.found

    def _follow(self, block: Block) -> None:
        for position, op in enumerate(block.ops):
            self.given |= set(op.input_arg_names) - self.written
            for index in op.sub_blocks():
                if index > block.idx:
                    self._follow(self.program.block(index))
            self.written |= set(op.output_arg_names)
            results: dict[str, TensorMeta] = {}
            try:
                if (block.idx, position) not in self.malformed:
                    results = infer_operator(op, lambda name: self._find(block, name))
            except FluidError as error:
                self.found.append(at("FC201", op, position, str(error).removeprefix(f"operator {op.type}: ")))
            self._store(op, position, results)

    def _find(self, block: Block, name: str) -> TensorMeta | None:
        owner = _owner(block, name)
        return None if owner is None else self.known.get((owner.idx, name))

    def _store(self, op: Operator, position: int, results: dict[str, TensorMeta]) -> None:
        info = find_op(op.type)
        unseen = (
            {name for slot in info.outputs if slot.intermediate for name in op.output(slot.name)} if info else set()
        )
        for name in op.output_arg_names:
            owner = _owner(op.block, name)
            if owner is None:
                continue
            several, meta = self.writers[name] > 1 or name in self.given, results.get(name)
            if several:
                self.known[owner.idx, name] = None if GRAD in name else meta  # gradients are inferred from their names
            elif meta is not None:
                agrees = name in unseen or GRAD in name
                agrees = agrees or self._compare(op, position, name, declared_meta(owner.vars[name]), meta)
                if agrees:
                    self.known[owner.idx, name] = meta

    def _compare(self, op: Operator, position: int, name: str, declared: TensorMeta | None, meta: TensorMeta) -> bool:
        """Whether a declaration agrees with what the operator makes; where not, the declaration is believed."""
        if declared is None or meta.kind not in TENSOR_KINDS or name in op.input_arg_names:
            return True
        before = len(self.found)
        if declared.dtype not in (meta.dtype, UNSET) and self._passes_on(op, meta.dtype):
            found, expected = data_type_name(meta.dtype), data_type_name(declared.dtype)
            text = f"computes {name} with the data type {found}, but it is declared {expected}"
            self.found.append(at("FC203", op, position, text, name))
        if not _agree(declared, meta):
            text = f"computes {name} with the shape {shape_text(meta.shape)}, but it is declared {shape_text(declared.shape)}"
            self.found.append(at("FC202", op, position, text, name))
        return len(self.found) == before and declared.dtype == meta.dtype

    def _passes_on(self, op: Operator, data_type: VarType) -> bool:
        """Whether an operator's output has the data type of an input of its own.

        Others, such as edit_distance, have one that Paddle's layers do not always declare.
        """
        metas = (self._find(op.block, name) for name in op.input_arg_names)
        return any(meta is not None and meta.dtype == data_type for meta in metas)


def _owner(block: Block, name: str) -> Block | None:
    return next((around for around in block.ancestry() if name in around.vars), None)


def _agree(declared: TensorMeta, inferred: TensorMeta) -> bool:
    """Whether both can be the same tensor: sizes below 0 are unknown, and so are shapes without sizes.

    So are declared sizes of 0: Paddle 1.8.5 declares them for what it cannot infer, all outputs of `expand_as` among them.
    """
    if not declared.shape or not inferred.shape:
        return True
    if declared.rank != inferred.rank:
        return _is_reshape(declared, inferred)
    return all(a == b or a <= 0 or b < 0 for a, b in zip(declared.shape, inferred.shape, strict=True))


def _is_reshape(declared: TensorMeta, inferred: TensorMeta) -> bool:
    """Whether both have equally many elements, with at most one unknown size.

    `reshape` with inplace=True changes the declaration of its input, and pruning may remove the operator, but not what it changed.
    """
    unknown = [[size for size in meta.shape if size < 0] for meta in (declared, inferred)]
    known = [prod(size for size in meta.shape if size >= 0) for meta in (declared, inferred)]
    return len(unknown[0]) == len(unknown[1]) <= 1 and known[0] == known[1]
