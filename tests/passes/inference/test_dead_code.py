"""`drop-dead`: what leads to nothing wanted goes; what does more than compute stays."""

from functools import partial

import numpy as np

from fluidtool.passes.inference.dead_code import drop_dead
from fluidtool.proto.enums import VarType
from tests.passes.inference.net import Net, append, reasons
from tests.support.counted_work import LIMIT, growth


def with_dead_end() -> Net:
    """out = relu(x), and a chain x -> a -> b that nothing reads."""
    net = Net()
    net.data("x", net.numbers(2, 3))
    net.op("scale", {"X": ["x"]}, {"Out": ["a"]}, scale=2.0)
    net.op("relu", {"X": ["x"]}, {"Out": ["out"]})
    net.op("tanh", {"X": ["a"]}, {"Out": ["b"]})
    return net


def test_a_dead_end_goes_with_all_that_only_leads_to_it() -> None:
    net = with_dead_end()
    before = net.run("out")[0]
    result = drop_dead(net.program, net.scope, keep=["out"])
    assert net.types == ["relu"]
    assert sorted(decision.variable for decision in result.done) == ["a", "b"]
    assert set(net.block.vars) == {"x", "out"}
    np.testing.assert_array_equal(net.run("out")[0], before)
    assert not drop_dead(net.program, net.scope, keep=["out"]).changed


def test_fetch_operators_say_what_is_wanted() -> None:
    net = with_dead_end()
    net.fetch("a")
    drop_dead(net.program, net.scope)
    assert net.types == ["scale", "fetch"]


def test_without_fetches_everything_may_be_wanted() -> None:
    net = with_dead_end()
    result = drop_dead(net.program, net.scope)
    assert reasons(result) == ["there is no fetch operator and nothing that must be kept: any variable may be needed"]


def test_what_is_printed_stays() -> None:
    net = with_dead_end()
    net.op("print", {"In": ["b"]}, {"Out": ["printed"]})
    assert not drop_dead(net.program, net.scope, keep=["out"]).changed


def test_what_is_asserted_and_saved_stays() -> None:
    net = with_dead_end()
    net.op("save", {"X": ["b"]}, {}, file_path="b")
    net.op("is_empty", {"X": ["a"]}, {"Out": ["empty"]})
    net.op("assert", {"Cond": ["empty"], "Data": []}, {})
    assert not drop_dead(net.program, net.scope, keep=["out"]).changed


def test_what_writes_a_persistable_variable_stays() -> None:
    net = with_dead_end()
    net.block.var("b").persistable = True
    assert not drop_dead(net.program, net.scope, keep=["out"]).changed


def test_unknown_operators_stay() -> None:
    net = with_dead_end()
    net.block.append_op(type="operator_of_others", inputs={"X": ["b"]}, outputs={"Out": ["c"]})
    assert not drop_dead(net.program, net.scope, keep=["out"]).changed


def test_operators_in_place_on_what_is_wanted_stay() -> None:
    net = with_dead_end()
    net.op("scale", {"X": ["out"]}, {"Out": ["out"]}, scale=3.0)
    before = net.run("out")[0]
    drop_dead(net.program, net.scope, keep=["out"])
    assert net.types == ["relu", "scale"]
    np.testing.assert_array_equal(net.run("out")[0], before)


def test_every_write_to_an_array_stays() -> None:
    net = with_dead_end()
    net.block.create_var(name="items", type=VarType.LOD_TENSOR_ARRAY)
    for index in (0, 1):
        net.op("fill_constant", {}, {"Out": [f"i{index}"]}, shape=[1], value=float(index), dtype=int(VarType.INT64))
        net.op("write_to_array", {"X": ["x"], "I": [f"i{index}"]}, {"Out": ["items"]})
    net.op("lod_array_length", {"X": ["items"]}, {"Out": ["length"]})
    drop_dead(net.program, net.scope, keep=["length"])
    assert net.types.count("write_to_array") == 2
    assert net.run("length")[0].tolist() == [2]


def test_a_normalization_that_leaves_its_statistics_is_dead_only_under_is_test() -> None:
    for is_test in (False, True):
        net = Net()
        net.data("x", net.numbers(2, 3, 4, 4))
        for name in ("scale", "bias", "mean", "variance"):
            net.parameter(name, net.numbers(3))
        inputs = {"X": ["x"], "Scale": ["scale"], "Bias": ["bias"], "Mean": ["mean"], "Variance": ["variance"]}
        outputs = {"Y": ["y"], "MeanOut": ["mean"], "VarianceOut": ["variance"]}
        outputs |= {"SavedMean": ["m"], "SavedVariance": ["v"]}
        net.op("batch_norm", inputs, outputs, is_test=is_test)
        net.op("relu", {"X": ["x"]}, {"Out": ["out"]})
        assert drop_dead(net.program, net.scope, keep=["out"]).changed is is_test


def loop(net: Net, dead: int) -> list[str]:
    """A loop that adds 1 to `sum` three times, and a chain of so many `dead` operators; the types in its block after the pass."""
    for name, value in (("i", 0.0), ("n", 3.0), ("sum", 0.0)):
        net.op("fill_constant", {}, {"Out": [name]}, shape=[1], value=value, dtype=int(VarType.FP32))
    net.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["go"]})
    body = net.program._create_block()
    for number in range(dead):
        append(body, "tanh", {"X": [f"idle{number - 1}" if number else "sum"]}, {"Out": [f"idle{number}"]})
    append(body, "scale", {"X": ["sum"]}, {"Out": ["sum"]}, scale=1.0, bias=1.0)
    append(body, "increment", {"X": ["i"]}, {"Out": ["i"]}, step=1.0)
    append(body, "less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["go"]})
    net.program._rollback()
    net.block.create_var(name="scopes", type=VarType.STEP_SCOPES)
    inputs = {"X": ["sum", "i", "n"], "Condition": ["go"]}
    outputs = {"Out": ["sum", "i"], "StepScopes": ["scopes"]}
    net.block.append_op(type="while", inputs=inputs, outputs=outputs, attrs={"sub_block": body, "is_test": True})
    drop_dead(net.program, net.scope, keep=["sum"])
    return [op.type for op in body.ops]


def test_dead_operators_of_a_loop_go_and_what_the_next_round_reads_stays() -> None:
    net = Net()
    assert loop(net, dead=2) == ["scale", "increment", "less_than"]
    assert net.run("sum")[0].tolist() == [3.0]


def test_twice_the_dead_operators_of_a_loop_take_twice_the_work() -> None:
    assert growth(lambda size: partial(loop, Net(), size), 60, 10) < LIMIT


def test_a_loop_without_dead_operators_stays_as_it_is() -> None:
    assert loop(Net(), dead=0) == ["scale", "increment", "less_than"]


def test_a_loop_that_nothing_needs_goes_with_its_block() -> None:
    net = Net()
    loop(net, dead=0)
    net.data("x", net.numbers(2, 3))
    net.op("relu", {"X": ["x"]}, {"Out": ["out"]})
    drop_dead(net.program, net.scope, keep=["out"])
    assert net.types == ["relu"] and net.program.block(1).ops == []
