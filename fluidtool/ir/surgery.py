"""Copies and cuts of programs: clone, prune, inference_optimize, by the rules of Paddle 1.8 (prune.cc, framework.py).

One difference is meant: where a target is written more than once, the last write (optimizer operators aside) is what
the caller gets when the program runs, so that one is kept; Paddle keeps the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluidtool.collecting import paused
from fluidtool.errors import ProgramError
from fluidtool.ir.block import Block
from fluidtool.ir.hidden_names import hidden_reads, hidden_writes
from fluidtool.ir.operator import Operator
from fluidtool.ir.program import Program
from fluidtool.ir.reuse import unshared
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ir.variable import Parameter, Variable
from fluidtool.proto.enums import AttrType, VarType

TRAINING_ROLES = int(OpRole.Backward | OpRole.Optimize | OpRole.LRSched)
RECURRENT_STATES = ("states", "ex_states")
PROGRAM_FIELDS = (
    "version",
    "version_field",
    "op_compatible_map",
    "op_version_map",
    "extra",
    "original",
    "_seed",
    "_op_role",
    "_op_role_var",
    "_is_distributed",
    "_is_chief",
    "_parameters_on_pservers",
    "_endpoints",
    "_ps_endpoint",
    "_trainers_endpoints",
    "_distributed_lookup_table",
    "_nccl_comm_num",
    "_use_hierarchical_allreduce",
    "_hierarchical_allreduce_inter_nranks",
    "_appending_grad_times",
)
PARAMETER_FIELDS = (
    "trainable",
    "optimize_attr",
    "regularizer",
    "gradient_clip_attr",
    "do_model_average",
    "is_distributed",
)
VARIABLE_FIELDS = (
    "_persistable",
    "_dtype",
    "_shape",
    "_lod_level",
    "_type",
    "capacity",
    "error_clip",
    "extra",
    "is_data",
    "need_check_feed",
    "original",
    "stop_gradient",
    "type_bytes",
)


# ---------------------------------------------------------------- copies
def copy_variable(var: Variable, block: Block) -> Variable:
    """The same declaration for another block (not yet put in)."""
    copy: Variable = type(var).__new__(type(var))
    copy._block, copy._name = block, var.name
    for field in VARIABLE_FIELDS:
        setattr(copy, field, getattr(var, field))
    if isinstance(var, Parameter):
        for field in PARAMETER_FIELDS:
            setattr(copy, field, getattr(var, field))
    return copy


def copy_operator(op: Operator, block: Block) -> Operator:
    """The same operator for another block (not yet put in)."""
    copy = Operator(block, type=op.type)
    copy._inputs = {slot: list(names) for slot, names in op.inputs.items()}
    copy._outputs = {slot: list(names) for slot, names in op.outputs.items()}
    copy._attrs = {name: list(value) if isinstance(value, list) else value for name, value in op._attrs.items()}
    copy._attr_types = dict(op._attr_types)
    copy.attr_extra, copy.extra, copy.is_target = dict(op.attr_extra), op.extra, op.is_target
    copy.original = op.original
    return copy


def copy_fields(program: Program, source: Program) -> None:
    """Take over what a program says beside its blocks."""
    for field in PROGRAM_FIELDS:
        setattr(program, field, getattr(source, field))


@paused()
def copy_program(program: Program) -> Program:
    """A copy that shares nothing with the program."""
    out = type(program)()
    copy_fields(out, program)
    out.blocks = [Block(out, block.idx, block.parent_idx) for block in program.blocks]
    for copy, block in zip(out.blocks, program.blocks, strict=True):
        copy.forward_block_idx, copy.extra = block.forward_block_idx, block.extra
        copy.vars = {name: copy_variable(var, copy) for name, var in block.vars.items()}
        copy.ops = [copy_operator(op, copy) for op in block.ops]
    out.current_block_idx = program.current_block_idx
    return out


def forget_originals(program: Program) -> None:
    """Make a program one that was built here: the same fields give the same bytes, however their files wrote them."""
    program.original = None
    for block in program.blocks:
        for var in block.vars.values():
            var.original, var.persistable = None, var.persistable
        for op in block.ops:
            op.original = None


def clone(program: Program, for_test: bool = False) -> Program:
    """A copy; for_test drops operators of the backward, optimizer and learning-rate roles and sets `is_test`."""
    out = copy_program(program)
    if for_test:
        out = drop_training(out)
        set_is_test(out)
    return out


def set_is_test(program: Program) -> None:
    """Set `is_test` on every operator that has the attribute; gradient operators get it as INT, as in Paddle."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("is_test"):
                op.set_attr("is_test", True, AttrType.INT if op.type.endswith("_grad") else None)


