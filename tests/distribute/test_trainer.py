"""What a trainer's programs do."""

from __future__ import annotations

import pytest

import fluidtool.fluid as fluid
from fluidtool.ir.roles import OpRole
from fluidtool.proto.enums import VarType
from tests.distribute.support import A, B, as_bytes, built, embeddings, job, mlp, sgd, the, types, writers


def test_the_programs_given_are_rewritten_in_place() -> None:
    main, startup = built(mlp)
    block = main.global_block()
    made = job((main, startup))
    assert made.finish_trainer() is main
    assert main.global_block() is block
    assert "send" in types(block)
    assert "recv" in types(startup.global_block())


def test_a_gradient_is_sent_right_after_it_is_computed() -> None:
    main, startup = built(mlp)
    job((main, startup)).finish_trainer()
    ops = main.global_block().ops
    at = next(i for i, op in enumerate(ops) if "fc_0.w_0@GRAD" in op.output_arg_names)
    assert [op.type for op in ops[at : at + 3]] == ["mul_grad", "split_byref", "send"]
    assert ops[at + 2].input("X") == ["fc_0.w_0@GRAD.block0.trainer_0", "fc_0.w_0@GRAD.block1.trainer_0"]
    assert ops[at + 2].attr("epmap") == [B, A]
    assert ops[at + 2].attr("op_role_var") == ["fc_0.w_0", "fc_0.w_0@GRAD"]


def test_two_gradients_of_one_operator_are_both_sent_after_it() -> None:
    def network() -> object:
        x = fluid.layers.data("x", [4])
        return fluid.layers.mean(fluid.layers.prelu(fluid.layers.batch_norm(fluid.layers.fc(x, 3)), "all"))

    main, startup = built(network)
    job((main, startup), sync=False).finish_trainer()
    ops = main.global_block().ops
    at = next(i for i, op in enumerate(ops) if op.type == "batch_norm_grad")
    sent = [op.attr("op_role_var")[1] for op in ops[at + 1 : at + 3]]
    assert sorted(sent) == ["batch_norm_0.b_0@GRAD", "batch_norm_0.w_0@GRAD"]


def test_a_step_ends_with_barriers_around_the_fetching_of_parameters() -> None:
    main, startup = built(mlp)
    job((main, startup)).finish_trainer()
    tail = types(main.global_block())
    assert tail[tail.index("send_barrier") :] == ["send_barrier", *["recv"] * 4, "fetch_barrier", "concat"]
    barrier = the(main.global_block(), "send_barrier")
    received = [op for op in main.global_block().ops if op.type == "recv"]
    assert all(op.input("X") == barrier.output("Out") for op in received)
    assert barrier.attr("endpoints") == [A, B]


def test_asynchronous_trainers_wait_for_their_own_sending_only() -> None:
    main, startup = built(mlp)
    job((main, startup), sync=False).finish_trainer()
    found = types(main.global_block())
    assert "send_barrier" not in found
    assert "fetch_barrier" not in found
    block = main.global_block()
    sends = {op.attr("op_role_var")[0]: op.output("Out") for op in block.ops if op.type == "send"}
    assert all(op.input("X") == sends[op.attr("op_role_var")[0]] for op in block.ops if op.type == "recv")


def test_runtime_split_leaves_cutting_to_send_and_recv() -> None:
    main, startup = built(mlp)
    job((main, startup), sync=False, runtime_split=True).finish_trainer()
    block = main.global_block()
    assert not {"split_byref", "concat"} & set(types(block))
    (send,) = [op for op in block.ops if op.type == "send" and op.attr("op_role_var")[0] == "fc_0.w_0"]
    assert send.input("X") == ["fc_0.w_0@GRAD"]
    assert send.attr("sections") == [50, 50]
    assert send.attr("send_varnames") == ["fc_0.w_0@GRAD.block0", "fc_0.w_0@GRAD.block1"]
    (received,) = [op for op in block.ops if op.type == "recv" and op.output("Out") == ["fc_0.w_0"]]
    assert received.attr("recv_varnames") == ["fc_0.w_0.block0", "fc_0.w_0.block1"]


def test_half_async_with_runtime_split_has_a_barrier_of_its_own() -> None:
    main, startup = built(mlp)
    job((main, startup), sync=False, runtime_split=True, half_async=True)
    assert the(main.global_block(), "send_barrier").attr("half_async") is True


def test_optimizers_learning_rates_and_accumulators_leave_the_trainer() -> None:
    main, startup = built(mlp, lambda: fluid.optimizer.Adam(fluid.layers.exponential_decay(0.1, 5, 0.5)))
    job((main, startup)).finish_trainer()
    roles = {int(op.attr("op_role")) for op in main.global_block().ops}
    assert not roles & {int(OpRole.Optimize), int(OpRole.LRSched), int(OpRole.LRSched | OpRole.Optimize)}
    for block in (main.global_block(), startup.global_block()):
        assert not [name for name in block.vars if "moment" in name or "beta" in name]


def test_parameters_are_fetched_at_the_start_and_keep_their_initializers() -> None:
    main, startup = built(mlp)
    job((main, startup)).finish_trainer()
    assert [op.type for op in writers(startup.global_block(), "fc_0.w_0")] == ["uniform_random", "concat"]
    assert [op.type for op in writers(startup.global_block(), "fc_1.b_0")] == ["fill_constant", "recv"]


