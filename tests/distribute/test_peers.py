"""Jobs without servers: nccl2 and collective mode."""

from __future__ import annotations

from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.collective.programs import CollectivePlan, shared_parameters, transpile_collective
from fluidtool.distribute.nccl import NcclPlan, transpile_for_nccl
from fluidtool.fluid.transpiler.collective import GradAllReduce, LocalSGD, SingleProcessMultiThread
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from tests.distribute.support import A, B, C, Programs, built, mlp, the, types

ALL = (A, B, C)
PARAMETERS = ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]


def collective(kind: str, rings: int = 1) -> Programs:
    main, startup = built(mlp)
    plan = CollectivePlan(kind, 1, ALL, B, rings, shared_parameters(main, startup))
    with fluid.unique_name.guard():
        transpile_collective(main, startup, plan)
    return main, startup


# ---------------------------------------------------------------- nccl2
def test_nccl_changes_the_startup_program_only() -> None:
    main, startup = built(mlp)
    before = main.serialize_to_string()
    transpile_for_nccl(main, startup, NcclPlan(1, ALL, B))
    assert main.serialize_to_string() == before
    op = startup.global_block().ops[-1]
    assert (op.type, op.output("NCCLID"), op.attr("trainers"), op.attr("trainer_id")) == (
        "gen_nccl_id",
        ["NCCLID"],
        list(ALL),
        1,
    )
    assert startup.global_block().var("NCCLID").type == VarType.RAW
    assert main._trainers_endpoints == list(ALL)


def test_each_communicator_and_level_has_an_identifier() -> None:
    plan = NcclPlan(0, (A, B, C, "127.0.0.1:6173"), A, communicators=2, hierarchical=True, inner_ranks=2)
    assert plan.identifiers() == [
        "NCCLID",
        "NCCLID_1",
        "Hierarchical_inter_NCCLID_0",
        "Hierarchical_exter_NCCLID_0",
        "Hierarchical_inter_NCCLID_1",
        "Hierarchical_exter_NCCLID_1",
    ]


# ---------------------------------------------------------------- collective
@pytest.mark.parametrize("kind", ["grad_allreduce", "local_sgd"])
def test_processes_join_rings_and_start_with_the_same_parameters(kind: str) -> None:
    _, startup = collective(kind, rings=2)
    block = startup.global_block()
    joins = [op for op in block.ops if op.type == "c_comm_init"]
    assert [(op.attr("nranks"), op.attr("rank"), op.attr("ring_id")) for op in joins] == [(3, 1, 0), (3, 1, 1)]
    agrees = [op for op in block.ops if op.type == "c_gen_nccl_id"]
    assert {tuple(op.attr("other_endpoints")) for op in agrees} == {(A, C)}
    spread = [op for op in block.ops if op.type == "c_broadcast"]
    assert [op.input("X")[0] for op in spread] == PARAMETERS
    assert [op.attr("ring_id") for op in spread] == [0, 1, 0, 1]


def test_gradients_are_summed_between_their_operator_and_the_optimizer() -> None:
    main, _ = collective("grad_allreduce")
    ops = main.global_block().ops
    found = types(main.global_block())
    scale = next(op for op in ops if op.type == "scale")
    assert (scale.input("X"), scale.attr("scale")) == (["mean_0.tmp_0@GRAD"], pytest.approx(1 / 3))
    summed = [op.input("X")[0] for op in ops if op.type == "c_allreduce_sum"]
    assert sorted(summed) == sorted(f"{name}@GRAD" for name in PARAMETERS)
    for name in summed:
        written = max(i for i, op in enumerate(ops) if name in op.output_arg_names and op.type.endswith("_grad"))
        assert found[written + 1] == "c_sync_calc_stream"
    assert found.index("c_sync_comm_stream") == found.index("sgd") - 1


def test_local_sgd_averages_changes_after_the_step() -> None:
    main, startup = collective("local_sgd")
    found = types(main.global_block())
    assert found[found.index("sgd") :][:4] == ["sgd", "elementwise_sub", "c_sync_calc_stream", "c_allreduce_sum"]
    assert found[-3:] == ["scale", "elementwise_sub", "assign"]
    assert types(startup.global_block())[-4:] == ["assign"] * 4
    assert startup.global_block().has_var("fc_0.w_0@SNAPSHOT")


def test_parameters_of_files_are_found_by_their_optimizers() -> None:
    main, startup = (Program.parse_from_string(p.serialize_to_string()) for p in built(mlp))
    assert not startup.all_parameters()
    assert list(shared_parameters(main, startup)) == PARAMETERS


def test_tables_of_servers_are_not_shared() -> None:
    main, startup = built(mlp)
    startup.global_block().var("fc_0.w_0").is_distributed = True  # type: ignore[attr-defined]
    assert "fc_0.w_0" not in shared_parameters(main, startup)


@pytest.mark.parametrize(("kind", "rings"), [(GradAllReduce, 2), (LocalSGD, 2), (SingleProcessMultiThread, 1)])
def test_the_classes_rewrite_both_programs(kind: Any, rings: int) -> None:
    main, startup = built(mlp)
    transpiler = kind()
    assert transpiler.nrings == rings
    transpiler.transpile(startup, main, 0, f"{A},{B}", A, False)
    assert "c_allreduce_sum" in types(main.global_block())


def test_one_process_with_several_gpus_needs_no_endpoints_of_others() -> None:
    main, startup = built(mlp)
    SingleProcessMultiThread().transpile(startup, main, 0, A, A, True)
    assert the(startup.global_block(), "c_comm_init_all").attr("ring_id") == 0
