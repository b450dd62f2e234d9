"""What a training program says about its optimization: which operators, which parameters, which tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fluidtool.errors import ProgramError, UnsupportedOperatorError
from fluidtool.ir import Block, Operator, Parameter, Program, Variable
from fluidtool.ir.roles import NAMESCOPE_ATTR, ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.ops.index import TRAITS
from fluidtool.ops.registry import traits_of
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

# Name scopes of set_gradient_clip, and of an optimizer's grad_clip (which Paddle 1.8.5 hands to servers in a form that fails).
CLIP_SCOPES = ("@CLIP", "/gradient_clip")
UPDATE_VARS_ATTR = "distribute_update_vars"
SCHEDULES = (int(OpRole.LRSched), int(OpRole.LRSched | OpRole.Optimize))


@dataclass(frozen=True, slots=True)
class ParamGrad:
    """A parameter and what a trainer sends for it; the same name twice for one that its own backward pass updates."""

    parameter: str
    gradient: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """Positions of operators in block 0, and the pairs that they optimize, in the order of the program."""

    optimizers: tuple[int, ...]
    clips: tuple[int, ...]
    schedule: tuple[int, ...]
    pairs: tuple[ParamGrad, ...]


def role_of(op: Operator) -> int:
    """The operator's role; forward for one that says nothing."""
    return int(op.get_attr(ROLE_ATTR, 0))


def role_vars(op: Operator) -> list[str]:
    """[parameter, gradient, …] that an operator works for."""
    return list(op.get_attr(ROLE_VAR_ATTR, []))


def param_grad_of(op: Operator) -> ParamGrad | None:
    """The parameter and the gradient that an optimizer operator works for; None when it says neither."""
    names = role_vars(op)
    if len(names) < 2 and is_update(op):
        names = [*op.input("Param"), *op.input("Grad")]
    return ParamGrad(names[0], names[1]) if len(names) >= 2 else None


def is_update(op: Operator) -> bool:
    """Whether the operator updates a parameter by a learning rate."""
    return bool(op.input("Param")) and bool(op.input("LearningRate"))


def analyze(program: Program) -> Analysis:
    """Read block 0. Clips of gradients have the optimizer's role, but stay with the trainer (Paddle 1.7+)."""
    optimizers, clips, schedule = [], [], []
    pairs: dict[str, ParamGrad] = {}
    for position, op in enumerate(program.global_block().ops):
        role = role_of(op)
        if role in SCHEDULES:
            schedule.append(position)
        elif role != OpRole.Optimize:
            continue
        elif any(scope in str(op.get_attr(NAMESCOPE_ATTR, "")) for scope in CLIP_SCOPES):
            clips.append(position)
        else:
            optimizers.append(position)
            pair = param_grad_of(op)
            if pair is not None:
                pairs.setdefault(pair.parameter, pair)
    found = [*pairs.values(), *_updated_in_backward(program)]
    return Analysis(tuple(optimizers), tuple(clips), tuple(schedule), tuple(found))


def _updated_in_backward(program: Program) -> Iterator[ParamGrad]:
    """Parameters that operators such as pyramid_hash name as updated by their own backward pass."""
    names: dict[str, None] = {}
    for op in program.global_block().ops:
        text = op.get_attr(UPDATE_VARS_ATTR, "")
        names.update(dict.fromkeys(text.split(",") if text else ()))
    return (ParamGrad(name, name) for name in names)


def trained(program: Program, pairs: tuple[ParamGrad, ...]) -> tuple[ParamGrad, ...]:
    """The pairs whose parameter is not frozen, each parameter once."""
    block = program.global_block()
    chosen: dict[str, ParamGrad] = {}
    for pair in pairs:
        var = block.vars.get(pair.parameter)
        if not (isinstance(var, Parameter) and not var.trainable):
            chosen.setdefault(pair.parameter, pair)
    return tuple(chosen.values())


def cut_inputs(op: Operator) -> frozenset[str]:
    """The inputs of an optimizer operator that are cut like its parameter."""
    traits = traits_of(op.type)
    found = frozenset(traits.sharded or ())
    if traits.sharded_if is not None and op.get_attr(traits.sharded_if[0]) is True:
        found |= {traits.sharded_if[1]}
    return found


def table_of(op: Operator) -> str:
    """The table that a lookup reads; "" for none."""
    slot = traits_of(op.type).table
    names = op.input(slot) if slot else []
    return names[0] if names else ""


def is_lookup(op: Operator) -> bool:
    """Whether the operator does nothing but look rows of a table up."""
    return traits_of(op.type).plain_lookup


def asks_servers(op: Operator) -> bool:
    """Whether the operator may ask servers for rows of its table."""
    return bool(traits_of(op.type).table) and op.get_attr("remote_prefetch") is True


