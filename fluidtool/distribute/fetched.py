"""What a trainer's program fetches from parameter servers."""

from __future__ import annotations

from fluidtool.ir import Program


def fetched_variables(main: Program) -> tuple[set[str], set[str]]:
    """What a program fetches from servers, put together or not; and the shards, of which something is put together."""
    ops = main.global_block().ops
    received = {name for op in ops if op.type == "recv" for name in op.output_arg_names}
    joins = [op for op in ops if op.type == "concat" and received.issuperset(op.input_arg_names)]
    shards = {name for op in joins for name in op.input_arg_names}
    return received | {name for op in joins for name in op.output_arg_names}, shards
