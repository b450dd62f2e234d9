"""Casts put into a program, so that some of its operators compute in float16 (Paddle 1.8.5 fp16_utils.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fluidtool.errors import ProgramError
from fluidtool.fluid.contrib.mixed_precision.lists import AutoMixedPrecisionLists
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.roles import ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

CAST_KINDS = (VarType.LOD_TENSOR, VarType.SELECTED_ROWS, VarType.LOD_TENSOR_ARRAY)
SHORT = {VarType.FP16: "fp16", VarType.FP32: "fp32"}


@dataclass(frozen=True, slots=True)
class _Uses:
    """The operators that write and read each variable, and the place of each operator, by its identity."""

    writers: dict[str, list[Operator]]
    readers: dict[str, list[Operator]]
    places: dict[int, int]

    @classmethod
    def of(cls, block: Block) -> _Uses:
        writers: defaultdict[str, list[Operator]] = defaultdict(list)
        readers: defaultdict[str, list[Operator]] = defaultdict(list)
        for op in block.ops:
            for name in dict.fromkeys(op.output_arg_names):
                writers[name].append(op)
            for name in dict.fromkeys(op.input_arg_names):
                readers[name].append(op)
        return cls(dict(writers), dict(readers), {id(op): place for place, op in enumerate(block.ops)})

    def place(self, op: Operator) -> int:
        return self.places[id(op)]

    def last_writer(self, name: str) -> Operator | None:
        writers = self.writers.get(name)
        return writers[-1] if writers else None

    def writer_before(self, op: Operator, name: str) -> Operator | None:
        """The one operator before `op` that writes the variable; raises ProgramError when there are several."""
        found = [other for other in self.writers.get(name, ()) if self.place(other) < self.place(op)]
        if len(found) > 1:
            raise ProgramError(f"There must be only one previous op that outputs {name} variable")
        return found[0] if found else None

    def source(self, op: Operator, name: str) -> Operator | None:
        """The operator that made an input; of several the last, unless that is `op` itself."""
        last = self.last_writer(name)
        return self.writer_before(op, name) if last is op else last

    def require_unread(self, op: Operator, written: str) -> None:
        """Raise ProgramError for an operator behind `op` that reads what it writes."""
        for other in self.readers.get(written, ()):
            if self.place(other) > self.place(op):
                raise ProgramError(
                    f"The cast op {op!r}'s output is used by an operator that is not an optimizer, {other!r}"
                )


def rewrite_program(program: Program, lists: AutoMixedPrecisionLists) -> None:
    """Cast the inputs of block 0's operators to the precision given by the lists, in place; call it before `backward`."""
    block = program.global_block()
    half, single = _sorted_out(block, lists)
    position = 0
    while position < len(block.ops):
        op = block.ops[position]
        if id(op) in single:
            position += _cast_inputs(block, op, position, VarType.FP16, VarType.FP32)
        elif id(op) in half:
            position += _cast_inputs(block, op, position, VarType.FP32, VarType.FP16)
            _declare_half(block, op)
        position += 1


def _sorted_out(block: Block, lists: AutoMixedPrecisionLists) -> tuple[set[int], set[int]]:
    """The identities of the operators that compute in float16, and of those in float32."""
    half: set[int] = set()
    single: set[int] = set()
    uses = _Uses.of(block)
    for op in block.ops:
        named = {*op.input_arg_names, *op.output_arg_names}
        if (lists.black_varnames is not None and named & lists.black_varnames) or op.type in lists.black_list:
            single.add(id(op))
        elif op.type in lists.white_list:
            half.add(id(op))
        elif op.type in lists.gray_list:
            before = [found for name in op.input_arg_names if (found := uses.source(op, name)) is not None]
            if any(id(other) in single or other.type in lists.black_list for other in before):
                single.add(id(op))
            elif any(id(other) in half or other.type in lists.white_list for other in before):
                half.add(id(op))
        else:
            single.add(id(op))
    return half, single


def _cast_inputs(block: Block, op: Operator, position: int, source: VarType, target: VarType) -> int:
    """Insert casts before `op`; returns how many."""
    casts = 0
    for slot in sorted(op.input_names):
        if source == VarType.FP32 and op.type == "batch_norm" and slot != "X":
            continue
        for name in op.input(slot):
            var = block.var_recursive(name)
            if var.type not in CAST_KINDS:
                continue
            if var.dtype == source:
                casts += _cast(block, op, position, var, target)
            elif op.has_attr("in_dtype"):
                op.set_attr("in_dtype", int(target))
    return casts


def _cast(block: Block, op: Operator, position: int, var: Variable, target: VarType) -> int:
    """Make `op` use a cast of the variable; 1 if it had to be inserted."""
    name = f"{var.name}.cast_{SHORT[target]}"
    made = 0
    if name not in block.vars or block.vars[name].dtype != target:
        assert var.dtype is not None
        cast = block.create_var(name=name, dtype=target, persistable=False, stop_gradient=False)
        attrs = {"in_dtype": int(var.dtype), "out_dtype": int(target)}
        block.insert_op(position, type="cast", inputs={"X": var}, outputs={"Out": cast}, attrs=attrs)
        made = 1
    op.rename_input(var.name, name)
    op.rename_output(var.name, name)
    return made


def _declare_half(block: Block, op: Operator) -> None:
    """The outputs of an operator that computes in float16 are float16."""
    for slot in op.output_names:
        if op.type == "batch_norm" and slot != "Y":
            continue
        for name in op.output(slot):
            var = block.var_recursive(name)
            if var.type in CAST_KINDS and var.dtype == VarType.FP32:
                var.dtype = VarType.FP16
                if op.has_attr("out_dtype"):
                    op.set_attr("out_dtype", int(VarType.FP16))


def move_casts_of_gradients(program: Program, pairs: Sequence[tuple[Variable, Variable | None]]) -> None:
    """Move the casts of float16 gradients into the optimizer: what several devices add up is then float16.

    Raises ProgramError for a cast that is not the last thing done to a gradient.
    """
    block = program.global_block()
    uses, moved = _Uses.of(block), list[Operator]()
    for param, grad in pairs:
        op = uses.last_writer(grad.name) if grad is not None and grad.dtype == VarType.FP32 else None
        if op is None or op.type != "cast" or grad is None:
            continue
        if not (op.attr(ROLE_ATTR) & OpRole.Backward and op.has_attr(ROLE_VAR_ATTR)):
            raise ProgramError(f"The cast op {op!r} must be in BACKWARD role and have op_role_var attr.")
        op.remove_attr(ROLE_VAR_ATTR)
        (half,) = op.input("X")
        maker = uses.writer_before(op, half)
        assert maker is not None
        maker.set_attr(ROLE_VAR_ATTR, [param.name, half, *maker.get_attr(ROLE_VAR_ATTR, [])])
        op.set_attr(ROLE_ATTR, int(OpRole.Optimize))
        uses.require_unread(op, grad.name)
        moved.append(op)
    _move_to_end(block, moved)


def _move_to_end(block: Block, moved: Sequence[Operator]) -> None:
    behind = set(map(id, moved))
    block.ops = [*(op for op in block.ops if id(op) not in behind), *moved]
    block.program.touch()
