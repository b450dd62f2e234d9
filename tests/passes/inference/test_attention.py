"""`fuse-attention`: self-attention in its usual spellings becomes one operator, to 1e-5."""

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.attention import fuse_attention
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from tests.passes.inference.net import Net, reasons

BATCH, LENGTH, HIDDEN, HEADS, SIZE = 2, 5, 12, 3, 4


def part(net: Net, name: str, source: str, matmul: bool, bias: bool, permutation: list[int], shape: list[int]) -> None:
    """One projection, split into heads."""
    net.parameter(f"{name}_w", net.numbers(HIDDEN, HEADS * SIZE))
    inputs, projected = {"X": [source], "Y": [f"{name}_w"]}, f"{name}_p"
    if matmul:
        net.op("matmul_v2", inputs, {"Out": [projected]}, trans_x=False, trans_y=False)
    else:
        net.op("mul", inputs, {"Out": [projected]}, x_num_col_dims=2, y_num_col_dims=1)
    if bias:
        net.parameter(f"{name}_b", net.numbers(HEADS * SIZE))
        net.op("elementwise_add", {"X": [projected], "Y": [f"{name}_b"]}, {"Out": [f"{name}_pb"]}, axis=2)
        projected = f"{name}_pb"
    net.op("reshape2", {"X": [projected]}, {"Out": [projected], "XShape": [f"{name}_rx"]}, shape=shape)
    net.op("transpose2", {"X": [projected]}, {"Out": [name], "XShape": [f"{name}_tx"]}, axis=permutation)


def attention(
    *,
    matmul: bool = False,
    bias: bool = True,
    mask: tuple[int, ...] = (BATCH, HEADS, LENGTH, LENGTH),
    scaled: str = "queries",
    key_transposed: bool = False,
    dropout: str = "",
    shape: tuple[int, ...] = (0, 0, HEADS, SIZE),
    joined: tuple[int, ...] = (0, 0, HEADS * SIZE),
    key_source: str = "x",
) -> Net:
    net = Net()
    net.data("x", net.numbers(BATCH, LENGTH, HIDDEN))
    if key_source != "x":
        net.data(key_source, net.numbers(BATCH, LENGTH, HIDDEN))
    keys = [0, 2, 3, 1] if key_transposed else [0, 2, 1, 3]
    for name, source, permutation in (
        ("q", "x", [0, 2, 1, 3]),
        ("k", key_source, keys),
        ("v", key_source, [0, 2, 1, 3]),
    ):
        part(net, name, source, matmul, bias, permutation, list(shape))
    queries, alpha = "q", SIZE**-0.5
    if scaled == "queries":
        net.op("scale", {"X": ["q"]}, {"Out": ["qs"]}, scale=alpha, bias=0.0)
        queries = "qs"
    kind, turned = ("matmul_v2", "trans_y") if matmul else ("matmul", "transpose_Y")
    factor = {"alpha": alpha} if scaled == "product" else {}
    net.op(kind, {"X": [queries], "Y": ["k"]}, {"Out": ["s"]}, **{turned: not key_transposed}, **factor)
    scores = "s"
    if scaled == "scores":
        net.parameter("root", np.array([1 / alpha], np.float32))
        net.op("elementwise_div", {"X": ["s"], "Y": ["root"]}, {"Out": ["sd"]}, axis=-1)
        scores = "sd"
    if mask:
        net.data("mask", net.numbers(*mask) * 4, fixed=True)
        net.op("elementwise_add", {"X": [scores], "Y": ["mask"]}, {"Out": ["sm"]}, axis=-1)
        scores = "sm"
    net.op("softmax", {"X": [scores]}, {"Out": ["probabilities"]}, axis=-1)
    weights = "probabilities"
    if dropout:
        attrs = {"dropout_prob": 0.1, "is_test": True, "dropout_implementation": dropout}
        net.op("dropout", {"X": [weights]}, {"Out": ["dropped"], "Mask": ["drop_mask"]}, **attrs)
        weights = "dropped"
    net.op(kind, {"X": [weights], "Y": ["v"]}, {"Out": ["c"]})
    net.op("transpose2", {"X": ["c"]}, {"Out": ["ct"], "XShape": ["cx"]}, axis=[0, 2, 1, 3])
    net.op("reshape2", {"X": ["ct"]}, {"Out": ["out"], "XShape": ["ox"]}, shape=list(joined))
    return net


