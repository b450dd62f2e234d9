"""From two programs and the settings to a plan, without changing anything."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fluidtool.distribute import reading as read
from fluidtool.distribute.dispatchers import PSDispatcher
from fluidtool.distribute.plan import DistributePlan, ParameterPlan, Share, TablePlan
from fluidtool.distribute.reading import Pair, Reading
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.slicing import Piece, cut_variable
from fluidtool.errors import ProgramError, UsageError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType

# Initialisers whose result can be made piece by piece.
CUT_INITIALIZERS = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random", "assign_value")


def make_plan(main: Program, startup: Program, settings: Settings) -> DistributePlan:
    """The plan of a job with parameter servers.

    Raises ProgramError for programs that were transpiled before, that do not belong together, that optimize nothing or
    look up several distributed tables; UnsupportedOptimizerError for an optimizer that servers do not run.
    """
    read.check_untouched(main, startup)
    reading = read.read_program(main)
    read.check_trained(reading)
    pairs = read.trained(main, reading.pairs)
    read.check_pairs(main, startup, pairs)
    table_name = None
    if not settings.geo:
        read.check_optimizers(main, reading)
        table_name = read.distributed_table(main)
    table = _table_plan(table_name, pairs, settings)
    pairs = tuple(pair for pair in pairs if pair.parameter != table_name)
    sent = _sending_order(len(pairs), main.random_seed, settings)
    plans = _place([_parameter_plan(main, pair, settings) for pair in pairs], sent, settings)
    remote = set() if settings.geo else _remote(main, plans)
    plans = [replace(plan, remote=plan.name in remote) for plan in plans]
    tables = _sparse_tables(main, remote, table)
    _check_tables(startup, tables)
    _check_initializers(startup, plans)
    _warn_of_collisions(plans)
    counters = () if settings.sync else _counters(main, reading)
    only = _server_only(main, reading)
    return DistributePlan(settings, reading, tuple(plans), sent, table, counters, tables, only)


# ---------------------------------------------------------------- pieces and places
def _parameter_plan(main: Program, pair: Pair, settings: Settings) -> ParameterPlan:
    """The pieces of a pair, not yet placed."""
    block = main.global_block()
    variables = [block.var(name) for name in (pair.parameter, pair.gradient)]
    cuts, size = settings.cuts, settings.min_block_size
    parameters, gradients = (cut_variable(var, pair.parameter, cuts, size) for var in variables)
    if len(parameters) != len(gradients):
        raise ProgramError(
            f"parameter {pair.parameter} has shape {list(variables[0].shape)}, but its gradient {pair.gradient} "
            f"{list(variables[1].shape)}: they are not cut alike; declare both with the same shape"
        )
    suffix = f".trainer_{settings.trainer_id}" if settings.names_trainers else ""
    shares = tuple(
        Share(parameter, gradient.renamed(gradient.name + suffix), gradient.name, "", "")
        for parameter, gradient in zip(parameters, gradients, strict=True)
    )
    return ParameterPlan(pair, pair.gradient if len(shares) > 1 else shares[0].gradient.name, shares)


def _sending_order(count: int, seed: int, settings: Settings) -> tuple[int, ...]:
    """Program order; where variables stay whole, shuffled by the program's seed, so that weights do not all go to one
    server and biases to the other. The shuffle is that of numpy's RandomState, as in Paddle.
    """
    order = list(range(count))
    if not settings.slice_variables and not settings.geo:
        from numpy.random import RandomState

        RandomState(seed).shuffle(order)
    return tuple(order)


def _place(plans: list[ParameterPlan], sent: Sequence[int], settings: Settings) -> list[ParameterPlan]:
    """Ask the dispatcher: for the gradients of each parameter in turn, then anew for all parameters."""
    dispatcher = settings.dispatcher(list(settings.servers))
    dispatcher.reset()
    targets = [_dispatch(dispatcher, [s.gradient for s in plans[position].shares], settings) for position in sent]
    dispatcher.reset()
    pieces = [share.parameter for position in sent for share in plans[position].shares]
    places = iter(_dispatch(dispatcher, pieces, settings))
    placed = list(plans)
    for position, ends in zip(sent, targets, strict=True):
        plan = plans[position]
        shares = tuple(
            replace(share, endpoint=next(places), target=target)
            for share, target in zip(plan.shares, ends, strict=True)
        )
        placed[position] = replace(plan, shares=shares)
    return placed


def _dispatch(dispatcher: PSDispatcher, pieces: Sequence[Piece], settings: Settings) -> list[str]:
    """The dispatcher's answer; raises UsageError when it is not one of the endpoints for each piece."""
    answer = list(dispatcher.dispatch(pieces) or ())
    if len(answer) != len(pieces) or any(endpoint not in settings.servers for endpoint in answer):
        raise UsageError(
            f"{type(dispatcher).__name__}.dispatch gave {answer!r} for {len(pieces)} variables; expected one of "
            f"{', '.join(settings.servers)} for each"
        )
    return answer


