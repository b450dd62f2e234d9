"""`drop-dropout`: what dropout does in inference, without dropout."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.passes.inference.dropouts import drop_dropout
from tests.passes.inference.checking import CheckedNet


def dropout(dtype: str = "float32", **attrs: Any) -> tuple[CheckedNet, str]:
    net = CheckedNet(dtype)
    x = net.op("relu", {"X": net.input("x", 3, 4)})
    attrs = {"is_test": True, "dropout_prob": 0.3, **attrs}
    out = net.op("dropout", {"X": x}, more={"Mask": "mask"}, **attrs)
    return net, net.op("tanh", {"X": out})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_upscale_in_train_vanishes(dtype: str) -> None:
    net, out = dropout(dtype, dropout_implementation="upscale_in_train")
    net.check(drop_dropout, out, rtol=0)
    assert net.types == ["relu", "tanh"] and "mask" not in net.block.vars


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attrs", [{}, {"dropout_implementation": "downgrade_in_infer"}])
def test_downgrade_in_infer_becomes_a_scale(dtype: str, attrs: dict[str, Any]) -> None:
    net, out = dropout(dtype, **attrs)
    net.check(drop_dropout, out, rtol=0)
    assert net.types == ["relu", "scale", "tanh"]
    assert net.block.ops[1].attr("scale") == pytest.approx(0.7)


def test_a_fetched_result_is_written_by_the_operator_before() -> None:
    net, _ = dropout(dropout_implementation="upscale_in_train")
    result = net.block.ops[1].output("Out")[0]
    net.block.ops.pop()
    net.check(drop_dropout, result, rtol=0)
    assert net.types == ["relu"]


def test_dropout_in_training_stays() -> None:
    net, out = dropout(is_test=False)
    result = drop_dropout(net.program, net.scope, [out])
    assert not result.changed and "clone(for_test=True)" in result.left[0].reason


@pytest.mark.parametrize("implementation", ["upscale_in_train", "downgrade_in_infer"])
def test_a_wanted_mask_keeps_it(implementation: str) -> None:
    net, out = dropout(dropout_implementation=implementation)
    net.check_left(drop_dropout, out, keep=[out, "mask"], reason="its output Mask (mask) is used")


def test_other_operators_are_no_candidates() -> None:
    net = CheckedNet()
    out = net.op("relu", {"X": net.input("x", 3, 4)})
    assert drop_dropout(net.program, net.scope, [out]).decisions == ()