SPELLINGS: list[dict[str, Any]] = [
    {},
    {"matmul": True},
    {"bias": False},
    {"mask": ()},
    {"mask": (BATCH, 1, 1, LENGTH)},
    {"mask": (LENGTH, LENGTH)},
    {"scaled": "product"},
    {"scaled": "scores"},
    {"scaled": "not"},
    {"key_transposed": True},
    {"dropout": "upscale_in_train"},
    {"shape": (0, -1, HEADS, SIZE), "joined": (-1, LENGTH, HEADS * SIZE)},
    {"shape": (0, 0, -1, SIZE), "joined": (0, 0, -1)},
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_every_spelling_becomes_one_operator(spelling: dict[str, Any]) -> None:
    net = attention(**spelling)
    before = net.run("out")[0]
    assert fuse_attention(net.program, net.scope, ["out"]).changed
    assert net.types == ["multihead_matmul"]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)
    assert verify(net.program) == []
    assert not fuse_attention(net.program, net.scope, ["out"]).changed


def test_the_weights_stay_for_other_readers() -> None:
    net = attention()
    net.op("relu", {"X": ["q_w"]}, {"Out": ["other"]})
    before = net.run("out", "other")
    assert fuse_attention(net.program, net.scope, ["out", "other"]).changed
    for got, want in zip(net.run("out", "other"), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def joint_projection(first: int = 0) -> Net:
    """One projection for queries, keys and values, as vision transformers write it."""
    net = Net()
    net.data("x", net.numbers(BATCH, LENGTH, HIDDEN))
    net.parameter("w", net.numbers(HIDDEN, 3 * HEADS * SIZE))
    net.parameter("b", net.numbers(3 * HEADS * SIZE))
    net.op("matmul_v2", {"X": ["x"], "Y": ["w"]}, {"Out": ["p"]}, trans_x=False, trans_y=False)
    net.op("elementwise_add", {"X": ["p"], "Y": ["b"]}, {"Out": ["pb"]}, axis=-1)
    net.op("reshape2", {"X": ["pb"]}, {"Out": ["r"], "XShape": ["rx"]}, shape=[0, -1, 3, HEADS, SIZE])
    net.op("transpose2", {"X": ["r"]}, {"Out": ["t"], "XShape": ["tx"]}, axis=[2, 0, 3, 1, 4])
    for index, name in enumerate("qkv"):
        start = (first + index) % 3
        attrs = {"axes": [0], "starts": [start], "ends": [start + 1], "decrease_axis": [0], "infer_flags": [1]}
        net.op("slice", {"Input": ["t"]}, {"Out": [name]}, **attrs)
    net.op("scale", {"X": ["q"]}, {"Out": ["qs"]}, scale=SIZE**-0.5, bias=0.0)
    net.op("transpose2", {"X": ["k"]}, {"Out": ["kt"], "XShape": ["kx"]}, axis=[0, 1, 3, 2])
    net.op("matmul_v2", {"X": ["qs"], "Y": ["kt"]}, {"Out": ["s"]}, trans_x=False, trans_y=False)
    net.op("softmax", {"X": ["s"]}, {"Out": ["probabilities"]}, axis=-1)
    net.op("matmul_v2", {"X": ["probabilities"], "Y": ["v"]}, {"Out": ["c"]}, trans_x=False, trans_y=False)
    net.op("transpose2", {"X": ["c"]}, {"Out": ["ct"], "XShape": ["cx"]}, axis=[0, 2, 1, 3])
    net.op("reshape2", {"X": ["ct"]}, {"Out": ["out"], "XShape": ["ox"]}, shape=[0, -1, HEADS * SIZE])
    return net


@pytest.mark.parametrize("first", [0, 1, 2])
def test_one_projection_for_all_three_is_known(first: int) -> None:
    net = joint_projection(first)
    before = net.run("out")[0]
    assert fuse_attention(net.program, net.scope, ["out"]).changed
    assert net.types == ["multihead_matmul"]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)


