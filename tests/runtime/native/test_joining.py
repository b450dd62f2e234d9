"""Products of the same rows are computed as one, and views need no copy where strides can say them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.runtime.engines.native.abi import Product
from fluidtool.runtime.engines.native.layouts import view_strides
from fluidtool.runtime.partition import Region
from tests.runtime.native.checking import Net, check

pytestmark = pytest.mark.usefixtures("native")
few = settings(max_examples=100, deadline=None)


def products(net: Net, x: str, *columns: int, bias: bool = True) -> list[str]:
    found = []
    for number, count in enumerate(columns):
        y = net.op("mul", "Out", {"X": x, "Y": net.parameter(40, count)}, x_num_col_dims=2)
        if bias or number:
            y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(count)}, axis=2)
        found.append(y)
    return found


def product_steps(net: Net) -> int:
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (specialization,) = region.specializations.kept.values()
    return sum(kernel_call.kind.name == "PRODUCT" for kernel_call in specialization.kernel_calls)


def attention(net: Net, q: str, k: str, v: str, heads: int, rows: int) -> str:
    def split(x: str, columns: int) -> str:
        x = net.op("reshape2", "Out", {"X": x}, "XShape", shape=[0, rows, heads, columns // heads])
        return net.op("transpose2", "Out", {"X": x}, "XShape", axis=[0, 2, 1, 3])

    weights = net.op("matmul", "Out", {"X": split(q, 64), "Y": split(k, 64)}, transpose_Y=True, alpha=0.1)
    mixed = net.op("matmul", "Out", {"X": net.op("softmax", "Out", {"X": weights}), "Y": split(v, 64)})
    back = net.op("transpose2", "Out", {"X": mixed}, "XShape", axis=[0, 2, 1, 3])
    return net.op("reshape2", "Out", {"X": back}, "XShape", shape=[0, rows, 64])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("images", [1, 3])
def test_queries_keys_and_values_are_one_product(images: int, bias: bool) -> None:
    net = Net()
    q, k, v = products(net, net.data(images, 7, 40), 64, 64, 64, bias=bias)
    check(net, attention(net, q, k, v, 4, 7), scale=8.0)
    assert product_steps(net) == 1


def test_products_of_one_row_are_joined() -> None:
    net = Net()
    a, b = products(net, net.data(1, 1, 40), 32, 96)
    outs = [net.op(act, "Out", {"X": x}) for act, x in (("softmax", a), ("softmax", b))]
    check(net, *outs)
    assert product_steps(net) == 1


@pytest.mark.parametrize("why", ["columns that leave a vector open", "a result that is fetched", "other activations"])
def test_products_that_stay_apart(why: str) -> None:
    net = Net()
    a, b = products(net, net.data(2, 5, 40), 64, 33 if why.startswith("columns") else 64)
    if why == "other activations":
        a = net.op("relu", "Out", {"X": a})
    outs = [net.op("softmax", "Out", {"X": x}) for x in (a, b)]
    check(net, *outs, *([a] if "fetched" in why else []), scale=8.0)
    assert product_steps(net) == 2


@pytest.mark.parametrize("shape", [(2, 8), (4, 16), (2, 2, 8)])
def test_products_whose_columns_are_several_dimensions_stay_apart(shape: tuple[int, ...]) -> None:
    net = Net()
    x = net.data(3, 5, 40)
    a, b = (net.op("mul", "Out", {"X": x, "Y": net.parameter(40, *shape)}, x_num_col_dims=2) for _ in range(2))
    shifted = net.op("elementwise_add", "Out", {"X": a, "Y": net.data(*shape)}, axis=2)
    turned = net.op("transpose2", "Out", {"X": b}, "XShape", axis=[1, 2, 0, *range(3, 2 + len(shape))])
    check(net, shifted, turned, scale=8.0)
    assert product_steps(net) == 2


def alike(net: Net, x: str, weights: Sequence[Any], shifts: Sequence[Any]) -> list[str]:
    """Products of the same rows, each with parameters of its own that have these numbers."""
    found = []
    for weight, shift in zip(weights, shifts, strict=True):
        y = net.op("mul", "Out", {"X": x, "Y": net.parameter(of=weight.copy())}, x_num_col_dims=2)
        if shift is not None:
            y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(of=shift.copy())}, axis=2)
        found.append(net.op("softmax", "Out", {"X": net.op("tanh", "Out", {"X": y})}))
    return found


def numbers(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("columns", [64, 33])
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_the_same_rows_by_the_same_numbers_are_computed_once(columns: int, bias: bool) -> None:
    net, weight, shift = Net(), numbers(40, columns), numbers(columns) if bias else None
    check(net, *alike(net, net.data(2, 5, 40), [weight] * 3, [shift] * 3), scale=8.0)
    assert product_steps(net) == 1
    assert columns_of_products(net) == [columns]


def test_attention_by_the_same_numbers() -> None:
    net = Net()
    x = net.data(2, 7, 40)
    weight = numbers(40, 64)
    q, k, v = (net.op("mul", "Out", {"X": x, "Y": net.parameter(of=weight)}, x_num_col_dims=2) for _ in range(3))
    check(net, attention(net, q, k, v, 4, 7), scale=8.0)
    assert columns_of_products(net) == [64]


@pytest.mark.parametrize("differs", ["the last weight", "a shift", "whether there is a shift", "the rows"])
def test_products_by_other_numbers_are_all_computed(differs: str) -> None:
    net, weight, shift = Net(), numbers(40, 33), numbers(33)
    other_weight, other_shift, x = weight.copy(), shift.copy(), net.data(2, 5, 40)
    if differs == "the last weight":
        other_weight[-1, -1] += 1
    elif differs == "a shift":
        other_shift[3] += 1
    outs = alike(net, x, [weight], [shift])
    if differs == "the rows":
        x = net.data(2, 5, 40)
    check(
        net, *outs, *alike(net, x, [other_weight], [None if differs.startswith("whether") else other_shift]), scale=8.0
    )
    assert columns_of_products(net) == [33, 33]


def test_a_result_that_is_fetched_is_computed_though_another_is_the_same() -> None:
    net, weight = Net(), numbers(40, 64)
    x = net.data(2, 5, 40)
    outs = [net.op("mul", "Out", {"X": x, "Y": net.parameter(of=weight)}, x_num_col_dims=2) for _ in range(2)]
    check(net, *outs, scale=8.0)


def columns_of_products(net: Net) -> list[int]:
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (specialization,) = region.specializations.kept.values()
    arguments = (kernel_call.arguments for kernel_call in specialization.kernel_calls)
    return [found.columns for found in arguments if isinstance(found, Product)]


def reshaped(shape: tuple[int, ...], order: list[int], new: tuple[int, ...]) -> None:
    array: Any = np.arange(prod(shape)).reshape(shape).transpose(order)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    found = view_strides(array.shape, strides, new)
    moved = array.reshape(new)
    if found is None:
        assert not np.shares_memory(moved, array)
        return
    view = np.lib.stride_tricks.as_strided(array, new, [stride * array.itemsize for stride in found])
    np.testing.assert_array_equal(view, moved)


@few
@given(st.data())
def test_views(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    order = data.draw(st.permutations(range(len(shape))))
    left, new = prod(shape), []
    while left > 1 and len(new) < 4:
        new.append(data.draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= new[-1]
    reshaped(shape, order, (*new, left))


def test_products_know_the_weights_that_are_read_next() -> None:
    net = Net()
    x = net.data(3, 40)
    for rows, columns in ((40, 100), (100, 33), (33, 8)):
        x = net.op("mul", "Out", {"X": x, "Y": net.parameter(rows, columns)})
    check(net, x, scale=64.0)
    (region,) = (step for step in net.plan.work if isinstance(step, Region))
    (specialization,) = region.specializations.kept.values()
    arguments = (kernel_call.arguments for kernel_call in specialization.kernel_calls)
    products = [found for found in arguments if isinstance(found, Product)]
    assert [product.next_weights for product in products] == [products[1].weights, products[2].weights, None]
