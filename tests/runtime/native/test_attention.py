"""What the native engine makes of attention: factors and layouts that cost no step of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from fluidtool.runtime.engines.native.stretches import Stretch
from tests.runtime.native.checking import Net, check

pytestmark = pytest.mark.usefixtures("native")
HEADS = [0, 2, 1, 3]


def steps(net: Net) -> Counter[str]:
    (stretch,) = (step for step in net.plan.work if isinstance(step, Stretch))
    (form,) = stretch.forms.values()
    return Counter(draft.kind.name for draft in form.compiled.drafts)


def attention(net: Net, rows: int, columns: int, heads: int, factor: float, axes: Sequence[int] = HEADS) -> str:
    def split(x: str) -> str:
        x = net.op("reshape2", "Out", {"X": x}, "XShape", shape=[0, rows, heads, columns // heads])
        return net.op("transpose2", "Out", {"X": x}, "XShape", axis=HEADS)

    query, key, value = (split(net.data(2, rows, columns)) for _ in range(3))
    query = net.op("scale", "Out", {"X": query}, scale=factor, bias=0.0, bias_after_scale=True)
    weights = net.op("matmul", "Out", {"X": query, "Y": key}, transpose_Y=True, alpha=1.0)
    masked = net.op("elementwise_add", "Out", {"X": weights, "Y": net.data(2, 1, 1, rows)})
    mixed = net.op("matmul", "Out", {"X": net.op("softmax", "Out", {"X": masked}), "Y": value}, alpha=1.0)
    return net.op("transpose2", "Out", {"X": mixed}, "XShape", axis=list(axes))


@pytest.mark.parametrize(
    ("rows", "columns", "heads"), [(5, 8, 2), (16, 64, 4), (33, 144, 3), (128, 128, 2), (1, 32, 2)]
)
@pytest.mark.parametrize("factor", [0.125, -0.5])
def test_a_factor_goes_into_the_softmax_and_heads_are_stored_side_by_side(
    rows: int, columns: int, heads: int, factor: float
) -> None:
    net = Net()
    check(net, attention(net, rows, columns, heads, factor), scale=1.0)
    assert steps(net) == {"PACK": 2, "PRODUCT": 2, "SOFTMAX": 1}


def test_a_factor_that_others_read_stays() -> None:
    net = Net()
    x, y = net.data(2, 3, 7, 20), net.data(2, 3, 9, 20)
    scaled = net.op("scale", "Out", {"X": x}, scale=0.5, bias=0.0, bias_after_scale=True)
    product = net.op("matmul", "Out", {"X": scaled, "Y": y}, transpose_Y=True, alpha=1.0)
    check(net, product, scaled, scale=1.0)
    assert steps(net)["ELEMENTWISE"] == 1


def test_a_shift_before_a_product_stays() -> None:
    net = Net()
    scaled = net.op("scale", "Out", {"X": net.data(2, 7, 20)}, scale=0.5, bias=1.0, bias_after_scale=True)
    check(net, net.op("matmul", "Out", {"X": scaled, "Y": net.data(2, 20, 9)}, alpha=1.0), scale=8.0)
    assert steps(net)["ELEMENTWISE"] == 1


def test_axes_in_another_order_are_copied() -> None:
    net = Net()
    check(net, attention(net, 8, 32, 2, 0.25, axes=[0, 1, 3, 2]), scale=1.0)
    assert steps(net)["COPY"] == 1
