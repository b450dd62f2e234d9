"""`fuse-gelu`: gelu written out, in whatever order, becomes one operator, to 1e-5."""

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.gelu import fuse_gelu
from fluidtool.proto.enums import VarType
from tests.passes.inference.net import Net, reasons


def start() -> Net:
    net = Net()
    net.data("x", net.numbers(4, 6) * 3)
    return net


def scale(net: Net, source: str, target: str, factor: float = 1.0, bias: float = 0.0) -> None:
    net.op("scale", {"X": [source]}, {"Out": [target]}, scale=factor, bias=bias)


def product(net: Net, left: str, right: str, target: str, kind: str = "mul") -> None:
    net.op(f"elementwise_{kind}", {"X": [left], "Y": [right]}, {"Out": [target]}, axis=-1)


def erf_form() -> Net:
    """x * 0.5 * (1 + erf(x / sqrt 2)), as layers write it."""
    net = start()
    scale(net, "x", "half", 0.5)
    scale(net, "x", "inner", sqrt(0.5))
    net.op("erf", {"X": ["inner"]}, {"Out": ["f"]})
    scale(net, "f", "g", 1.0, 1.0)
    product(net, "half", "g", "out")
    return net


def erf_with_constants() -> Net:
    """0.5 * (x * (1 + erf(x / c))) with c and 1 as fill_constant and parameter."""
    net = start()
    net.op("fill_constant", {}, {"Out": ["root"]}, shape=[1], value=sqrt(2.0), dtype=int(VarType.FP32))
    net.parameter("one", np.ones(1, np.float32))
    product(net, "x", "root", "inner", "div")
    net.op("erf", {"X": ["inner"]}, {"Out": ["f"]})
    product(net, "f", "one", "g", "add")
    product(net, "x", "g", "h")
    scale(net, "h", "out", 0.5)
    return net


def tanh_form(cube: str = "pow") -> Net:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    net = start()
    if cube == "pow":
        net.op("pow", {"X": ["x"]}, {"Out": ["cube"]}, factor=3.0)
    else:
        net.op("square", {"X": ["x"]}, {"Out": ["xx"]})
        product(net, "xx", "x", "cube")
    scale(net, "cube", "small", 0.044715)
    product(net, "x", "small", "sum", "add")
    scale(net, "sum", "inner", sqrt(2 / pi))
    net.op("tanh", {"X": ["inner"]}, {"Out": ["f"]})
    scale(net, "f", "g", 0.5, 0.5)
    product(net, "x", "g", "out")
    return net


def tanh_of_product() -> Net:
    """The same with x taken out: tanh(x * 0.7978845608 * (1 + 0.044715 x * x))."""
    net = start()
    product(net, "x", "x", "xx")
    scale(net, "xx", "y", 0.044715, 1.0)
    scale(net, "x", "z", 0.7978845608)
    product(net, "z", "y", "inner")
    net.op("tanh", {"X": ["inner"]}, {"Out": ["f"]})
    scale(net, "f", "g", 1.0, 1.0)
    product(net, "x", "g", "h")
    scale(net, "h", "out", 0.5)
    return net


@pytest.mark.parametrize(
    "form", [erf_form, erf_with_constants, tanh_form, lambda: tanh_form("square"), tanh_of_product]
)
def test_every_order_of_the_arithmetic_becomes_gelu(form: Any) -> None:
    net = form()
    before, approximate = net.run("out")[0], "tanh" in net.types
    assert fuse_gelu(net.program, net.scope).changed
    assert [kind for kind in net.types if kind != "fill_constant"] == ["gelu"]
    assert net.block.ops[-1].attr("approximate") is approximate
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)
    assert not fuse_gelu(net.program, net.scope).changed


def test_x_may_itself_be_computed() -> None:
    net = erf_form()
    net.block.insert_op(0, type="scale", inputs={"X": ["data"]}, outputs={"Out": ["x"]}, attrs={"scale": 2.0})
    net.data("data", net.numbers(4, 6))
    del net.feeds["x"]
    before = net.run("out")[0]
    assert fuse_gelu(net.program, net.scope).changed
    assert net.types == ["scale", "gelu"]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)


def left(net: Net, keep: tuple[str, ...] = ()) -> list[str]:
    result = fuse_gelu(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


NOT_GELU = ["the arithmetic around erf is not 0.5 x (1 + erf(x / sqrt 2)) so far"]


def test_other_constants_are_not_gelu() -> None:
    for index, attrs in ((0, {"scale": 0.6}), (1, {"scale": 0.7}), (3, {"bias": 1.1}), (3, {"scale": 2.0})):
        net = erf_form()
        for name, value in attrs.items():
            net.block.ops[index].set_attr(name, value)
        assert left(net) == NOT_GELU


def test_another_factor_than_x_is_not_gelu() -> None:
    net = erf_form()
    net.data("y", net.numbers(4, 6))
    net.block.ops[0].set_input("X", ["y"])
    assert left(net) == NOT_GELU


def test_a_product_with_tanh_is_no_candidate() -> None:
    net = start()
    net.op("tanh", {"X": ["x"]}, {"Out": ["f"]})
    product(net, "x", "f", "out")
    assert left(net) == []


def test_an_argument_with_another_constant_is_no_candidate() -> None:
    net = tanh_form()
    net.block.ops[1].set_attr("scale", 0.05)
    assert left(net) == []


def test_a_fetched_erf_stays() -> None:
    assert left(erf_form(), ("f",)) == ["f is fetched or must be kept"]


def test_a_second_reader_within_keeps_all() -> None:
    net = erf_form()
    net.op("relu", {"X": ["g"]}, {"Out": ["other"]})
    assert left(net) == ["g is also read by relu"]


def test_an_input_that_is_overwritten_stays() -> None:
    net = erf_form()
    net.block.insert_op(3, type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert left(net) == ["x is written again before the last operator of the group"]


def test_float16_stays() -> None:
    net = erf_form()
    net.block.var("x").dtype = VarType.FP16
    assert left(net) == ["x is not declared float32 or float64"]


def test_a_factor_that_the_program_computes_is_not_gelu() -> None:
    net = erf_form()
    net.data("factor", net.numbers(1))
    net.block.ops[0].set_input("ScaleTensor", ["factor"])
    assert left(net) == NOT_GELU


def test_operators_of_a_sub_block_are_fused_there() -> None:
    net = start()
    outer = net.block
    net.op("fill_constant", {}, {"Out": ["yes"]}, shape=[1], value=1.0, dtype=int(VarType.BOOL))
    scale(net, "x", "out", 0.0)
    net.block = net.program._create_block()
    scale(net, "x", "half", 0.5)
    scale(net, "x", "inner", sqrt(0.5))
    net.op("erf", {"X": ["inner"]}, {"Out": ["f"]})
    scale(net, "f", "g", 1.0, 1.0)
    product(net, "half", "g", "out")
    body, net.block = net.block, outer
    net.program._rollback()
    net.block.create_var(name="branch", type=VarType.STEP_SCOPES)
    attrs = {"sub_block": body, "is_scalar_condition": True}
    outputs = {"Out": ["out"], "Scope": ["branch"]}
    net.block.append_op(
        type="conditional_block", inputs={"Cond": ["yes"], "Input": ["x"]}, outputs=outputs, attrs=attrs
    )
    before = net.run("out")[0]
    assert fuse_gelu(net.program, net.scope).changed
    assert [op.type for op in body.ops] == ["gelu"]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)
