"""`fuse-squared-mat-sub` and `fuse-sequence-conv`."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.passes.inference.fuse_products import fuse_sequence_conv, fuse_squared_mat_sub
from tests.passes.inference.checking import CheckedNet as Net

ROUNDING = 1e-12


def squares(other: bool = False, product: str = "matmul", **attrs: Any) -> tuple[Net, str]:
    """(XY)^2 - X^2 Y^2; with `other` the squares are of another X."""
    net = Net()
    x, y = net.input("x", 3, 4), net.parameter("y", 4, 6)
    z = net.input("z", 3, 4) if other else x
    squared_product = net.op("square", {"X": net.op(product, {"X": x, "Y": y}, **attrs)})
    left, right = net.op("square", {"X": z}), net.op("square", {"X": y})
    for name in (left, right):
        net.block.vars[name].shape = (-1, 4) if name == left else (4, 6)
    products = net.op(product, {"X": left, "Y": right}, **attrs)
    return net, net.op("elementwise_sub", {"X": squared_product, "Y": products}, axis=-1)


@pytest.mark.parametrize("product", ["matmul", "mul"])
def test_the_difference_of_squares(product: str) -> None:
    net, out = squares(product=product)
    net.check(fuse_squared_mat_sub, out, rtol=ROUNDING)
    assert net.types == ["fusion_squared_mat_sub"]


def test_times_a_number() -> None:
    net, out = squares()
    net.check(fuse_squared_mat_sub, net.op("scale", {"X": out}, scale=0.5), rtol=ROUNDING)
    assert net.types == ["fusion_squared_mat_sub"] and net.block.ops[0].attr("scalar") == 0.5


def test_times_a_constant() -> None:
    net, out = squares()
    half = net.op("fill_constant", {}, shape=[1], dtype=6, value=0.5)
    net.check(fuse_squared_mat_sub, net.op("elementwise_mul", {"X": out, "Y": half}, axis=-1), rtol=ROUNDING)
    assert net.types == ["fill_constant", "fusion_squared_mat_sub"]


def test_a_scale_with_a_bias_stays_behind() -> None:
    net, out = squares()
    net.check(fuse_squared_mat_sub, net.op("scale", {"X": out}, scale=0.5, bias=1.0), rtol=ROUNDING)
    assert net.types == ["fusion_squared_mat_sub", "scale"]


def test_squares_of_something_else_stay() -> None:
    net, out = squares(other=True)
    net.check_left(fuse_squared_mat_sub, out, reason="are not those of the factors")


def test_products_that_scale_stay() -> None:
    net, out = squares(alpha=2.0)
    net.check_left(fuse_squared_mat_sub, out, reason="transposes or scales")


def test_a_fetched_square_stays() -> None:
    net, out = squares()
    inner = net.block.ops[1].output("Out")[0]
    net.check_left(fuse_squared_mat_sub, out, inner, reason=f"{inner} is fetched or must be kept")


def test_another_difference_is_no_candidate() -> None:
    net = Net()
    out = net.op("elementwise_sub", {"X": net.input("x", 3, 4), "Y": net.input("y", 3, 4)}, axis=-1)
    assert fuse_squared_mat_sub(net.program, net.scope, [out]).decisions == ()


# ---------------------------------------------------------------- sequence_conv
def sequence(bias: int = 5, **attrs: Any) -> tuple[Net, str]:
    net = Net()
    attrs = {"contextLength": 3, "contextStart": -1, "contextStride": 1, **attrs}
    x = net.input("x", 6, 4, lod=[[4, 2]])
    inputs = {"X": x, "Filter": net.parameter("w", 4 * int(attrs["contextLength"]), 5)}
    out = net.op("sequence_conv", inputs, **attrs)
    return net, net.op("relu", {"X": net.add(out, net.parameter("b", bias))})


@pytest.mark.parametrize("length, start", [(3, -1), (1, 0), (2, 0), (3, -2)])
def test_sequence_conv_with_bias_and_relu(length: int, start: int) -> None:
    net, out = sequence(contextLength=length, contextStart=start)
    net.check(fuse_sequence_conv, out, rtol=ROUNDING)
    assert net.types == ["fusion_seqconv_eltadd_relu"]


@pytest.mark.parametrize("length, start", [(3, 1), (2, -2)])
def test_a_context_beside_its_row_stays(length: int, start: int) -> None:
    net, out = sequence(contextLength=length, contextStart=start)
    net.check_left(fuse_sequence_conv, out, reason="and so leaves it out")


def test_one_number_for_all_columns_stays() -> None:
    net, out = sequence(bias=1)
    net.check_left(fuse_sequence_conv, out, reason="is not one number per column")


def test_a_fetched_sum_stays() -> None:
    net, out = sequence()
    inner = net.block.ops[1].output("Out")[0]
    net.check_left(fuse_sequence_conv, out, inner, reason=f"{inner} is fetched or must be kept")
