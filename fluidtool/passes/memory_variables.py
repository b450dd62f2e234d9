"""Which variables the memory passes leave alone, and why. Everything that is looked up by its name counts as needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.ir import Operator, Program, Variable
from fluidtool.ir.operator import EMPTY
from fluidtool.ir.reuse import ORIGINAL_NAMES_ATTR
from fluidtool.ir.roles import CALLSTACK_ATTR, NAMESCOPE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.registry import find_op, traits_of
from fluidtool.ops.traits import Memory
from fluidtool.passes.liveness import Liveness
from fluidtool.proto.enums import AttrType, VarType

# Attributes whose text is no name of a variable, or one that is renamed with it.
NO_NAMES = frozenset({CALLSTACK_ATTR, NAMESCOPE_ATTR, ROLE_VAR_ATTR, ORIGINAL_NAMES_ATTR})
BY_LOD = "an operator checks whether it, or a value with its LoD, has a LoD"
BY_VIEW = "in Paddle an operator's output is a view of it, or keeps its LoD"
TEXT = frozenset({AttrType.STRING, AttrType.STRINGS})


def variable_names(skip: object) -> frozenset[str]:
    """The names in a `skip_opt_set` of variables or names.

    Raises UsageError (a ValueError) unless it is a set or a list, ArgumentTypeError for other items, as Paddle 1.3.
    """
    if skip is None:
        return frozenset()
    if not isinstance(skip, (set, frozenset, list)):
        raise UsageError(f"only support skip_opt_set as set. Found {type(skip).__name__}; give a set or a list")
    for item in skip:
        if not isinstance(item, (str, Variable)):
            raise ArgumentTypeError(
                f"{item!r} in skip_opt_set should be Variable or str, found {type(item).__name__}; give names"
            )
    return frozenset(item if isinstance(item, str) else item.name for item in skip)


class Untouchable:
    """Says of a variable of a trace why a memory pass leaves it alone.

    Those are variables that are fed, fetched, persistable or skipped by the caller; those that are no tensors, or not
    declared; those that operators with sub-blocks, or operators of other blocks, use; and those that an attribute names.
    renames: whether the pass renames variables; where it does not, `recurrent` is an operator like others.
    """

    def __init__(self, program: Program, skip: Collection[str], skip_grads: bool = False, renames: bool = True) -> None:
        self.program, self.skip = program, skip
        owners = [op for op in _operators(program) if op.sub_blocks()]
        plain = {} if renames else {id(op): op for op in owners if traits_of(op.type).memory == "scoped"}
        inner = {index for op in plain.values() for index in op.sub_blocks()}
        self.fed = {name for op in _of_type(program, "feed") for name in op.output_arg_names}
        self.fetched = {name for op in _of_type(program, "fetch") for name in op.input_arg_names}
        self.gradients = set(_optimized_gradients(program)) if skip_grads else set()
        self.in_blocks = {name for op in owners if id(op) not in plain for name in _arguments(op)}
        self.in_attributes = set(_named_by_attributes(program))
        self.by_name = {name for op in _operators(program) if _is_named(op) for name in _arguments(op)}
        self.on_cpu = {n for op in _operators(program) if op.get_attr("force_cpu", False) for n in op.output_arg_names}
        views = {name for op in _with(program, "view") for name in _arguments(op)}
        views |= {name for op in _with(program, "keeps_lod") for name in op.output_arg_names}
        asked = _asked_for_lod(program) if renames else set()
        self.in_paddles_way = {**dict.fromkeys(asked, BY_LOD), **dict.fromkeys(views, BY_VIEW)}
        self.users: dict[str, set[int]] = {}
        for op in _operators(program):
            for name in _arguments(op) if op.block.idx not in inner else ():
                self.users.setdefault(name, set()).add(op.block.idx)

    def reason(self, flow: Liveness, name: str) -> str | None:
        """Why a name is left alone; None when it need not be."""
        var = next((block.vars[name] for block in flow.trace.blocks if name in block.vars), None)
        if name in self.skip:
            return "the caller skips it"
        if var is None:
            return "it is declared in another block" if name not in ("", EMPTY) else "it is the empty name"
        if var.persistable:
            return "it is persistable"
        if var.type != VarType.LOD_TENSOR:
            return "it is not a LoDTensor"
        if name in self.fed or var.is_data or name in flow.from_before:
            return "it is fed, or read before it is written"
        if name in self.fetched:
            return "it is fetched"
        return self._named_elsewhere(flow, name)

    def _named_elsewhere(self, flow: Liveness, name: str) -> str | None:
        forward = name.split(GRAD, maxsplit=1)[0]  # gradients are found by the names of what they are gradients of
        mine = {block.idx for block in flow.trace.blocks}
        if self.users.get(name, mine) - mine:
            return "operators of other blocks use it"
        if name in self.in_blocks or (
            0 not in mine and (forward in self.in_blocks or not flow.trace.declares(forward))
        ):
            return "an operator with a sub-block uses it, or may"
        if name in self.in_attributes or (0 not in mine and forward in self.in_attributes):
            return "an attribute names it"
        if name in self.by_name:
            return "an operator sends, receives or prints it by name"
        if name in self.on_cpu:
            return "its operator keeps it on the CPU (force_cpu)"
        if name in self.gradients:
            return "it is a gradient that an optimizer reads (skip_grads)"
        return self.in_paddles_way.get(name)


def _operators(program: Program) -> Iterator[Operator]:
    for block in program.blocks:
        yield from block.ops


def _of_type(program: Program, kind: str) -> Iterator[Operator]:
    return (op for op in _operators(program) if op.type == kind)


def _with(program: Program, memory: Memory) -> Iterator[Operator]:
    return (op for op in _operators(program) if traits_of(op.type).memory == memory)


def _arguments(op: Operator) -> Iterable[str]:
    return (*op.input_arg_names, *op.output_arg_names)


def _optimized_gradients(program: Program) -> Iterator[str]:
    """The gradients that operators of the Optimize role name in `op_role_var`."""
    for op in _operators(program):
        if int(op.get_attr(ROLE_ATTR, 0)) & OpRole.Optimize:
            yield from list(op.get_attr(ROLE_VAR_ATTR, []))[1::2]


def _named_by_attributes(program: Program) -> Iterator[str]:
    """The texts in attributes, and what stands before a colon in them (`grad_to_block_id`)."""
    for op in _operators(program):
        for attr in op.attr_names:
            if attr not in NO_NAMES and op.attr_type(attr) in TEXT:
                value = op.attr(attr)
                for text in [value] if isinstance(value, str) else value:
                    yield from (text, text.partition(":")[0])


def _asked_for_lod(program: Program) -> set[str]:
    """The variables declared without a LoD whose LoD would reach an operator that computes otherwise with one.

    Paddle's operators leave the LoD of an output as it was where they have none to give, so that the one of the variable
    before would be taken for it.
    """
    writers: dict[str, list[Operator]] = {}
    for op in _operators(program):
        for name in set(op.output_arg_names):
            writers.setdefault(name, []).append(op)
    asking = [(op, slot) for op in _operators(program) if (slot := traits_of(op.type).lod_branch)]
    found = {name for op, slot in asking for name in _without_lod(op, op.input(slot))}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        sources = {n for op in writers.get(name, ()) for n in _without_lod(op, _lod_sources(op, name))}
        waiting += sources - found
        found |= sources
    return found


def _without_lod(op: Operator, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        var = op.block.find_var_recursive(name)
        if var is not None and not var.lod_level:
            yield name


def _lod_sources(op: Operator, output: str) -> Iterator[str]:
    """The inputs whose LoD an operator gives to this output; all of them where it is not known better."""
    info = find_op(op.type)
    if info is None or info.raw:
        yield from op.input_arg_names
        return
    for source, target in info.share_lod:
        if output in op.output(target):
            yield from op.input(source)


def _is_named(op: Operator) -> bool:
    role = OpRole(int(op.get_attr(ROLE_ATTR, 0)))
    return traits_of(op.type).memory == "named" or bool(role & (OpRole.RPC | OpRole.Dist))
