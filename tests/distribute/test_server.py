"""What a parameter server's programs do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.job import ServerJob
from fluidtool.errors import ProgramError, UsageError
from fluidtool.proto.enums import VarType
from tests.distribute.support import A, B, C, built, embeddings, job, mlp, the, types, writers


def made(network: Any = mlp, optimizer: Any = None, **options: Any) -> ServerJob:
    return job(built(network, *([optimizer] if optimizer else [])), **options)


def test_a_server_has_a_block_for_each_shard_that_lives_there() -> None:
    server = made().server_main(A)
    (serving,) = server.global_block().ops
    assert serving.type == "listen_and_serv"
    assert serving.attr("grad_to_block_id") == ["fc_0.b_0@GRAD:1", "fc_0.w_0@GRAD.block1:2", "fc_1.w_0@GRAD:3"]
    assert serving.attr("optimize_blocks") == [1, 2, 3]
    assert [types(block) for block in server.blocks[1:]] == [["sum", "scale", "sgd"]] * 3


def test_the_mean_is_taken_over_what_every_trainer_sent() -> None:
    server = made(trainers=3).server_main(A)
    merge, mean, update = server.block(2).ops
    assert merge.input("X") == [f"fc_0.w_0@GRAD.block1.trainer_{trainer}" for trainer in range(3)]
    assert mean.attr("scale") == pytest.approx(1 / 3)
    assert update.input("Grad") == merge.output("Out") == ["fc_0.w_0@GRAD.block1"]
    assert update.output("ParamOut") == ["fc_0.w_0.block1"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_single_trainers_gradients_are_taken_as_they_come(sync: bool) -> None:
    server = made(trainers=1, sync=sync).server_main(A)
    serving = the(server.global_block(), "listen_and_serv")
    assert serving.input("X") == ["fc_0.b_0@GRAD", "fc_0.w_0@GRAD.block1", "fc_1.w_0@GRAD"]
    assert [types(block) for block in server.blocks[1:]] == [["sgd"]] * 3


@pytest.mark.parametrize(
    ("options", "mode"), [({}, 0), ({"sync": False}, 2), ({"sync": False, "runtime_split": True}, 1)]
)
def test_the_mode_is_that_of_the_trainers(options: dict[str, Any], mode: int) -> None:
    serving = the(made(**options).server_main(A).global_block(), "listen_and_serv")
    assert serving.attr("distributed_mode") == mode


OPTIMIZERS: dict[str, tuple[Any, set[str]]] = {
    "adam": (lambda: fluid.optimizer.Adam(0.1), {"moment1", "moment2"}),
    "adamax": (lambda: fluid.optimizer.Adamax(0.1), {"moment", "inf_norm"}),
    "adagrad": (lambda: fluid.optimizer.Adagrad(0.1), {"moment"}),
    "decayed_adagrad": (lambda: fluid.optimizer.DecayedAdagrad(0.1), {"moment"}),
    "ftrl": (lambda: fluid.optimizer.Ftrl(0.1), {"squared", "linear"}),
    "momentum": (lambda: fluid.optimizer.Momentum(0.1, 0.9), {"velocity"}),
    "lars_momentum": (lambda: fluid.optimizer.LarsMomentum(0.1, 0.9), {"velocity"}),
    "rmsprop": (lambda: fluid.optimizer.RMSProp(0.1), {"momentum", "mean_square"}),
    "centered rmsprop": (lambda: fluid.optimizer.RMSProp(0.1, centered=True), {"momentum", "mean_square", "mean_grad"}),
    "dpsgd": (lambda: fluid.optimizer.Dpsgd(0.1), set()),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_accumulators_are_cut_like_their_parameter_and_keep_their_names(name: str) -> None:
    optimizer, expected = OPTIMIZERS[name]
    server = made(optimizer=optimizer)
    program = server.server_main(A)
    block = program.global_block()
    shapes = {key: var.shape for key, var in block.vars.items() if key.startswith("fc_0.w_0_")}
    cut = {key.removeprefix("fc_0.w_0_").removesuffix("_0") for key, shape in shapes.items() if shape == (50, 200)}
    assert cut == expected
    startup = server.server_startup(A, program).global_block()
    for key, shape in shapes.items():
        (first,) = writers(startup, key)
        assert first.attr("shape") == list(shape)


def test_regularization_is_the_servers_work() -> None:
    decay = fluid.regularizer.L2Decay(0.1)
    server = made(optimizer=lambda: fluid.optimizer.SGD(0.1, regularization=decay)).server_main(B)
    assert types(server.block(1)) == ["sum", "scale", "scale", "sum", "sgd"]
    penalty, added = server.block(1).ops[2:4]
    assert penalty.input("X") == ["fc_0.w_0.block0"]
    assert server.global_block().var(penalty.output("Out")[0]).shape == (50, 200)
    assert added.output("Out") == ["fc_0.w_0@GRAD.block0"]


@pytest.mark.parametrize("average", ["ModelAverage", "ExponentialMovingAverage"])
def test_averages_of_a_parameter_are_cut_like_it(average: str) -> None:
    class WithAverage:
        def minimize(self, loss: Any) -> None:
            fluid.optimizer.SGD(0.1).minimize(loss)
            if average == "ModelAverage":
                fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=20)
            else:
                fluid.optimizer.ExponentialMovingAverage(0.9).update()

    server = made(optimizer=WithAverage).server_main(A)
    kept = [
        var for name, var in server.global_block().vars.items() if name.startswith("fc_0.w_0_") and len(var.shape) == 2
    ]
    assert kept
    assert {var.shape for var in kept} == {(50, 200)}


def test_decay_of_a_sparse_gradient_goes_on_with_the_new_gradient() -> None:
    decay = fluid.regularizer.L2Decay(0.1)
    server = made(embeddings, lambda: fluid.optimizer.SGD(0.1, regularization=decay)).server_main(A)
    update = next(op for block in server.blocks for op in block.ops if op.input("Param") == ["emb.block0"])
    new = update.input("Grad")[0]
    assert new != "emb@GRAD.block0"
    assert server.global_block().var(new).type == VarType.LOD_TENSOR


def test_learning_rates_are_computed_before_the_optimizers() -> None:
    server = made(optimizer=lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 5, 0.5))).server_main(A)
    serving = the(server.global_block(), "listen_and_serv")
    assert serving.attr("lr_decay_block_id") == 1
    assert "increment" in types(server.block(1))
    assert {block.parent_idx for block in server.blocks[2:]} == {1}


def test_schedules_with_branches_take_their_blocks_along() -> None:
    def schedule() -> Any:
        shards = fluid.layers.piecewise_decay([10, 20], [0.1, 0.01, 0.001])
        return fluid.optimizer.SGD(fluid.layers.linear_lr_warmup(shards, 5, 0.0, 0.1))

    server = made(optimizer=schedule).server_main(A)
    branches = [op for op in server.block(1).ops if op.type == "conditional_block"]
    assert branches
    for op in branches:
        inner = server.block(op.attr("sub_block"))
        assert inner.parent_idx == 1
        assert inner.ops
        names = [name for each in inner.ops for name in (*each.input_arg_names, *each.output_arg_names)]
        assert all(inner.has_var_recursive(name) for name in names)


def test_asynchronous_servers_add_up_the_trainers_counters() -> None:
    server = made(optimizer=lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 5, 0.5)), sync=False)
    program = server.server_main(A)
    schedule = program.block(1)
    assert "increment" not in types(schedule)
    assert schedule.ops[0].input("X") == ["@LR_DECAY_COUNTER@.trainer_0", "@LR_DECAY_COUNTER@.trainer_1"]
    (start,) = writers(server.server_startup(A, program).global_block(), "@LR_DECAY_COUNTER@")
    assert start.attr("value") == -2.0


def test_delay_compensation_keeps_what_each_trainer_was_given() -> None:
    server = made(sync=False, dc_asgd=True)
    program = server.server_main(A)
    assert types(program.block(2)) == [
        "ref_by_trainer_id",
        "elementwise_sub",
        "elementwise_mul",
        "elementwise_mul",
        "elementwise_add",
        "sgd",
    ]
    first, last = program.block(2).ops[0], program.block(2).ops[-1]
    assert first.input("X") == ["fc_0.w_0.block1.trainer_0_bak", "fc_0.w_0.block1.trainer_1_bak"]
    assert last.input("Grad") == program.block(2).ops[-2].output("Out")
    assert the(program.global_block(), "listen_and_serv").attr("dc_asgd") is True
    assert types(server.server_startup(A, program).global_block()).count("assign") == 6


def test_a_server_without_shards_gets_an_empty_block_and_a_warning() -> None:
    def network() -> Any:
        return fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))

    server = made(network, servers=(A, B, C))
    with pytest.warns(UserWarning, match=f"pserver {C} has no optimize block"):
        program = server.server_main(C)
    assert (program.num_blocks, program.block(1).ops) == (2, [])


def test_startup_makes_a_shard_with_its_own_shape_and_leaves_the_trainers_alone() -> None:
    server = made()
    startup = server.server_startup(A).global_block()
    (first,) = writers(startup, "fc_0.w_0.block1")
    assert (first.type, first.attr("shape")) == ("uniform_random", [50, 200])
    assert server.startup.global_block().ops[0].type != "recv"
    (whole,) = [op for op in writers(server.startup.global_block(), "fc_0.w_0") if op.type == "uniform_random"]
    assert whole.attr("shape") == [100, 200]


def test_listed_values_are_cut_with_their_shard() -> None:
    values = np.arange(20000, dtype="float32").reshape(100, 200)

    def network() -> Any:
        attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.NumpyArrayInitializer(values))
        return fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [100]), 200, param_attr=attr, bias_attr=False))

    server = made(network)
    for endpoint, first in ((A, 0), (B, 10000)):
        op = the(server.server_startup(endpoint).global_block(), "assign_value")
        assert op.attr("shape") == [50, 200]
        assert op.attr("fp32_values") == [float(value) for value in range(first, first + 10000)]


def test_programs_of_servers_do_not_depend_on_the_order_of_calls() -> None:
    def programs(order: str) -> tuple[bytes, bytes]:
        server = made(embeddings, lambda: fluid.optimizer.Adam(0.1))
        if order == "trainer first":
            server.finish_trainer()
        main = server.server_main(B)
        return main.serialize_to_string(), server.server_startup(B, main).serialize_to_string()

    assert programs("trainer first") == programs("server first")


def test_an_endpoint_that_is_no_server_is_refused() -> None:
    with pytest.raises(UsageError, match=f"'{C}' is not a parameter server of this job; expected one of {A}, {B}"):
        made().server_main(C)


def test_a_value_computed_from_others_cannot_be_cut() -> None:
    main, startup = built(mlp)
    name = "fc_0.w_0"
    startup.global_block().append_op(type="scale", inputs={"X": [name]}, outputs={"Out": [name]}, attrs={"scale": 2.0})
    with pytest.raises(ProgramError, match=r"fc_0\.w_0 .*cannot be made shard by shard; set slice_var_up=False"):
        job((main, startup))
    whole = job((main, startup), slice_variables=False)
    endpoint = whole.plan.parameters[1].endpoints[0]
    found = writers(whole.server_startup(endpoint).global_block(), name)
    assert [op.type for op in found] == ["uniform_random", "scale"]
