"""The trainer's part of a distributed lookup table: rows are fetched before, gradients sent after, by row number."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.distribute.analysis import is_lookup, table_of
from fluidtool.distribute.appending import DIST, RPC, declare_like, insert, make
from fluidtool.distribute.plan import DistributePlan, TablePlan
from fluidtool.ir import Block, Program


def ids_name(index: int) -> str:
    """What the ids for a server are called, on both sides."""
    return f"prefetch_compress_in_tmp_{index}"


def rows_name(index: int) -> str:
    """What the rows from a server are called, on both sides."""
    return f"prefetch_compress_out_tmp_{index}"


def use_table(program: Program, table: TablePlan, servers: Sequence[str]) -> None:
    """Put split_ids, prefetch and merge_ids in the place of the first lookup; all lookups of the table go."""
    block = program.global_block()
    lookups = [op for op in block.ops if is_lookup(op) and table_of(op) == table.name]
    place = next(index for index, op in enumerate(block.ops) if op is lookups[0])
    block.ops[:] = [op for op in block.ops if not any(op is each for each in lookups)]
    ids = [op.input("Ids")[0] for op in lookups]
    rows = [op.output("Out")[0] for op in lookups]
    sent, fetched = declare_prefetch(block, block, ids[0], rows[0], range(len(servers)))
    for offset, op in enumerate(
        (
            make(block, "split_ids", {"Ids": ids}, {"Out": sent}),
            make(block, "prefetch", {"X": sent}, {"Out": fetched}, {"epmap": list(servers)}),
            make(block, "merge_ids", {"Ids": ids, "Rows": sent, "X": fetched}, {"Out": rows}),
        )
    ):
        insert(block, place + offset, op)


def declare_prefetch(
    block: Block, source: Block, ids: str, rows: str, indexes: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Declare the ids that go to servers and the rows that come back, like the first lookup's own; their names."""
    sent, fetched = [ids_name(index) for index in indexes], [rows_name(index) for index in indexes]
    for name in sent:
        declare_like(block, source.var(ids), name)
    for name in fetched:
        declare_like(block, source.var(rows), name)
    return sent, fetched


def send_table(block: Block, plan: DistributePlan, dummy: str | None) -> None:
    """Split the table's gradient by server and send it, where it is computed."""
    table, settings = plan.table, plan.settings
    assert table is not None
    place = next(index for index, op in enumerate(block.ops) if table.gradient in op.output_arg_names)
    attrs = {"epmap": list(settings.servers), "trainer_id": settings.trainer_id}
    names, outputs = [table.name, table.gradient], [] if dummy is None else [dummy]
    insert(block, place + 1, make(block, "split_ids", {"Ids": [table.gradient]}, {"Out": table.sends}, role=DIST))
    sending = make(block, "send", {"X": table.sends}, {"Out": outputs}, attrs, role=RPC, role_var=names)
    insert(block, place + 2, sending)
