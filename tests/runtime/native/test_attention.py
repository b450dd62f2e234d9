"""What the native engine makes of attention: one step, and factors and layouts that cost none of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from fluidtool.runtime.engines.native.library import Library
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import Net, check

pytestmark = pytest.mark.usefixtures("native")
HEADS = [0, 2, 1, 3]


def compiled(net: Net) -> NativeRegion:
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (specialization,) = region.specializations.kept.values()
    return specialization


def steps(net: Net) -> Counter[str]:
    return Counter(kernel_call.kind.name for kernel_call in compiled(net).kernel_calls)


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
    ("rows", "columns", "heads"), [(5, 8, 2), (16, 64, 4), (33, 144, 3), (128, 128, 2), (1, 32, 2), (300, 40, 1)]
)
@pytest.mark.parametrize("factor", [0.125, -0.5])
def test_it_is_one_step_with_factor_and_mask_and_heads_side_by_side(
    rows: int, columns: int, heads: int, factor: float
) -> None:
    net = Net()
    check(net, attention(net, rows, columns, heads, factor), scale=1.0)
    assert steps(net) == {"ATTENTION": 1}


def plain(
    net: Net,
    q: Sequence[int],
    k: Sequence[int],
    v: Sequence[int],
    mask: Sequence[int] = (),
    swap: tuple[bool, bool] = (True, False),
) -> tuple[str, str]:
    """(weights, sum of the values) of arrays of these shapes."""
    x = net.op("matmul", "Out", {"X": net.data(*q), "Y": net.data(*k)}, transpose_Y=swap[0], alpha=0.5)
    if mask:
        x = net.op("elementwise_add", "Out", {"X": x, "Y": net.data(*mask)})
    weights = net.op("softmax", "Out", {"X": x})
    return weights, net.op("matmul", "Out", {"X": weights, "Y": net.data(*v)}, transpose_Y=swap[1], alpha=1.0)


@pytest.mark.parametrize("mask", [(), (2, 3, 70, 9), (2, 1, 70, 9), (1, 3, 1, 1), (2, 1, 1, 9), (2, 3, 70, 1)])
def test_masks_of_every_shape(mask: Sequence[int]) -> None:
    net = Net()
    _, mixed = plain(net, (2, 3, 70, 20), (2, 3, 9, 20), (2, 3, 9, 7), mask)
    check(net, mixed, scale=1.0)
    assert steps(net) == {"ATTENTION": 1}


@pytest.mark.parametrize("swap_k", [False, True])
@pytest.mark.parametrize("swap_v", [False, True])
def test_keys_and_values_either_way_round(swap_k: bool, swap_v: bool) -> None:
    net = Net()
    k, v = (4, 37, 20) if swap_k else (4, 20, 37), (4, 33, 37) if swap_v else (4, 37, 33)
    _, mixed = plain(net, (4, 70, 20), k, v, swap=(swap_k, swap_v))
    check(net, net.op("relu", "Out", {"X": mixed}), scale=1.0)
    assert steps(net) == {"ATTENTION": 1}


def test_rows_in_parts_where_heads_are_few(native: Library) -> None:
    """Each part packs keys and values for itself."""
    net, threads = Net(), native.threads
    _, mixed = plain(net, (1, 1, 400, 64), (1, 1, 130, 64), (1, 1, 130, 64), (1, 1, 400, 130))
    try:
        native.use_threads(2)
        check(net, mixed, scale=1.0)
    finally:
        native.use_threads(threads)
    (step,) = compiled(net).kernel_calls
    assert step.tasks == 8


def test_the_scores_of_long_sequences_are_not_in_memory() -> None:
    """2048 rows of as many scores would be 16 MiB."""
    net = Net()
    _, mixed = plain(net, (1, 2048, 8), (1, 2048, 8), (1, 2048, 8))
    check(net, mixed, scale=1.0)
    assert compiled(net).frames[0].arena.nbytes < 2 << 20


@pytest.mark.parametrize("why", ["the weights are fetched", "more keys than a cache holds the scores of"])
def test_when_it_stays_in_steps(why: str) -> None:
    net = Net()
    keys = 9 if why.startswith("the") else 2049
    weights, mixed = plain(net, (1, 5, 8), (1, keys, 8), (1, keys, 8))
    check(net, mixed, *([weights] if keys == 9 else []), scale=1.0)
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
