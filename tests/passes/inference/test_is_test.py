"""`is-test`: set where it changes no number."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.passes.inference.is_test import set_is_test
from tests.passes.inference.checking import CheckedNet as Net


@pytest.mark.parametrize("type", ["conv2d", "depthwise_conv2d"])
def test_convolutions(type: str) -> None:
    net = Net()
    groups = 4 if type == "depthwise_conv2d" else 1
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 4, 4 // groups, 3, 3), type, groups=groups)
    net.check(set_is_test, out, rtol=0)
    assert net.block.ops[0].attr("is_test") is True


def test_an_operator_that_does_not_have_it_yet() -> None:
    net = Net()
    out = net.op("softmax", {"X": net.input("x", 3, 4)})
    net.check(set_is_test, out, rtol=0)
    assert net.block.ops[0].attr("is_test") is True


def test_operators_without_a_training_mode_are_no_candidates() -> None:
    net = Net()
    out = net.op("relu", {"X": net.input("x", 3, 4)})
    assert set_is_test(net.program, net.scope, [out]).decisions == ()
    assert not net.block.ops[0].has_attr("is_test")


@pytest.mark.parametrize("attrs, done", [({}, False), ({"use_global_stats": True}, True)])
def test_a_batch_norm_only_where_it_uses_its_running_statistics(attrs: dict[str, Any], done: bool) -> None:
    net = Net()
    net.batch_norm(net.input("x", 3, 4), 4, is_test=False, **attrs)
    result = set_is_test(net.program, net.scope)
    assert result.changed == done and net.block.ops[0].attr("is_test") == done
    assert done or "clone(for_test=True)" in result.left[0].reason


@pytest.mark.parametrize("rate, done", [(0.0, True), (0.5, False)])
def test_a_dropout_only_where_it_drops_nothing(rate: float, done: bool) -> None:
    net = Net()
    net.op("dropout", {"X": net.input("x", 3, 4)}, dropout_prob=rate, is_test=False)
    assert set_is_test(net.program, net.scope).changed == done


@pytest.mark.parametrize("wanted", [True, False])
def test_a_dropout_whose_mask_is_to_be_kept_is_left(wanted: bool) -> None:
    net = Net()
    out = net.op("dropout", {"X": net.input("x", 3, 4)}, more={"Mask": "mask"}, dropout_prob=0.0, is_test=False)
    keep = [out, "mask"] if wanted else [out]
    result = set_is_test(net.program, net.scope, keep)
    assert net.block.ops[0].attr("is_test") is not wanted
    assert [decision.reason for decision in result.left] == (
        ["its output Mask (mask) is used, but it is not computed in inference"] if wanted else []
    )
    assert [value.shape for value in net.run(*keep)] == [(3, 4)] * len(keep)


def test_a_dropout_whose_mask_another_operator_reads_is_left() -> None:
    net = Net()
    out = net.op("dropout", {"X": net.input("x", 3, 4)}, more={"Mask": "mask"}, dropout_prob=0.0, is_test=False)
    net.op("cast", {"X": "mask"}, in_dtype=2, out_dtype=5)
    assert not set_is_test(net.program, net.scope, [out]).changed


def test_a_dropout_whose_mask_is_persistable_is_left() -> None:
    net = Net()
    net.block.create_var(name="mask", dtype="uint8", persistable=True)
    out = net.op("dropout", {"X": net.input("x", 3, 4)}, more={"Mask": "mask"}, dropout_prob=0.0, is_test=False)
    assert not set_is_test(net.program, net.scope, [out]).changed


def test_quantisation_that_follows_its_input_is_left() -> None:
    net = Net()
    net.op("fake_quantize_moving_average_abs_max", {"X": net.input("x", 3, 4)}, is_test=False)
    assert not set_is_test(net.program, net.scope).changed


def test_a_program_with_gradients_is_left() -> None:
    net = Net()
    out = net.conv(net.input("x", 2, 4, 5, 5), net.parameter("w", 4, 4, 3, 3))
    net.op("relu_grad", {"Out": out, "Out@GRAD": out}, slot="X@GRAD")
    result = set_is_test(net.program, net.scope)
    assert not result.changed and result.left[0].reason == "the program computes gradients"


@pytest.mark.parametrize("wanted", [True, False])
def test_a_pooled_sequence_whose_places_are_wanted_is_left(wanted: bool) -> None:
    net = Net()
    x = net.input("x", 3, 4, lod=[[1, 2]])
    out = net.op("sequence_pool", {"X": x}, more={"MaxIndex": "places"}, pooltype="MAX")
    net.check(set_is_test, out, keep=[out, "places"] if wanted else [out], rtol=0)
    assert net.block.ops[0].get_attr("is_test", False) == (not wanted)