def left(net: Net, *keep: str) -> list[str]:
    result = fuse_attention(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


def test_attention_to_something_else_stays() -> None:
    wanted = ["queries, keys and values are not projections of one input: x and memory"]
    assert left(attention(key_source="memory")) == wanted


def test_fetched_probabilities_stay() -> None:
    assert left(attention(), "probabilities") == ["probabilities is fetched or must be kept"]


def test_keys_with_another_reader_stay() -> None:
    net = attention()
    net.op("relu", {"X": ["k"]}, {"Out": ["other"]})
    assert left(net) == ["k is also read by relu"]


def test_probabilities_with_another_reader_stay() -> None:
    net = attention()
    net.op("relu", {"X": ["probabilities"]}, {"Out": ["other"]})
    assert left(net) == ["probabilities is not read by one matmul or matmul_v2 alone"]


def test_a_weight_that_is_fed_stays() -> None:
    net = attention()
    net.block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    net.block.prepend_op(type="feed", inputs={"X": ["feed"]}, outputs={"Out": ["k_w"]}, attrs={"col": 0})
    assert left(net) == ["k_w is written by the program"]


def test_dropout_that_scales_stays() -> None:
    wanted = ["probabilities is not read by one matmul or matmul_v2 alone"]
    assert left(attention(dropout="downgrade_in_infer")) == wanted


def test_a_softmax_over_the_queries_stays() -> None:
    net = attention()
    next(op for op in net.block.ops if op.type == "softmax").set_attr("axis", 2)
    assert left(net) == ["the softmax is not over the last dimension"]


def test_values_that_are_scaled_stay() -> None:
    net = attention()
    position = net.types.index("softmax")
    net.block.insert_op(position, type="scale", inputs={"X": ["v"]}, outputs={"Out": ["v"]}, attrs={"scale": 2.0})
    assert left(net) == ["the values are scaled"]


def test_another_permutation_stays() -> None:
    net = attention()
    net.block.ops[3].set_attr("axis", [0, 1, 2, 3])
    assert left(net) == ["q is transposed by [0, 1, 2, 3], not [0, 2, 1, 3]"]


def test_an_input_that_is_overwritten_stays() -> None:
    net = attention()
    position = net.types.index("softmax")
    net.block.insert_op(position, type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert left(net) == ["x is written again before the last operator of the group"]


def test_a_mask_along_other_dimensions_stays() -> None:
    net = attention(mask=(LENGTH, LENGTH))
    next(op for op in net.block.ops if op.input("Y") == ["mask"]).set_attr("axis", 0)
    assert left(net) == ["the mask mask does not broadcast from the last dimension"]


def test_half_precision_stays() -> None:
    net = attention()
    net.block.var("x").dtype = VarType.FP16
    assert left(net) == ["x is not declared float32 or float64"]


def test_a_factor_after_the_mask_is_no_candidate() -> None:
    net = attention()
    position = net.types.index("softmax")
    net.block.insert_op(position, type="scale", inputs={"X": ["sm"]}, outputs={"Out": ["sm"]}, attrs={"scale": 2.0})
    assert left(net) == []


def test_a_softmax_of_a_plain_product_is_no_candidate() -> None:
    net = Net()
    net.data("x", net.numbers(4, 6))
    net.parameter("w", net.numbers(6, 3))
    net.op("matmul", {"X": ["x"], "Y": ["w"]}, {"Out": ["s"]})
    net.op("softmax", {"X": ["s"]}, {"Out": ["out"]}, axis=-1)
    assert left(net) == []


def test_a_joint_projection_that_something_else_reads_stays() -> None:
    net = joint_projection()
    net.op("relu", {"X": ["t"]}, {"Out": ["other"]})
    assert left(net) == ["t is also read by relu"]


def test_other_slices_stay() -> None:
    net = joint_projection()
    next(op for op in net.block.ops if op.type == "slice").set_attr("axes", [1])
    assert left(net) == ["q is not one of three parts"]