def drop_training(program: Program) -> Program:
    """The program without its training operators, the blocks that only they used, and variables that nothing names."""
    roles = [op.get_attr(ROLE_ATTR, 0) & TRAINING_ROLES for block in program.blocks for op in block.ops]
    if not any(roles):
        return program
    for block in program.blocks:
        block.ops = [op for op in block.ops if not op.get_attr(ROLE_ATTR, 0) & TRAINING_ROLES]
    keep = _reachable(program)
    out = _renumbered(program, keep)
    _keep_named_variables(out)
    return out


# ---------------------------------------------------------------- prune
def prune(program: Program, feeds: Sequence[str] | str, targets: Any) -> Program:
    """A copy with the operators that `targets` depend on, cut at the variables `feeds`.

    targets: variables, names or operators of block 0. Raises ProgramError (a ValueError) for anything else, and for a
    variable that no operator of block 0 computes.
    """
    feeds = [feeds] if isinstance(feeds, str) else list(feeds)
    for name in feeds:
        if not isinstance(name, str):
            raise ProgramError(
                f"All feeded_var_names of Program._prune_with_input() can only be str, but received {type(name)}."
            )
    targets = list(targets) if isinstance(targets, (list, tuple, set)) else [targets]
    program, targets = _with_plain_names(program, feeds, targets)
    marked = {id(op) for op in _target_operators(program, feeds, targets)}
    _check_feed_fetch_order(program)

    out = type(program)()
    copy_fields(out, program)
    out.blocks = []
    _prune_block(program, out, program.global_block(), -1, set(), set(feeds), marked)
    return out


def _with_plain_names(program: Program, feeds: Sequence[str], targets: list[Any]) -> tuple[Program, list[Any]]:
    """The program in which feeds and targets mean what they say, where `memory_optimize` let variables share names."""
    names = [t if isinstance(t, str) else t.name for t in targets if isinstance(t, (str, Variable))]
    plain = unshared(program, [*feeds, *names])
    if plain is program:
        return program, targets
    return plain, [plain.block(t.block.idx).ops[t.idx] if isinstance(t, Operator) else t for t in targets]


def _target_operators(program: Program, feeds: Sequence[str], targets: Iterable[Any]) -> list[Operator]:
    given = [target for target in targets if isinstance(target, Operator)]
    found = list(given)
    writers = _last_writers(program, given)
    for target in targets:
        if isinstance(target, Operator):
            continue
        if not isinstance(target, (str, Variable)):
            raise ProgramError(
                "All targets of Program._prune_with_input() can only be Variable or Operator, "
                f"but received {type(target)}."
            )
        name = target if isinstance(target, str) else target.name
        if name not in feeds:
            found.append(_producer(program, name, writers))
    return found


def _last_writers(program: Program, given: Sequence[Operator]) -> dict[str, Operator]:
    """The last operator of block 0 that writes each name; of those that optimize, only the ones given as targets count."""
    chosen = set(map(id, given))
    return {
        name: op
        for op in program.global_block().ops
        if not int(op.get_attr(ROLE_ATTR, 0)) & OpRole.Optimize or id(op) in chosen
        for name in op.output_arg_names
    }


def _producer(program: Program, name: str, writers: Mapping[str, Operator]) -> Operator:
    if name in writers:
        return writers[name]
    known = program.global_block().has_var(name)
    raise ProgramError(
        f"The target variable used for pruning should have an associated operator that generates it: "
        f"{name} {'is computed by no operator of block 0' if known else 'is not a variable of block 0'}"
    )


def _check_feed_fetch_order(program: Program) -> None:
    for block in program.blocks:
        types = [op.type for op in block.ops]
        feeds = types.count("feed")
        fetches = types.count("fetch")
        if types[:feeds] != ["feed"] * feeds or types[len(types) - fetches :] != ["fetch"] * fetches:
            raise ProgramError(
                f"block {block.idx} cannot be pruned: feed operators must come first and fetch operators last"
            )


