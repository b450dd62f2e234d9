"""`fuse-embedding-layer-norm` and `fuse-skip-layer-norm`: sums move into the layer_norm that reads them, to 1e-5."""

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.summed_layer_norm import fuse_embedding_layer_norm, fuse_skip_layer_norm
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from tests.passes.inference.net import Net, reasons

WIDTH = 6


def normalize(net: Net, name: str, axis: int = 2, affine: bool = True) -> None:
    inputs = {"X": [name]}
    if affine:
        inputs |= {"Scale": [net.parameter("gain", net.numbers(WIDTH))]}
        inputs |= {"Bias": [net.parameter("offset", net.numbers(WIDTH))]}
    outputs = {"Y": ["out"], "Mean": ["mean"], "Variance": ["variance"]}
    net.op("layer_norm", inputs, outputs, begin_norm_axis=axis, epsilon=1e-5)


def embeddings(count: int = 3, version: int = 1, add: str = "elementwise_add", **attrs: Any) -> Net:
    net = Net()
    for index in range(count):
        words = net.random.integers(0, 9, (2, 4, 1) if version == 1 else (2, 4))
        net.data(f"ids{index}", words)
        net.parameter(f"table{index}", net.numbers(9, WIDTH))
        kind = "lookup_table" if version == 1 else "lookup_table_v2"
        inputs = {"Ids": [f"ids{index}"], "W": [f"table{index}"]}
        net.op(kind, inputs, {"Out": [f"e{index}"]}, **{"padding_idx": -1, **attrs})
    total = "e0"
    if add == "sum":
        net.op("sum", {"X": [f"e{index}" for index in range(count)]}, {"Out": ["total"]})
        total = "total"
    else:
        for index in range(1, count):
            net.op(add, {"X": [total], "Y": [f"e{index}"]}, {"Out": [f"s{index}"]}, axis=-1)
            total = f"s{index}"
    normalize(net, total)
    return net


def skip(affine: bool = True, axis: int = 2, y: str = "y") -> Net:
    net = Net()
    net.data("x", net.numbers(2, 4, WIDTH))
    if y == "y":
        net.data("y", net.numbers(2, 4, WIDTH))
    else:
        net.parameter(y, net.numbers(WIDTH))
    net.op("elementwise_add", {"X": ["x"], "Y": [y]}, {"Out": ["s"]}, axis=-1)
    normalize(net, "s", axis, affine)
    return net


def fuses(run: Any, net: Net, kind: str) -> None:
    before = net.run("out")[0]
    assert run(net.program, net.scope, ["out"]).changed
    assert net.types == [kind]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-5)
    assert verify(net.program) == []
    assert not run(net.program, net.scope, ["out"]).changed


@pytest.mark.parametrize("options", [{}, {"count": 2}, {"count": 4}, {"version": 2}, {"add": "sum"}], ids=str)
def test_a_sum_of_look_ups_moves_in(options: dict[str, Any]) -> None:
    fuses(fuse_embedding_layer_norm, embeddings(**options), "fused_embedding_eltwise_layernorm")


def test_a_sum_of_two_values_moves_in() -> None:
    fuses(fuse_skip_layer_norm, skip(), "skip_layernorm")


def left(run: Any, net: Net, *keep: str) -> list[str]:
    result = run(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


def test_a_fetched_sum_stays() -> None:
    assert left(fuse_embedding_layer_norm, embeddings(), "s1") == ["s1 is fetched or must be kept"]
    assert left(fuse_skip_layer_norm, skip(), "s") == ["s is fetched or must be kept"]


def test_a_sum_with_another_reader_stays() -> None:
    for run, net, name in ((fuse_embedding_layer_norm, embeddings(), "e1"), (fuse_skip_layer_norm, skip(), "s")):
        net.op("relu", {"X": [name]}, {"Out": ["other"]})
        assert left(run, net) == [f"{name} is also read by relu"]


def test_statistics_that_are_read_stay() -> None:
    net = skip()
    net.op("relu", {"X": ["mean"]}, {"Out": ["other"]})
    assert left(fuse_skip_layer_norm, net) == ["mean is also read by relu"]


def test_a_bias_is_no_second_value() -> None:
    assert left(fuse_skip_layer_norm, skip(y="b")) == ["x and b are not declared with one shape"]


def test_a_layer_norm_without_scale_stays() -> None:
    assert left(fuse_skip_layer_norm, skip(affine=False)) == ["the layer_norm has no scale or no bias"]


def test_a_layer_norm_over_two_dimensions_stays() -> None:
    net = skip(affine=False, axis=1)
    assert left(fuse_skip_layer_norm, net) == ["the layer_norm is not over the last dimension alone"]


def test_a_value_that_is_overwritten_stays() -> None:
    net = skip()
    net.block.insert_op(1, type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert left(fuse_skip_layer_norm, net) == ["x is written again before the last operator of the group"]


def test_a_look_up_with_padding_stays() -> None:
    assert left(fuse_embedding_layer_norm, embeddings(padding_idx=2)) == ["a lookup has a padding_idx"]


def test_a_table_that_is_written_stays() -> None:
    net = embeddings()
    net.op("scale", {"X": ["table1"]}, {"Out": ["table1"]}, scale=2.0)
    assert left(fuse_embedding_layer_norm, net) == ["table1 is written by the program"]


def test_words_of_another_batch_stay() -> None:
    net = embeddings()
    net.block.var("ids2").shape = [1, 4, 1]
    wanted = ["ids0 and ids2 are not declared with the same batch and length"]
    assert left(fuse_embedding_layer_norm, net) == wanted


def test_sequences_of_words_stay() -> None:
    net = embeddings()
    net.block.var("ids0").lod_level = 1
    assert left(fuse_embedding_layer_norm, net) == ["ids0 is not (batch, length) words"]


def test_a_sum_with_something_else_is_no_candidate() -> None:
    assert left(fuse_embedding_layer_norm, skip()) == []


def test_half_precision_stays() -> None:
    net = skip()
    net.block.var("s").dtype = VarType.FP16
    assert left(fuse_skip_layer_norm, net) == ["s is not declared float32 or float64"]