@pytest.mark.parametrize("clip", [fluid.clip.GradientClipByGlobalNorm(1.0), fluid.clip.GradientClipByValue(1.0)])
@pytest.mark.parametrize("way", ["set_gradient_clip", "grad_clip"])
def test_clips_stay_with_the_trainer_however_they_were_asked_for(clip: object, way: str) -> None:
    def optimizer() -> object:
        if way == "grad_clip":
            return fluid.optimizer.SGD(0.1, grad_clip=clip)
        fluid.clip.set_gradient_clip(clip)
        return sgd()

    main, startup = built(mlp, optimizer)
    clipping = sorted(op.type for op in main.global_block().ops if "clip" in op.get_attr("op_namescope", ""))
    made = job((main, startup))
    made.finish_trainer()
    assert sorted(op.type for op in main.global_block().ops if "clip" in op.get_attr("op_namescope", "")) == clipping
    assert {kind for block in made.server_main(A).blocks for kind in types(block)} == {
        *("listen_and_serv", "sum", "scale", "sgd")
    }


def test_rows_of_a_sparse_table_are_asked_of_the_servers() -> None:
    main, startup = built(lambda: embeddings(tables=("emb", "emb")))
    job((main, startup)).finish_trainer()
    block = main.global_block()
    assert "lookup_table" not in types(block)
    lookup = the(block, "distributed_lookup_table")
    assert lookup.input("Ids") == ["ids_0", "ids_1"]
    assert lookup.attr("table_names") == ["emb.block0", "emb.block1"]
    assert lookup.attr("height_sections") == [500, 500]
    assert not [op for op in block.ops if op.type == "recv" and "emb.block0" in op.output_arg_names]
    assert [op.type for op in writers(startup.global_block(), "emb")] == ["fake_init"]


def test_lookups_whose_ids_need_an_earlier_result_are_replaced_one_by_one() -> None:
    def network() -> object:
        ids = fluid.layers.data("ids", [1], dtype="int64")
        first = fluid.layers.embedding(ids, [1000, 32], is_sparse=True, param_attr=fluid.ParamAttr(name="emb"))
        best = fluid.layers.unsqueeze(fluid.layers.argmax(first, axis=-1), [1])
        second = fluid.layers.embedding(best, [1000, 32], is_sparse=True, param_attr=fluid.ParamAttr(name="emb"))
        return fluid.layers.mean(fluid.layers.elementwise_add(first, second))

    main, startup = built(network)
    job((main, startup)).finish_trainer()
    found = types(main.global_block())
    assert found.count("distributed_lookup_table") == 2
    assert found.index("distributed_lookup_table") < found.index("arg_max")


def test_nce_is_told_where_its_rows_are() -> None:
    def network() -> object:
        x = fluid.layers.data("x", [64])
        y = fluid.layers.data("y", [1], dtype="int64")
        return fluid.layers.mean(fluid.layers.nce(x, y, 1000, is_sparse=True, bias_attr=False))

    main, startup = built(network)
    job((main, startup)).finish_trainer()
    op = the(main.global_block(), "nce")
    assert op.attr("table_names") == ["nce_0.w_0.block0", "nce_0.w_0.block1"]
    assert sorted(op.attr("epmap")) == [A, B]


def test_a_sparse_gradient_is_cut_by_rows() -> None:
    main, startup = built(embeddings)
    job((main, startup)).finish_trainer()
    op = the(main.global_block(), "split_selected_rows")
    assert op.attr("height_sections") == [500, 500]
    assert main.global_block().var(op.output("Out")[0]).type == VarType.SELECTED_ROWS


def test_each_asynchronous_trainer_sends_its_own_step_counter() -> None:
    main, startup = built(mlp, lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 5, 0.5)))
    job((main, startup), sync=False, trainer_id=1).finish_trainer()
    counter = "@LR_DECAY_COUNTER@.trainer_1"
    (send,) = [op for op in main.global_block().ops if op.type == "send" and op.input("X") == [counter]]
    assert (send.attr("epmap"), send.attr("merge_add"), send.attr("use_send_handler")) == ([A, B], True, False)
    (first,) = writers(startup.global_block(), counter)
    assert first.attr("value") == 1.0


def test_finishing_twice_changes_nothing_more() -> None:
    programs = built(embeddings, lambda: fluid.optimizer.Adam(0.1))
    made = job(programs)
    made.finish_trainer()
    once = as_bytes(programs)
    made.finish_trainer()
    assert as_bytes(programs) == once


def test_the_same_plan_always_gives_the_same_bytes() -> None:
    def transpiled() -> tuple[bytes, bytes]:
        programs = built(embeddings, lambda: fluid.optimizer.Adam(0.1))
        job(programs).finish_trainer()
        return as_bytes(programs)

    assert transpiled() == transpiled()


def test_programs_say_how_they_are_distributed() -> None:
    main, startup = built(mlp)
    job((main, startup), trainer_id=1)
    assert (main._is_distributed, main._is_chief, main._endpoints) == (True, False, [A, B])
    found = main._parameters_on_pservers.get_distributed_var_by_slice("fc_0.w_0.block1")
    assert (found.origin.name, found.offset, found.endpoint) == ("fc_0.w_0", 10000, A)