def _prune_block(
    program: Program,
    out: Program,
    block: Block,
    parent: int,
    wanted: set[str],
    feeds: set[str],
    marked: set[int],
) -> int:
    """Copy what is needed of `block` into `out`; returns the new block's index."""
    kept = []
    for op in reversed(block.ops):
        trains = int(op.get_attr(ROLE_ATTR, int(OpRole.NotSpecified))) & OpRole.Optimize
        written = set(op.output_arg_names)
        # What a loop writes to a variable that it is fed is read again in its next round.
        fed_back = written & feeds
        if parent < 0:
            fed_back = fed_back.intersection(op.input_arg_names) if op.sub_blocks() else set()
        if id(op) in marked or ((wanted & written or fed_back) and not trains):
            kept.append(op)
            wanted |= ({*op.input_arg_names} | hidden_reads(op)) - feeds
            if op.sub_blocks():
                wanted |= written - feeds  # a branch that is not taken leaves the value before it
    new = Block(out, len(out.blocks), parent)
    new.forward_block_idx, new.extra = block.forward_block_idx, block.extra
    out.blocks.append(new)
    for op in reversed(kept):
        copy = copy_operator(op, new)
        copy.is_target = False
        new.ops.append(copy)
        _prune_sub_blocks(program, out, op, copy, feeds, marked)
    names = {name for op in new.ops for name in _names(op)}
    new.vars = {name: copy_variable(var, new) for name, var in block.vars.items() if name in names}
    return new.idx


def _prune_sub_blocks(
    program: Program, out: Program, op: Operator, copy: Operator, feeds: set[str], marked: set[int]
) -> None:
    for attr, kind in op._attr_types.items():
        if kind == AttrType.BLOCK and op.attr(attr) > 0:
            indexes = [op.attr(attr)]
        elif kind == AttrType.BLOCKS:
            indexes = list(op.attr(attr))
        else:
            continue
        wanted = ({*op.input_arg_names, *op.output_arg_names}) - feeds
        if op.type == "recurrent":
            wanted |= {n for state in RECURRENT_STATES for n in op.get_attr(state, [])} - feeds
        made = [
            _prune_block(program, out, program.block(index), copy.block.idx, set(wanted), feeds, marked)
            for index in indexes
        ]
        copy._attrs[attr] = made if kind == AttrType.BLOCKS else made[0]


def _names(op: Operator) -> set[str]:
    """Every variable that an operator names."""
    return {*op.input_arg_names, *op.output_arg_names} | hidden_reads(op) | hidden_writes(op)


# ---------------------------------------------------------------- inference
def inference_optimize(program: Program, prune_read_op: bool = True) -> Program:
    """A copy with `is_test` set; readers and everything up to the first `read` are dropped if asked for."""
    out = copy_program(program)
    block = out.global_block()
    if prune_read_op:
        reads = [position for position, op in enumerate(block.ops) if op.type == "read"]
        if reads:
            block.ops = block.ops[reads[0] + 1 :]
        for name in [name for name, var in block.vars.items() if var.type == VarType.READER]:
            block.remove_var(name)
    for op in (op for block in out.blocks for op in block.ops):
        op.is_target = False
    set_is_test(out)
    return out


# ---------------------------------------------------------------- blocks and variables in use
def _reachable(program: Program) -> list[int]:
    """Block 0 and every block that an operator of a reachable block names, in order."""
    seen, todo = {0}, [0]
    while todo:
        for op in program.block(todo.pop()).ops:
            fresh = [index for index in op.sub_blocks() if index not in seen]
            seen.update(fresh)
            todo += fresh
    return sorted(seen)


def _renumbered(program: Program, keep: list[int]) -> Program:
    """The program reduced to the blocks `keep`, renumbered in order, BLOCK attributes rewritten."""
    number = {old: new for new, old in enumerate(keep)}
    program.blocks = [program.blocks[old] for old in keep]
    for block in program.blocks:
        block.idx, block.parent_idx = number[block.idx], number.get(block.parent_idx, -1)
        block.forward_block_idx = number.get(block.forward_block_idx, -1)
        for op in block.ops:
            for attr, kind in op._attr_types.items():
                if kind == AttrType.BLOCK:
                    op._attrs[attr] = number[op._attrs[attr]]
                elif kind == AttrType.BLOCKS:
                    op._attrs[attr] = [number[old] for old in op._attrs[attr]]
    program.current_block_idx = number.get(program.current_block_idx, 0)
    program.touch()
    return program


def _keep_named_variables(program: Program) -> None:
    """Drop declarations that no operator of their block, or of a block within it, names."""
    named: list[set[str]] = [set() for _ in program.blocks]
    for block in program.blocks:
        names = {name for op in block.ops for name in _names(op)}
        for around in block.ancestry():
            named[around.idx] |= names
    for block in program.blocks:
        block.vars = {name: var for name, var in block.vars.items() if name in named[block.idx]}
