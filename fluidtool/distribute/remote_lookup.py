"""Looking rows of sparse tables up on the servers, instead of fetching the tables."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.distribute.analysis import asks_servers, is_lookup, table_of
from fluidtool.distribute.appending import insert, make
from fluidtool.distribute.plan import ParameterPlan
from fluidtool.ir import Block, Operator, Program


def look_up_remotely(program: Program, parameter: ParameterPlan, trainer_id: int) -> None:
    """Replace the lookups of a table by one `distributed_lookup_table`; `nce` queries the servers itself.

    The one operator stands behind the last that computes ids. Where a result is needed before that, each lookup is
    replaced in its own place.
    """
    block = program.global_block()
    ops = [op for op in block.ops if asks_servers(op) and table_of(op) == parameter.name]
    for kind in sorted({op.type for op in ops if is_lookup(op)}):
        lookups = [op for op in ops if op.type == kind]
        if lookups and _may_be_one(block, lookups):
            _replace(block, lookups, parameter, trainer_id)
        else:
            for op in lookups:
                _replace(block, [op], parameter, trainer_id)
    for op in ops:
        if not is_lookup(op):
            _query_servers(op, parameter, trainer_id)


def _may_be_one(block: Block, lookups: Sequence[Operator]) -> bool:
    """Whether all ids are there before the first result is needed."""
    others = [op for op in block.ops if not _stands_in(op, lookups)]
    first_use = min(
        (i for i, op in enumerate(others) if set(op.input_arg_names) & _results(lookups)), default=len(others)
    )
    return _place(others, lookups) <= first_use


def _replace(block: Block, lookups: Sequence[Operator], parameter: ParameterPlan, trainer_id: int) -> None:
    block.ops[:] = [op for op in block.ops if not _stands_in(op, lookups)]
    attrs = {
        "table_names": [placement.parameter.name for placement in parameter.placements],
        "height_sections": parameter.heights,
        "endpoints": parameter.endpoints,
        "padding_idx": lookups[0].get_attr("padding_idx", -1),
        "trainer_id": trainer_id,
        "lookup_table_version": lookups[0].type,
    }
    inputs = {"Ids": [op.input("Ids")[0] for op in lookups], "W": [parameter.name]}
    outputs = {"Outputs": [op.output("Out")[0] for op in lookups]}
    insert(block, _place(block.ops, lookups), make(block, "distributed_lookup_table", inputs, outputs, attrs))


def _place(ops: Sequence[Operator], lookups: Sequence[Operator]) -> int:
    """Behind the last operator that computes ids."""
    ids = {name for op in lookups for name in op.input("Ids")}
    return max((i + 1 for i, op in enumerate(ops) if ids & set(op.output_arg_names)), default=0)


def _results(lookups: Sequence[Operator]) -> set[str]:
    return {name for op in lookups for name in op.output("Out")}


def _stands_in(op: Operator, ops: Sequence[Operator]) -> bool:
    return any(op is each for each in ops)


def _query_servers(op: Operator, parameter: ParameterPlan, trainer_id: int) -> None:
    """Tell an operator that looks rows up itself where they are (Paddle 1.5; later versions fail here)."""
    op.set_attr("epmap", parameter.endpoints)
    op.set_attr("table_names", [placement.parameter.name for placement in parameter.placements])
    op.set_attr("height_sections", parameter.heights)
    op.set_attr("trainer_id", trainer_id)