def distributed_table(program: Program) -> str | None:
    """The table of `embedding(is_distributed=True)`, which servers share row by row; at most one can be.

    Raises ProgramError for more than one, or for one that another lookup takes as a plain parameter.
    """
    lookups = [op for op in program.global_block().ops if is_lookup(op)]
    tables = list(dict.fromkeys(table_of(op) for op in lookups if op.get_attr("is_distributed") is True))
    if len(tables) > 1:
        raise ProgramError(
            f"all distributed lookup_table_ops should have only one table, found {', '.join(tables)}; "
            "build the other embeddings with is_sparse=True instead of is_distributed=True"
        )
    if not tables:
        return None
    for op in lookups:
        if table_of(op) == tables[0] and op.get_attr("is_distributed") is not True:
            raise ProgramError(
                f"{op.type} into {op.output('Out')} looks up {tables[0]}, which another lookup declares distributed; "
                "set is_distributed=True on every embedding of that table"
            )
    return tables[0]


def remote_tables(program: Program) -> list[str]:
    """Tables that a trainer may ask for single rows instead of holding them (`embedding(is_sparse=True)`)."""
    ops = program.global_block().ops
    return list(dict.fromkeys(table_of(op) for op in ops if asks_servers(op)))


def sparse_tables(program: Program) -> list[str]:
    """Tables that trainers do not fill at the start: their rows come from the servers."""
    ops = program.global_block().ops
    sparse = (table_of(op) for op in ops if op.type in ("lookup_table", "nce") and op.get_attr("is_sparse") is True)
    return list(dict.fromkeys([*sparse, *(table_of(op) for op in ops if op.type == "distributed_lookup_table")]))


# ---------------------------------------------------------------- what cannot be
def check_untouched(main: Program, startup: Program) -> None:
    """Raises ProgramError for programs that have been transpiled for distribution before."""
    for what, program in (("main", main), ("startup", startup)):
        for op in program.global_block().ops:
            if traits_of(op.type).transpiled:
                raise ProgramError(
                    f"the {what} program has already been transpiled (it has an operator {op.type}); build the "
                    f"programs again, or clone() them before they are transpiled"
                )


def check_trained(analysis: Analysis) -> None:
    """Raises ProgramError when nothing is optimized."""
    if not analysis.pairs:
        raise ProgramError(
            "there is nothing to distribute: the program has no optimizer operators; call minimize(loss) of an "
            "optimizer before transpile()"
        )


def check_optimizers(program: Program, analysis: Analysis) -> None:
    """Raises UnsupportedOptimizerError for an optimizer that servers do not run, ProgramError for an operator without a
    parameter.
    """
    ops = program.global_block().ops
    for op in (ops[position] for position in analysis.optimizers):
        if param_grad_of(op) is None:
            raise ProgramError(
                f"optimizer operator {op.type} does not say which parameter it updates (attribute op_role_var), so "
                f"no server can run it; append it within program._optimized_guard([parameter, gradient])"
            )
        if op.input("Param") and op.input("Grad") and traits_of(op.type).sharded is None:
            known = sorted(type for type, traits in TRAITS.items() if traits.sharded is not None)
            raise UnsupportedOptimizerError(
                f"Not supported optimizer for distributed training: {op.type} (parameter {op.input('Param')[0]}); "
                f"parameter servers run {', '.join(known)}"
            )


class UnsupportedOptimizerError(UnsupportedOperatorError, ValueError):
    """An optimizer that parameter servers do not run (a ValueError, as in Paddle)."""


def check_pairs(program: Program, startup: Program, pairs: tuple[ParamGrad, ...]) -> None:
    """Raises ProgramError for a gradient that nothing computes, or parameters that the startup program does not make."""
    block, computed = program.global_block(), set()
    for op in block.ops:
        computed.update(op.output_arg_names)
    for pair in pairs:
        for name in (pair.parameter, pair.gradient):
            _check_declared(block, name)
        if pair.gradient not in computed and pair.gradient != pair.parameter:
            raise ProgramError(
                f"no operator computes {pair.gradient}, the gradient of {pair.parameter}; was the program pruned "
                f"after minimize?"
            )
    check_startup(startup, (pair.parameter for pair in pairs))


def check_startup(startup: Program, parameters: Iterable[str]) -> None:
    """Raises ProgramError for parameters that the startup program does not declare."""
    missing = [name for name in parameters if name not in startup.global_block().vars]
    if missing:
        shown = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise ProgramError(
            f"the startup program does not belong to this main program: it does not declare {shown}; "
            "pass the startup program that was built together with it (startup_program=)"
        )


def _check_declared(block: Block, name: str) -> None:
    var = block.vars.get(name)
    if var is None:
        raise ProgramError(
            f"an optimizer operator names {name}, which block 0 does not declare; the program is corrupted"
        )
    if not is_tensor(var) or not var.shape or any(size <= 0 for size in var.shape):
        raise ProgramError(
            f"{name} cannot be kept on parameter servers: it is declared with shape {shape_text(var.shape)}; "
            "parameters and their gradients must have known sizes"
        )


def is_tensor(var: Variable) -> bool:
    """Whether it is a dense tensor or one of selected rows."""
    return var.type in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS)