def _warn_of_collisions(plans: Iterable[ParameterPlan]) -> None:
    """Paddle's servers train one piece of a parameter each, and expect its gradient where the parameter is."""
    for plan in plans:
        if len(set(plan.endpoints)) < len(plan.endpoints):
            text = f"puts several pieces of {plan.name} on one server, which trains only the first of them"
        elif any(share.target != share.endpoint for share in plan.shares):
            text = f"sends the gradient of {plan.name} to {plan.shares[0].target}, its parameter is elsewhere"
        else:
            continue
        warnings.warn(f"the dispatcher {text}; use RoundRobin or HashName", stacklevel=4)
        return


# ---------------------------------------------------------------- tables
def _table_plan(name: str | None, pairs: tuple[Pair, ...], settings: Settings) -> TablePlan | None:
    if name is None:
        return None
    pair = next((pair for pair in pairs if pair.parameter == name), None)
    if pair is None:
        raise ProgramError(
            f"the distributed table {name} is not optimized; give it a trainable ParamAttr, or build the embedding without "
            "is_distributed=True"
        )
    trainer = f".trainer_{settings.trainer_id}" if settings.sync else ""
    sends = tuple(f"{pair.gradient}{trainer}.pserver_{index}" for index in range(len(settings.servers)))
    return TablePlan(name, pair.gradient, sends)


def _remote(main: Program, plans: Iterable[ParameterPlan]) -> set[str]:
    """Parameters of which trainers ask for single rows: their gradients are sparse and their lookups allow it."""
    allowed = set(read.remote_tables(main))
    rows = {p.name for p in plans if p.shares[0].gradient.type == VarType.SELECTED_ROWS}
    return allowed & rows


def _sparse_tables(main: Program, remote: set[str], table: TablePlan | None) -> tuple[str, ...]:
    """In the order of the program: tables of sparse lookups, of remote ones, and the distributed one."""
    looked_up = [read.table_of(op) for op in main.global_block().ops if op.type in read.LOOKUPS]
    names = [*read.sparse_tables(main), *(name for name in looked_up if name in remote)]
    return tuple(dict.fromkeys([*names, *([table.name] if table else [])]))


# ---------------------------------------------------------------- the startup program
def _initializers(startup: Program) -> dict[str, list[str]]:
    """The types of the operators that write each name."""
    found: dict[str, list[str]] = {}
    for op in startup.global_block().ops:
        for name in dict.fromkeys(op.output_arg_names):
            found.setdefault(name, []).append(op.type)
    return found


def _check_tables(startup: Program, tables: Iterable[str]) -> None:
    initializers = _initializers(startup)
    for name in tables:
        found = initializers.get(name, [])
        if len(found) != 1:
            raise ProgramError(
                f"table init op num should be 1, now is {len(found)}: the startup program gives the sparse table {name} its "
                f"values by {', '.join(found) or 'no operator'}; use one plain initializer"
            )


def _check_initializers(startup: Program, plans: Iterable[ParameterPlan]) -> None:
    initializers = _initializers(startup)
    for plan in plans:
        found = initializers.get(plan.name, [])
        wrong = [op for op in found if op not in CUT_INITIALIZERS]
        if plan.is_cut and (wrong or len(found) > 1):
            raise ProgramError(
                f"the values that {', '.join(found)} gives {plan.name} at the start cannot be made piece by piece; "
                "set slice_var_up=False, or use another initializer"
            )


# ---------------------------------------------------------------- learning rates and what servers take over
def _counters(main: Program, reading: Reading) -> tuple[str, ...]:
    ops = main.global_block().ops
    steps = [ops[position] for position in reading.schedule if ops[position].type == "increment"]
    return tuple(name for op in steps for name in op.output_arg_names)


def _server_only(main: Program, reading: Reading) -> tuple[str, ...]:
    """What optimizer operators read beside parameters and gradients: accumulators, learning rates, intermediates."""
    ops = [main.global_block().ops[position] for position in reading.optimizers]
    kept = {name for op in ops for name in read.role_vars(op)}
    inputs = dict.fromkeys(name for op in ops for name in op.input_arg_names)
    return tuple(name for name in inputs if name not in kept)
