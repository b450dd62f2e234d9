"""`fuse-sum-of-products`: a fully connected layer of several inputs becomes one product, to 1e-5."""

from typing import Any

import numpy as np
import pytest

from fluidtool.passes.inference.summed_products import fuse_sum_of_products
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from tests.passes.inference.net import Net, reasons


def products(
    sizes: tuple[int, ...] = (3, 5),
    *,
    biases: tuple[int, ...] = (),
    add: str = "sum",
    rows: tuple[int, ...] = (4,),
    dtype: str = "float32",
    lod: list[list[int]] | None = None,
) -> Net:
    """out = the sum of x_i w_i (+ b_i for i in biases)."""
    net, terms = Net(), []
    for index, size in enumerate(sizes):
        net.data(f"x{index}", net.numbers(*rows, size, dtype=dtype), lod)
        net.parameter(f"w{index}", net.numbers(size, 6, dtype=dtype))
        inputs = {"X": [f"x{index}"], "Y": [f"w{index}"]}
        net.op("mul", inputs, {"Out": [f"p{index}"]}, x_num_col_dims=len(rows), y_num_col_dims=1)
        terms.append(f"p{index}")
        if index in biases:
            net.parameter(f"b{index}", net.numbers(6, dtype=dtype))
            inputs = {"X": [f"p{index}"], "Y": [f"b{index}"]}
            net.op("elementwise_add", inputs, {"Out": [f"q{index}"]}, axis=len(rows))
            terms[-1] = f"q{index}"
    if add == "sum":
        net.op("sum", {"X": terms}, {"Out": ["out"]})
    else:
        net.op(add, {"X": [terms[0]], "Y": [terms[1]]}, {"Out": ["out"]}, axis=-1)
    return net


FORMS: list[dict[str, Any]] = [
    {},
    {"sizes": (3, 5, 2)},
    {"add": "elementwise_add"},
    {"biases": (1,)},
    {"biases": (0, 1)},
    {"rows": (2, 3)},
    {"rows": (2, 3), "biases": (0,)},
    {"dtype": "float64"},
    {"lod": [[0, 1, 4]]},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_sum_of_products_becomes_one(form: dict[str, Any]) -> None:
    net = products(**form)
    before = Executor().run(net.program, net.feeds, ["out"], net.scope)[0]
    assert fuse_sum_of_products(net.program, net.scope, ["out"]).changed
    assert net.types == ["concat", "mul", *["elementwise_add"] * bool(form.get("biases"))]
    after = Executor().run(net.program, net.feeds, ["out"], net.scope)[0]
    np.testing.assert_allclose(after.numpy(), before.numpy(), rtol=1e-5, atol=1e-6)
    assert after.lod() == before.lod()
    assert verify(net.program) == []
    assert not fuse_sum_of_products(net.program, net.scope, ["out"]).changed


def test_shared_weights_keep_their_numbers() -> None:
    net = products((3, 3))
    net.block.ops[1].set_input("Y", ["w0"])
    weight = net.scope.find_var("w0").value.numpy().copy()
    before = net.run("out")[0]
    assert fuse_sum_of_products(net.program, net.scope, ["out"]).changed
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(net.scope.find_var("w0").value.numpy(), weight)


def left(net: Net, *keep: str) -> list[str]:
    result = fuse_sum_of_products(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


def test_a_fetched_product_stays() -> None:
    assert left(products(), "p0") == ["p0 is fetched or must be kept"]


def test_a_product_with_another_reader_stays() -> None:
    net = products()
    net.op("relu", {"X": ["p1"]}, {"Out": ["other"]})
    assert left(net) == ["p1 is also read by relu"]


def test_an_input_that_is_overwritten_stays() -> None:
    net = products()
    net.block.insert_op(1, type="relu", inputs={"X": ["x0"]}, outputs={"Out": ["x0"]})
    assert left(net) == ["x0 is written again before the last operator of the group"]


def test_a_product_that_is_added_to_itself_stays() -> None:
    net = products()
    net.block.ops[-1].set_input("X", ["p0", "p0"])
    assert left(net) == ["one product is added several times"]


def test_images_stay() -> None:
    net = products(rows=(4,))
    net.block.var("x0").shape = [-1, 3, 1]
    assert left(net) == ["the product of x0 and w0 takes several dimensions together"]


def test_a_bias_along_the_rows_stays() -> None:
    net = products(biases=(0,))
    net.block.ops[1].set_attr("axis", 0)
    assert left(net) == ["b0 of shape (6,) is not one number for each position of the last dimension"]


def test_half_precision_stays() -> None:
    net = products()
    net.block.var("x1").dtype = VarType.FP16
    assert left(net) == ["x1 is not declared float32 or float64"]


def test_weights_that_are_written_or_computed_are_no_candidates() -> None:
    net = products()
    net.op("scale", {"X": ["w1"]}, {"Out": ["w1"]}, scale=2.0)
    assert left(net) == []
    net = products()
    net.data("more", net.numbers(4, 6))
    net.block.ops[-1].set_input("X", ["p0", "p1", "more"])
    assert left(net) == []


def test_a_new_parameter_of_a_sub_block_is_an_input_of_the_operator_around_it() -> None:
    net = Net()
    outer = net.block
    net.data("x", net.numbers(4, 3))
    for name in ("v", "w"):
        net.parameter(name, net.numbers(3, 6))
    net.op("fill_constant", {}, {"Out": ["yes"]}, shape=[1], value=1.0, dtype=int(VarType.BOOL))
    net.op("mul", {"X": ["x"], "Y": ["v"]}, {"Out": ["out"]})
    body = net.block = net.program._create_block()
    net.op("mul", {"X": ["x"], "Y": ["v"]}, {"Out": ["p"]})
    net.op("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["q"]})
    net.op("sum", {"X": ["p", "q"]}, {"Out": ["s"]})
    net.op("relu", {"X": ["s"]}, {"Out": ["out"]})
    net.program._rollback()
    net.block = outer
    net.block.create_var(name="branch", type=VarType.STEP_SCOPES)
    attrs = {"sub_block": body, "is_scalar_condition": True}
    inputs, outputs = {"Cond": ["yes"], "Input": ["x", "v", "w"]}, {"Out": ["out"], "Scope": ["branch"]}
    branch = net.block.append_op(type="conditional_block", inputs=inputs, outputs=outputs, attrs=attrs)
    before = net.run("out")[0]
    assert fuse_sum_of_products(net.program, net.scope, ["out"]).changed
    assert branch.input("Input") == ["x", "v", "w", "v_stacked"]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-5, atol=1e-6)
