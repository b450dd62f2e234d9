"""From two programs and the settings to a plan, without changing anything."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fluidtool.distribute import analysis as analyses
from fluidtool.distribute.analysis import Analysis, ParamGrad
from fluidtool.distribute.dispatchers import PSDispatcher
from fluidtool.distribute.plan import DistributePlan, ParameterPlan, Placement, TablePlan
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.sharding import Shard, cut_variable
from fluidtool.errors import ProgramError, UsageError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

# Initializers whose result can be made shard by shard.
CUT_INITIALIZERS = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random", "assign_value")


def make_plan(main: Program, startup: Program, settings: Settings) -> DistributePlan:
    """The plan of a job with parameter servers.

    Raises ProgramError for programs that were transpiled before, that do not belong together, that optimize nothing or
    look up several distributed tables; UnsupportedOptimizerError for an optimizer that servers do not run.
    """
    analyses.check_untouched(main, startup)
    analysis = analyses.analyze(main)
    analyses.check_trained(analysis)
    pairs = analyses.trained(main, analysis.pairs)
    analyses.check_pairs(main, startup, pairs)
    table_name = None
    if not settings.geo:
        analyses.check_optimizers(main, analysis)
        table_name = analyses.distributed_table(main)
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
    counters = () if settings.sync else _counters(main, analysis)
    only = _server_only(main, analysis)
    return DistributePlan(settings, analysis, tuple(plans), sent, table, counters, tables, only)


# ---------------------------------------------------------------- shards and places
def _parameter_plan(main: Program, pair: ParamGrad, settings: Settings) -> ParameterPlan:
    """The shards of a pair, not yet placed."""
    block = main.global_block()
    variables = [block.var(name) for name in (pair.parameter, pair.gradient)]
    cuts, size = settings.cuts, settings.min_block_size
    parameters, gradients = (cut_variable(var, pair.parameter, cuts, size) for var in variables)
    if len(parameters) != len(gradients):
        raise ProgramError(
            f"parameter {pair.parameter} has shape {shape_text(variables[0].shape)}, but its gradient {pair.gradient} "
            f"{shape_text(variables[1].shape)}: they cannot be sharded together; declare both with the same shape"
        )
    suffix = f".trainer_{settings.trainer_id}" if settings.names_trainers else ""
    placements = tuple(
        Placement(parameter, gradient.renamed(gradient.name + suffix), gradient.name, "", "")
        for parameter, gradient in zip(parameters, gradients, strict=True)
    )
    return ParameterPlan(pair, pair.gradient if len(placements) > 1 else placements[0].gradient.name, placements)


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
    targets = [_dispatch(dispatcher, [s.gradient for s in plans[position].placements], settings) for position in sent]
    dispatcher.reset()
    shards = [placement.parameter for position in sent for placement in plans[position].placements]
    places = iter(_dispatch(dispatcher, shards, settings))
    placed = list(plans)
    for position, ends in zip(sent, targets, strict=True):
        plan = plans[position]
        placements = tuple(
            replace(placement, endpoint=next(places), target=target)
            for placement, target in zip(plan.placements, ends, strict=True)
        )
        placed[position] = replace(plan, placements=placements)
    return placed


def _dispatch(dispatcher: PSDispatcher, shards: Sequence[Shard], settings: Settings) -> list[str]:
    """The dispatcher's answer; raises UsageError when it is not one of the endpoints for each shard."""
    answer = list(dispatcher.dispatch(shards) or ())
    if len(answer) != len(shards) or any(endpoint not in settings.servers for endpoint in answer):
        raise UsageError(
            f"{type(dispatcher).__name__}.dispatch returned {answer!r} for {len(shards)} variables, expected one of "
            f"{', '.join(settings.servers)} for each"
        )
    return answer


def _warn_of_collisions(plans: Iterable[ParameterPlan]) -> None:
    """Paddle's servers train one shard of a parameter each, and expect its gradient where the parameter is."""
    for plan in plans:
        if len(set(plan.endpoints)) < len(plan.endpoints):
            text = f"puts several shards of {plan.name} on one server, which trains only the first of them"
        elif any(placement.target != placement.endpoint for placement in plan.placements):
            text = f"sends the gradient of {plan.name} to {plan.placements[0].target}, but its parameter is elsewhere"
        else:
            continue
        warnings.warn(f"the dispatcher {text}; use RoundRobin or HashName", stacklevel=4)
        return


# ---------------------------------------------------------------- tables
def _table_plan(name: str | None, pairs: tuple[ParamGrad, ...], settings: Settings) -> TablePlan | None:
    if name is None:
        return None
    pair = next((pair for pair in pairs if pair.parameter == name), None)
    if pair is None:
        raise ProgramError(
            f"the distributed table {name} is not optimized; give it a trainable ParamAttr, or build the embedding "
            "without is_distributed=True"
        )
    trainer = f".trainer_{settings.trainer_id}" if settings.sync else ""
    sends = tuple(f"{pair.gradient}{trainer}.pserver_{index}" for index in range(len(settings.servers)))
    return TablePlan(name, pair.gradient, sends)


def _remote(main: Program, plans: Iterable[ParameterPlan]) -> set[str]:
    """Parameters of which trainers ask for single rows: their gradients are sparse and their lookups allow it."""
    allowed = set(analyses.remote_tables(main))
    rows = {p.name for p in plans if p.placements[0].gradient.type == VarType.SELECTED_ROWS}
    return allowed & rows


def _sparse_tables(main: Program, remote: set[str], table: TablePlan | None) -> tuple[str, ...]:
    """In the order of the program: tables of sparse lookups, of remote ones, and the distributed one."""
    looked_up = [analyses.table_of(op) for op in main.global_block().ops if analyses.is_lookup(op)]
    names = [*analyses.sparse_tables(main), *(name for name in looked_up if name in remote)]
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
                f"table init op num should be 1, now is {len(found)}: the startup program gives the sparse table "
                f"{name} its values by {', '.join(found) or 'no operator'}; use one plain initializer"
            )


def _check_initializers(startup: Program, plans: Iterable[ParameterPlan]) -> None:
    initializers = _initializers(startup)
    for plan in plans:
        found = initializers.get(plan.name, [])
        wrong = [op for op in found if op not in CUT_INITIALIZERS]
        if plan.is_cut and (wrong or len(found) > 1):
            raise ProgramError(
                f"the values that {', '.join(found)} initializes {plan.name} with cannot be made shard by shard; "
                "set slice_var_up=False, or use another initializer"
            )


# ---------------------------------------------------------------- learning rates and what servers take over
def _counters(main: Program, analysis: Analysis) -> tuple[str, ...]:
    ops = main.global_block().ops
    steps = [ops[position] for position in analysis.schedule if ops[position].type == "increment"]
    return tuple(name for op in steps for name in op.output_arg_names)


def _server_only(main: Program, analysis: Analysis) -> tuple[str, ...]:
    """What optimizer operators read beside parameters and gradients: accumulators, learning rates, intermediates."""
    ops = [main.global_block().ops[position] for position in analysis.optimizers]
    kept = {name for op in ops for name in analyses.role_vars(op)}
    inputs = dict.fromkeys(name for op in ops for name in op.input_arg_names)
    return tuple(name for name in inputs if name not in kept)
