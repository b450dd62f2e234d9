"""Distributed lookup tables: rows live on all servers, row by row."""

from __future__ import annotations

import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.job import ServerJob
from fluidtool.errors import ProgramError
from fluidtool.proto.enums import VarType
from tests.distribute.support import A, B, built, embeddings, job, sgd, the, types


def made(optimizer: object = sgd, **options: object) -> ServerJob:
    network = lambda: embeddings(tables=("emb", "emb"), is_distributed=True, is_sparse=False)  # noqa: E731
    return job(built(network, optimizer), **options)


def test_a_trainer_fetches_rows_before_and_sends_gradients_after() -> None:
    trainer = made()
    block = trainer.finish_trainer().global_block()
    assert types(block)[:3] == ["split_ids", "prefetch", "merge_ids"]
    split, fetch, merge = block.ops[:3]
    assert split.input("Ids") == merge.input("Ids") == ["ids_0", "ids_1"]
    assert fetch.attr("epmap") == [A, B]
    assert merge.input("Rows") == split.output("Out") == ["prefetch_compress_in_tmp_0", "prefetch_compress_in_tmp_1"]
    sending = next(op for op in block.ops if op.type == "send" and op.attr("op_role_var")[0] == "emb")
    assert sending.input("X") == ["emb@GRAD.trainer_0.pserver_0", "emb@GRAD.trainer_0.pserver_1"]
    assert sending.output("Out")[0] in the(block, "send_barrier").input("X")


def test_asynchronous_trainers_send_a_part_to_each_server() -> None:
    block = made(sync=False).finish_trainer().global_block()
    sending = next(op for op in block.ops if op.type == "send" and op.attr("op_role_var")[0] == "emb")
    assert sending.input("X") == ["emb@GRAD.pserver_0", "emb@GRAD.pserver_1"]


@pytest.mark.parametrize("endpoint", [A, B])
def test_a_server_trains_looks_up_and_saves_its_rows(endpoint: str) -> None:
    server = made().server_main(endpoint)
    table = server.global_block().var("emb")
    assert (table.type, table.shape, table.persistable) == (VarType.SELECTED_ROWS, (500, 32), True)
    assert [types(block) for block in server.blocks[-3:]] == [["sum", "sgd"], ["lookup_sparse_table"], ["save"]]
    serving = the(server.global_block(), "listen_and_serv")
    index = (A, B).index(endpoint)
    optimizing, looking, saving = (block.idx for block in server.blocks[-3:])
    assert f"emb@GRAD:{optimizing}" in serving.attr("grad_to_block_id")
    assert serving.attr("prefetch_var_name_to_block_id") == [f"prefetch_compress_in_tmp_{index}:{looking}"]
    assert serving.attr("checkpint_block_id") == saving
    assert optimizing in serving.attr("optimize_blocks")
    assert saving not in serving.attr("optimize_blocks")


def test_rows_are_divided_rounding_up() -> None:
    server = made(servers=(A, B, "127.0.0.1:6172")).server_main(A)
    assert server.global_block().var("emb").shape == (334, 32)


def test_tables_are_trained_by_sgd_whatever_the_optimizer() -> None:
    server = made(lambda: fluid.optimizer.Adam(0.1)).server_main(A)
    assert [op.type for block in server.blocks for op in block.ops if op.input("Param") == ["emb"]] == ["sgd"]


def test_a_lookup_that_takes_the_table_for_a_plain_parameter_is_refused() -> None:
    main, startup = built(lambda: embeddings(tables=("emb", "emb"), is_distributed=True, is_sparse=False))
    lookups = [op for op in main.global_block().ops if op.type == "lookup_table"]
    lookups[1].set_attr("is_distributed", False)
    with pytest.raises(
        ProgramError, match=r"looks up emb, which another lookup declares distributed; set is_distributed"
    ):
        job((main, startup))
