"""Geo-SGD: trainers keep their optimizer, servers add up changes."""

from __future__ import annotations

import fluidtool.fluid as fluid
from fluidtool.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler
from fluidtool.proto.enums import VarType
from tests.distribute.support import A, B, built, embeddings, the, types


def transpiled() -> tuple[GeoSgdTranspiler, fluid.Program, fluid.Program]:
    main, startup = built(lambda: embeddings(tables=("emb", "emb")))
    transpiler = GeoSgdTranspiler()
    transpiler.transpile(0, program=main, pservers=f"{A},{B}", trainers=2, startup_program=startup)
    return transpiler, main, startup


def test_a_trainer_keeps_its_optimizer_and_tells_which_rows_it_used() -> None:
    transpiler, main, _ = transpiled()
    assert transpiler.get_trainer_program(wait_port=False) is main
    block = main.global_block()
    assert "sgd" in types(block)
    sending = block.ops[-1]
    assert (sending.type, sending.input("X"), sending.attr("send_varnames")) == (
        "send",
        ["ids_0", "ids_1"],
        ["emb", "emb"],
    )
    assert block.var("emb.block0.delta").type == VarType.SELECTED_ROWS
    assert not [op for op in block.ops if op.type == "lookup_table" and op.attr("remote_prefetch")]


def test_a_trainer_starts_with_the_servers_parameters() -> None:
    _, _, startup = transpiled()
    ops = startup.global_block().ops
    assert [op.type for op in ops][-4:] == ["recv", "recv", "fetch_barrier", "send"]
    assert ops[-1].input("X") == ["param_init"]


def test_a_server_adds_changes() -> None:
    transpiler, _, _ = transpiled()
    main, startup = transpiler.get_pserver_programs(B)
    serving = the(main.global_block(), "listen_and_serv")
    assert serving.attr("distributed_mode") == 3
    assert serving.attr("grad_to_block_id")[0] == "emb.block1.delta:1"
    assert serving.attr("sparse_grad_to_param") == ["emb.block1.delta:emb.block1"]
    (add,) = main.block(1).ops
    assert (add.input("X"), add.output("Out")) == (["emb.block1", "emb.block1.delta"], ["emb.block1"])
    assert startup.global_block().has_var("emb.block1")


def test_the_communicator_knows_every_shard() -> None:
    transpiler, _, _ = transpiled()
    assert transpiler._get_vars_info()["emb"] == {
        "var_names": ["emb.block0", "emb.block1"],
        "sections": ["500", "500"],
        "epmap": [A, B],
        "is_sparse": ["True"],
    }


def test_any_optimizer_will_do() -> None:
    main, startup = built(embeddings, lambda: fluid.optimizer.Adadelta(0.1))
    GeoSgdTranspiler().transpile(0, program=main, pservers=A, trainers=1, startup_program=startup)
    assert "adadelta" in types(main.global_block())


def test_the_config_chooses_this_mode_too() -> None:
    config = fluid.DistributeTranspilerConfig()
    config.geo_sgd_mode = True
    main, startup = built(embeddings)
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(0, program=main, pservers=A, trainers=1, startup_program=startup)
    assert the(transpiler.get_pserver_program(A).global_block(), "listen_and_serv").attr("distributed_mode") == 3
