"""`fuse-fc` and `fuse-repeated-fc`."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.passes.inference.fuse_fc import fuse_fc, fuse_repeated_fc
from fluidtool.tensor import CPUPlace, create_lod_tensor
from tests.passes.inference.checking import CheckedNet as Net

ROUNDING = 1e-12


def layer(net: Net, x: str, rows: int, columns: int, name: str = "w", relu: bool = True, **attrs: Any) -> str:
    """mul + elementwise_add (+ relu)."""
    out = net.op("mul", {"X": x, "Y": net.parameter(name, rows, columns)}, **attrs)
    out = net.add(out, net.parameter(f"{name}.b", columns), axis=int(attrs.get("x_num_col_dims", 1)))
    return net.op("relu", {"X": out}) if relu else out


@pytest.mark.parametrize("relu, types", [(False, ["fc"]), (True, ["fc"])])
def test_mul_bias_and_relu_become_fc(relu: bool, types: list[str]) -> None:
    net = Net()
    net.check(fuse_fc, layer(net, net.input("x", 3, 4), 4, 6, relu=relu), rtol=ROUNDING)
    assert net.types == types
    assert net.block.ops[0].attr("activation_type") == ("relu" if relu else "")


@pytest.mark.parametrize("columns", [1, 2])
def test_inputs_of_more_dimensions(columns: int) -> None:
    net = Net()
    x = net.input("x", 2, 3, 4)
    net.check(fuse_fc, layer(net, x, 12 if columns == 1 else 4, 6, x_num_col_dims=columns), rtol=ROUNDING)
    assert net.types == ["fc"] and net.block.ops[0].attr("in_num_col_dims") == columns


def test_matmul_by_a_parameter() -> None:
    net = Net()
    out = net.op("matmul", {"X": net.input("x", 2, 3, 4), "Y": net.parameter("w", 4, 6)})
    net.check(fuse_fc, net.add(out, net.parameter("b", 6), -1), rtol=ROUNDING)
    assert net.types == ["fc"] and net.block.ops[0].attr("in_num_col_dims") == 2


@pytest.mark.parametrize("attrs", [{"transpose_Y": True}, {"alpha": 0.5}])
def test_a_matmul_that_does_more_stays(attrs: dict[str, Any]) -> None:
    net = Net()
    out = net.op("matmul", {"X": net.input("x", 3, 4), "Y": net.parameter("w", 4, 4)}, **attrs)
    net.check_left(fuse_fc, net.add(out, net.parameter("b", 4)), reason="transposes or scales")


def test_a_product_of_two_activations_stays() -> None:
    net = Net()
    out = net.op("mul", {"X": net.input("x", 3, 4), "Y": net.input("y", 4, 6)})
    net.check_left(fuse_fc, net.add(out, net.parameter("b", 6)), reason="y is not a parameter")


@pytest.mark.parametrize("shape, axis", [((3, 6), -1), ((1,), -1)])
def test_what_is_no_bias_stays(shape: tuple[int, ...], axis: int) -> None:
    net = Net()
    out = net.op("mul", {"X": net.input("x", 3, 4), "Y": net.parameter("w", 4, 6)})
    net.check_left(fuse_fc, net.add(out, net.parameter("b", *shape), axis), reason="is not one number per c")


def test_an_activation_as_the_bias_stays() -> None:
    net = Net()
    out = net.op("mul", {"X": net.input("x", 3, 4), "Y": net.parameter("w", 4, 6)})
    net.check_left(fuse_fc, net.add(out, net.input("y", 3, 6), -1), reason="y is not a parameter")


def test_a_fetched_product_stays() -> None:
    net = Net()
    out = layer(net, net.input("x", 3, 4), 4, 6, relu=False)
    inner = net.block.ops[0].output("Out")[0]
    net.check_left(fuse_fc, out, inner, reason=f"{inner} is fetched or must be kept")


def test_a_fetched_sum_keeps_the_relu() -> None:
    net = Net()
    out = layer(net, net.input("x", 3, 4), 4, 6)
    net.check(fuse_fc, out, net.block.ops[1].output("Out")[0], rtol=ROUNDING)
    assert net.types == ["fc", "relu"]


def test_an_input_that_is_written_in_between_stays() -> None:
    net = Net()
    x = net.input("x", 3, 4)
    out = net.op("mul", {"X": x, "Y": net.parameter("w", 4, 6)})
    net.op("relu", {"X": x}, x)
    net.check_left(fuse_fc, net.add(out, net.parameter("b", 6)), reason="x is written again")


def test_a_shared_weight_serves_both() -> None:
    net = Net()
    x, w, b = net.input("x", 3, 4), net.parameter("w", 4, 4), net.parameter("b", 4)
    hidden = net.op("tanh", {"X": net.add(net.op("mul", {"X": x, "Y": w}), b)})
    net.check(fuse_fc, net.add(net.op("mul", {"X": hidden, "Y": w}), b), rtol=ROUNDING)
    assert net.types == ["fc", "tanh", "fc"] and {"w", "b"} <= set(net.block.vars)


@pytest.mark.parametrize("type", ["mul", "matmul"])
def test_sequences_keep_their_lod(type: str) -> None:
    net = Net()
    out = net.op(type, {"X": net.input("x", 3, 4, lod=[[1, 2]]), "Y": net.parameter("w", 4, 6)})
    net.check(fuse_fc, net.op("relu", {"X": net.add(out, net.parameter("b", 6))}), rtol=ROUNDING)
    assert net.types == ["fc"]


# ---------------------------------------------------------------- rows
def row(count: int, last_relu: bool = True) -> tuple[Net, str]:
    """A row of fc, as `fuse-fc` leaves them."""
    net = Net()
    x = net.input("x", 3, 4)
    for index in range(count):
        net.parameter(f"w{index}", 4, 4)
        net.parameter(f"b{index}", 4)
        relu = "relu" if last_relu or index < count - 1 else ""
        x = net.op("fc", {"Input": x, "W": f"w{index}", "Bias": f"b{index}"}, activation_type=relu)
        net.block.vars[x].shape = (-1, 4)
    return net, x


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_row_becomes_one_operator(count: int) -> None:
    net, out = row(count)
    net.check(fuse_repeated_fc, out, rtol=ROUNDING)
    assert net.types == ["fusion_repeated_fc_relu"]
    assert net.block.ops[0].input("W") == [f"w{index}" for index in range(count)]


def test_a_row_of_sequences_keeps_the_lod() -> None:
    net, out = row(3)
    net.feed["x"] = create_lod_tensor(net.feed["x"], [[1, 2]], CPUPlace())
    net.check(fuse_repeated_fc, out, rtol=ROUNDING)
    assert net.types == ["fusion_repeated_fc_relu"]


def test_an_fc_without_relu_at_the_end_stays_behind() -> None:
    net, out = row(3, last_relu=False)
    net.check(fuse_repeated_fc, out, rtol=ROUNDING)
    assert net.types == ["fusion_repeated_fc_relu", "fc"]


def test_one_alone_is_no_row() -> None:
    net, out = row(1)
    assert fuse_repeated_fc(net.program, net.scope, [out]).decisions == ()


def test_a_fetched_step_divides_the_row() -> None:
    net, out = row(4)
    net.check(fuse_repeated_fc, out, net.block.ops[1].output("Out")[0], rtol=ROUNDING)
    assert net.types == ["fusion_repeated_fc_relu", "fusion_repeated_fc_relu"]


def test_a_step_with_two_readers_divides_the_row() -> None:
    net, out = row(3)
    other = net.op("tanh", {"X": net.block.ops[0].output("Out")[0]})
    net.check(fuse_repeated_fc, out, other, rtol=ROUNDING)
    assert net.types == ["fc", "fusion_repeated_fc_relu", "tanh"]
