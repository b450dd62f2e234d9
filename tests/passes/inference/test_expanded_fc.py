"""`fuse-seqexpand-concat-fc`: rows beside their sequence's values, through one operator, to 1e-5."""

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.expanded_fc import fuse_seqexpand_concat_fc
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from tests.passes.inference.net import Net, reasons

LOD = [[0, 2, 5]]


def expanded(
    count: int = 1, *, bias: bool = True, activation: str = "tanh", axis: int = 1, dtype: str = "float32"
) -> Net:
    net = Net()
    net.data("rows", net.numbers(5, 4, dtype=dtype), LOD)
    parts = ["rows"]
    for index in range(count):
        net.data(f"x{index}", net.numbers(2, 3, dtype=dtype))
        net.op("sequence_expand", {"X": [f"x{index}"], "Y": ["rows"]}, {"Out": [f"e{index}"]}, ref_level=-1)
        parts.append(f"e{index}")
    net.op("concat", {"X": parts}, {"Out": ["joined"]}, axis=axis)
    net.parameter("w", net.numbers(4 + 3 * count, 6, dtype=dtype))
    net.op("mul", {"X": ["joined"], "Y": ["w"]}, {"Out": ["p"]}, x_num_col_dims=1, y_num_col_dims=1)
    name = "p"
    if bias:
        net.parameter("b", net.numbers(6, dtype=dtype))
        net.op("elementwise_add", {"X": ["p"], "Y": ["b"]}, {"Out": ["pb"]}, axis=1)
        name = "pb"
    net.op(activation or "scale", {"X": [name]}, {"Out": ["out"]})
    return net


FORMS: list[dict[str, Any]] = [
    {},
    {"count": 2},
    {"bias": False},
    {"activation": "relu"},
    {"activation": "sigmoid", "bias": False},
    {"dtype": "float64"},
]


def run(net: Net) -> Any:
    return Executor().run(net.program, net.feeds, ["out"], net.scope)[0]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_becomes_one_operator(form: dict[str, Any]) -> None:
    net = expanded(**form)
    before = run(net)
    assert fuse_seqexpand_concat_fc(net.program, net.scope, ["out"]).changed
    assert net.types == ["fusion_seqexpand_concat_fc"]
    after = run(net)
    np.testing.assert_allclose(after.numpy(), before.numpy(), rtol=1e-5, atol=1e-6)
    assert after.lod() == before.lod()
    assert verify(net.program) == []
    assert not fuse_seqexpand_concat_fc(net.program, net.scope, ["out"]).changed


def test_an_activation_that_it_does_not_know_stays_behind() -> None:
    net = expanded(activation="")
    before = run(net).numpy()
    assert fuse_seqexpand_concat_fc(net.program, net.scope, ["out"]).changed
    assert net.types == ["fusion_seqexpand_concat_fc", "scale"]
    np.testing.assert_allclose(run(net).numpy(), before, rtol=1e-5, atol=1e-6)


def test_a_fetched_sum_keeps_the_activation_apart() -> None:
    net = expanded()
    assert fuse_seqexpand_concat_fc(net.program, net.scope, ["pb", "out"]).changed
    assert net.types == ["fusion_seqexpand_concat_fc", "tanh"]


def left(net: Net, *keep: str) -> list[str]:
    result = fuse_seqexpand_concat_fc(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


def test_fetched_rows_stay() -> None:
    assert left(expanded(), "joined") == ["joined is fetched or must be kept"]


def test_expanded_rows_with_another_reader_stay() -> None:
    net = expanded()
    net.op("relu", {"X": ["e0"]}, {"Out": ["other"]})
    assert left(net) == ["e0 is also read by relu"]


def test_rows_expanded_to_other_sequences_stay() -> None:
    net = expanded()
    net.data("others", net.numbers(5, 4), LOD)
    net.block.ops[0].set_input("Y", ["others"])
    assert left(net) == ["x0 is expanded to the sequences of others, not of rows"]


def test_sequences_that_are_expanded_stay() -> None:
    net = expanded()
    net.block.var("x0").lod_level = 1
    assert left(net) == ["x0 is not declared as one row per sequence"]


def test_two_levels_of_sequences_stay() -> None:
    net = expanded()
    net.block.var("rows").lod_level = 2
    wanted = ["rows is not declared as rows of one level of sequences, float32 or float64"]
    assert left(net) == wanted


def test_half_precision_stays() -> None:
    net = expanded()
    net.block.var("rows").dtype = VarType.FP16
    wanted = ["rows is not declared as rows of one level of sequences, float32 or float64"]
    assert left(net) == wanted


def test_a_weight_that_is_written_stays() -> None:
    net = expanded()
    net.op("scale", {"X": ["w"]}, {"Out": ["w"]}, scale=2.0)
    assert left(net) == ["w is written by the program"]


def test_rows_that_are_overwritten_stay() -> None:
    net = expanded()
    net.block.insert_op(2, type="relu", inputs={"X": ["x0"]}, outputs={"Out": ["x0"]})
    assert left(net) == ["x0 is written again before the last operator of the group"]


def test_a_concat_of_other_rows_is_no_candidate() -> None:
    net = expanded()
    net.data("more", net.numbers(5, 3), LOD)
    net.block.ops[1].set_input("X", ["rows", "more"])
    assert left(net) == []
