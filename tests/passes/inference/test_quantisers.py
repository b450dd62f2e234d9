"""Rewrites that round otherwise leave alone what a quantiser reads later on."""

import numpy as np

from fluidtool.passes.inference.dead_code import drop_dead
from fluidtool.passes.inference.gelu import fuse_gelu
from fluidtool.passes.inference.identities import drop_identity
from fluidtool.passes.inference.quantisers import REASON, is_quantiser
from tests.passes.inference.net import Net, reasons
from tests.passes.inference.test_gelu import erf_form


def quantised(source: str = "out") -> Net:
    """gelu written out; `source` is quantised after one more operator."""
    net = erf_form()
    net.op("relu", {"X": [source]}, {"Out": ["r"]})
    net.parameter("step", np.ones(1, np.float32))
    inputs, outputs = {"X": ["r"], "InScale": ["step"]}, {"Out": ["q"], "OutScale": ["step"]}
    net.op("fake_quantize_dequantize_moving_average_abs_max", inputs, outputs, bit_length=8, is_test=True)
    return net


def test_what_is_quantised_later_is_left() -> None:
    net = quantised()
    result = fuse_gelu(net.program, net.scope, ["q"])
    assert not result.changed and reasons(result) == [REASON]


def test_what_is_quantised_beside_is_rewritten() -> None:
    net = quantised("x")
    assert fuse_gelu(net.program, net.scope, ["q", "out"]).changed


def test_rewrites_that_keep_every_bit_go_on() -> None:
    net = quantised()
    net.block.insert_op(0, type="scale", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs={"scale": 1.0})
    net.block.create_var(name="y", shape=[-1, 6], dtype="float32")
    net.block.ops[1].set_input("X", ["y"])
    assert drop_identity(net.program, net.scope, ["q"]).changed
    assert not drop_dead(net.program, net.scope, ["q"]).changed


def test_dequantisers_do_not_round() -> None:
    names = ["fake_quantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max", "quantize", "quantize_linear"]
    assert all(map(is_quantiser, names))
    assert not any(map(is_quantiser, ["fake_dequantize_max_abs", "dequantize", "dequantize_linear", "relu"]))
