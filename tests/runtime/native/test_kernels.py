"""Every native kernel gives numpy's numbers, on shapes that fit its blocks and on those that do not."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fluidtool.runtime.engines.native.library import Library
from tests.runtime.native.checking import Net, calls_of, check

pytestmark = pytest.mark.usefixtures("native")
sizes = st.integers(1, 20)
few = settings(max_examples=60, deadline=None)


@few
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    channels, filters = draw(sizes), draw(sizes)
    window = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    strides, dilations = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    pads = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    image = draw(st.tuples(sizes, sizes))
    reach = [d * (w - 1) + 1 for d, w in zip(dilations, window, strict=True)]
    assume(image[0] + pads[0] + pads[1] >= reach[0] and image[1] + pads[2] + pads[3] >= reach[1])
    x = net.data(draw(st.integers(1, 3)), channels, *image)
    weights = net.parameter(filters, channels, *window)
    y = net.conv(x, weights, strides=list(strides), dilations=list(dilations), paddings=pads)
    check(net, y, scale=(channels * prod(window)) ** 0.5)


@pytest.mark.parametrize("columns", [15, 16, 17, 33, 48])
def test_convolution_of_a_picture(columns: int) -> None:
    """Its three channels come to lie side by side, a vector of columns at a time, then what is left."""
    net = Net()
    x, weights = net.data(2, 3, 5, columns), net.parameter(8, 3, 3, 3)
    check(net, net.conv(x, weights, strides=[2, 2], paddings=[1, 1]))


@pytest.mark.parametrize("columns", [1, 7, 14, 15, 28, 31])
def test_convolution_of_pixels_of_narrow_and_wide_images(columns: int) -> None:
    net = Net()
    x, weights = net.data(1, 48, 3, columns), net.parameter(32, 48, 1, 1)
    check(net, net.conv(x, weights))


@pytest.mark.parametrize(("channels", "size", "whole"), [(512, 14, True), (512, 28, False), (256, 28, False)])
def test_an_image_is_cut_unless_it_fits_into_a_cache_and_the_weights_do_not(
    channels: int, size: int, whole: bool
) -> None:
    net = Net()
    y = net.conv(net.data(1, channels, size, size), net.parameter(channels, channels, 1, 1))
    net.run("native", y)
    (call,) = (each.arguments for each in calls_of(net) if each.kind.name == "CONVOLUTION")
    assert (call.row_parts * call.column_parts == 1) is whole


@few
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(4, 9), st.integers(1, 2))
def test_convolution_in_groups(groups: int, inner: int, outer: int, size: int, stride: int) -> None:
    net = Net()
    x, weights = net.data(2, 16 * groups * inner, size, size), net.parameter(16 * groups * outer, 16 * inner, 3, 3)
    check(net, net.conv(x, weights, groups=groups, strides=[stride] * 2, paddings=[1, 1]))


@few
@given(sizes, sizes, sizes, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_depthwise_convolution(channels: int, rows: int, columns: int, window: int, stride: int, named: bool) -> None:
    net = Net()
    x, weights = net.data(2, channels, rows + 3, columns + 3), net.parameter(channels, 1, window, window)
    kind = "depthwise_conv2d" if named else "conv2d"
    attrs: dict[str, Any] = {"groups": channels, "strides": [stride] * 2, "paddings": [window // 2] * 2}
    check(net, net.conv(x, weights, type=kind, **attrs))


@few
@given(st.data())
def test_pooling(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    window = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    pads = [draw(st.integers(0, size // 2)) for size in window]
    x = net.data(draw(st.integers(1, 2)), draw(sizes), window[0] + draw(sizes), window[1] + draw(sizes))
    exclusive = draw(st.booleans())
    attrs = {
        "pooling_type": draw(st.sampled_from(["max", "avg"])),
        "ksize": window,
        "strides": [draw(st.integers(1, 3)), draw(st.integers(1, 3))],
        "paddings": pads,
        "exclusive": exclusive,
        "ceil_mode": draw(st.booleans()) and exclusive,
    }
    check(net, net.op("pool2d", "Out", {"X": x}, **attrs))


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("max", {"global_pooling": True}),
        ("max", {"global_pooling": True, "ksize": [-1, -1]}),  # fluid.layers.pool2d without a size
        ("avg", {"global_pooling": True}),
        ("avg", {"adaptive": True, "ksize": [3, 2]}),
        ("avg", {"adaptive": True, "ksize": [1, 1]}),
    ],
)
def test_pooling_of_everything_and_of_parts(kind: str, attrs: dict[str, Any]) -> None:
    net = Net()
    x = net.data(2, 11, 7, 9)
    settled = {"pooling_type": kind, "ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0]} | attrs
    check(net, net.op("pool2d", "Out", {"X": x}, **settled))


@few
@given(sizes, sizes, st.integers(1, 300), st.booleans())
def test_mul(rows: int, columns: int, depth: int, three: bool) -> None:
    net = Net()
    x = net.data(rows, 2, depth) if three else net.data(rows, depth)
    check(
        net,
        net.op("mul", "Out", {"X": x, "Y": net.parameter(depth, columns)}, x_num_col_dims=2 if three else 1),
        scale=depth**0.5,
    )


@pytest.mark.parametrize("shape", [(270, 7, 9), (1, 1000, 33), (140, 800, 300), (13, 385, 17), (60, 20, 7)])
@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_products_in_shares_of_rows_columns_and_depth(shape: tuple[int, int, int], act: str) -> None:
    rows, depth, columns = shape
    net = Net()
    x, weights, bias = net.data(rows, depth), net.parameter(depth, columns), net.parameter(columns)
    sums = net.op("elementwise_add", "Out", {"X": net.op("mul", "Out", {"X": x, "Y": weights}), "Y": bias})
    both = net.op("elementwise_add", "Out", {"X": sums, "Y": net.data(rows, columns)})
    check(net, net.op(act, "Out", {"X": both}), scale=depth**0.5)


@few
@given(sizes, sizes, st.integers(1, 140), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_matmul_of_two_computed_matrices(
    rows: int, columns: int, depth: int, images: int, heads: int, swapped: bool
) -> None:
    net = Net()
    x = net.data(images, heads, rows, depth)
    y = net.data(*(images, heads, columns, depth) if swapped else (images, heads, depth, columns))
    check(net, net.op("matmul", "Out", {"X": x, "Y": y}, transpose_Y=swapped, alpha=0.25), scale=depth**0.5)


@few
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 40))
def test_softmax_and_layer_norm(outer: list[int], columns: int) -> None:
    net = Net()
    x = net.data(*outer, columns)
    y = net.op("softmax", "Out", {"X": x}, axis=-1)
    inputs = {"X": x, "Scale": net.parameter(columns), "Bias": net.parameter(columns)}
    z = net.op("layer_norm", "Y", inputs, "Mean", "Variance", begin_norm_axis=len(outer), epsilon=1e-5)
    check(net, y, z, rtol=1e-5)


def at_odd_address(array: Any) -> Any:
    """The same numbers where the file of a parameter may have them."""
    moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("outputs", "inputs", "groups"), [(5, 3, 1), (16, 16, 1), (40, 21, 1), (33, 32, 1), (64, 64, 2)]
)
def test_filters_at_any_address(outputs: int, inputs: int, groups: int, size: int) -> None:
    net = Net()
    weights = net.random.standard_normal((outputs, inputs // groups, size, size)).astype(np.float32)
    x = net.conv(net.data(2, inputs, 9, 9), net.parameter(of=at_odd_address(weights)), groups=groups)
    factors = [
        net.parameter(of=at_odd_address(np.float32(1) + net.random.random(outputs).astype(np.float32))) for _ in "1234"
    ]
    slots = dict(zip(("Scale", "Bias", "Mean", "Variance"), factors, strict=True))
    check(net, net.op("batch_norm", "Y", {"X": x} | slots, is_test=True, epsilon=1e-5), scale=inputs**0.5)


@pytest.mark.parametrize("rows", [1, 15, 16, 33])
@pytest.mark.parametrize("columns", [1, 2, 6, 8, 9, 15, 16, 17, 21, 31, 32, 33])
def test_softmax_of_short_rows(rows: int, columns: int) -> None:
    net = Net()
    x = net.op("scale", "Out", {"X": net.data(rows, columns)}, scale=3.0)
    check(net, net.op("softmax", "Out", {"X": x}, axis=-1))


@pytest.mark.parametrize(("shape", "axis"), [((3, 5), -1), ((3, 70), -1), ((3, 5, 9), 1)])
def test_softmax_gives_no_zero(shape: tuple[int, ...], axis: int) -> None:
    net = Net()
    x = net.op("scale", "Out", {"X": net.data(*shape)}, scale=500.0)
    y = net.op("softmax", "Out", {"X": x}, axis=axis)
    check(net, net.op("scale", "Out", {"X": y}, scale=1e28), rtol=1e-5)


def test_softmax_of_short_rows_with_numbers_that_are_none() -> None:
    net = Net()
    x = np.random.default_rng(0).standard_normal((19, 6)).astype(np.float32)
    x[2, 3], x[5, 0], x[7, 5], x[9, :], x[11, 1:] = np.nan, np.inf, -np.inf, -np.inf, -np.inf
    check(net, net.op("softmax", "Out", {"X": net.data(of=x)}, axis=-1))


@pytest.mark.parametrize(
    "type", ["elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max"]
)
@pytest.mark.parametrize(
    ("shape", "other", "axis"),
    [
        ((2, 3, 5, 7), (2, 3, 5, 7), -1),
        ((2, 3, 5, 7), (7,), -1),
        ((2, 3, 5, 7), (3,), 1),
        ((2, 3, 5, 7), (2, 3), 0),
        ((2, 3, 5, 7), (3, 5), 1),
        ((2, 3, 5, 7), (2, 1, 5, 1), -1),
        ((4, 33), (1,), -1),
        ((4, 33), (4, 1), -1),
        ((1,), (1,), -1),
    ],
)
def test_broadcasting(type: str, shape: tuple[int, ...], other: tuple[int, ...], axis: int) -> None:
    net = Net()
    y = net.data(of=1 + np.arange(prod(other), dtype=np.float32).reshape(other))
    out = net.op(type, "Out", {"X": net.data(*shape), "Y": y}, axis=axis)
    check(net, net.op("softmax", "Out", {"X": out}, axis=-1), out, rtol=1e-5)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "relu": {},
    "relu6": {"threshold": 6.0},
    "sigmoid": {},
    "tanh": {},
    "gelu": {"approximate": False},
    "leaky_relu": {"alpha": 0.02},
    "hard_swish": {"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    "swish": {"beta": 1.5},
    "exp": {},
    "square": {},
    "hard_sigmoid": {"slope": 0.2, "offset": 0.5},
    "abs": {},
}


@pytest.mark.parametrize("type", ACTIVATIONS)
def test_activations(type: str) -> None:
    net = Net()
    values = np.concatenate([np.linspace(-12, 12, 4001), [0.0, -0.0, 1e-8, -1e-8, 30.0, -30.0, -80.0, -86.0]])
    x = net.data(of=values.astype(np.float32).reshape(1, -1))
    y = net.op(type, "Out", {"X": x}, **ACTIVATIONS[type])
    check(net, net.op("softmax", "Out", {"X": y}, axis=-1), y, rtol=2e-6)


@pytest.mark.parametrize("type", ["relu", "relu6", "hard_sigmoid", "leaky_relu"])
def test_what_is_no_number_stays_none(type: str) -> None:
    net = Net()
    x = net.data(of=np.array([[np.nan, 1.0, -1.0, np.inf, -np.inf]], np.float32))
    y = net.op(type, "Out", {"X": net.op("softmax", "Out", {"X": x}, axis=-1)}, **ACTIVATIONS[type])
    assert np.isnan(net.run("native", y)[0]).all() == np.isnan(net.run("numpy", y)[0]).all()


@few
@given(st.permutations(range(4)), st.tuples(*[st.integers(1, 5)] * 4))
def test_moves(axes: list[int], shape: tuple[int, ...]) -> None:
    net = Net()
    x = net.data(*shape)
    turned = net.op("transpose2", "Out", {"X": x}, "XShape", axis=list(axes))
    flat = net.op("reshape2", "Out", {"X": turned}, "XShape", shape=[0, -1])
    part = net.op("slice", "Out", {"Input": turned}, axes=[1, 3], starts=[0, -2], ends=[2, 100], decrease_axis=[])
    joined = net.op("concat", "Out", {"X": [flat, net.op("scale", "Out", {"X": flat}, scale=2.0, bias=1.0)]}, axis=1)
    stacked = net.op("stack", "Y", {"X": [flat, flat]}, axis=1)
    check(net, net.op("softmax", "Out", {"X": joined}, axis=-1), part, joined, stacked, rtol=1e-5)


def test_rows_of_a_table_and_ids_beyond_it(native: Library) -> None:
    net = Net()
    ids = net.data(of=np.array([[1], [4], [0], [4]], np.int64))
    rows = net.op("lookup_table", "Out", {"Ids": ids, "W": net.parameter(5, 9)}, padding_idx=4)
    out = net.op("softmax", "Out", {"X": rows}, axis=-1)
    check(net, rows, out)
    net.feeds[ids] = np.array([[1], [5]], np.int64)
    with pytest.raises(Exception, match="5"):
        net.run("native", out)


def test_exponentials_at_the_ends_of_their_range() -> None:
    net = Net()
    x = net.data(of=np.array([[88.0, 88.7, 89.5, 1000.0, -86.0, -1000.0, np.inf, -np.inf, 0.0]], np.float32))
    y = net.op("exp", "Out", {"X": x})
    out = net.op("softmax", "Out", {"X": net.op("scale", "Out", {"X": y}, scale=0.0, bias=1.0)}, axis=-1)
    got, _ = net.run("native", y, out)
    np.testing.assert_allclose(got, net.run("numpy", y, out)[0], rtol=1e-6)


@few
@given(st.data())
def test_depthwise_convolution_at_every_border(data: st.DataObject) -> None:
    draw = data.draw
    net = Net()
    window = draw(st.sampled_from([(1, 1), (3, 3), (5, 5), (3, 5), (2, 4)]))
    strides, dilations = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    pads = draw(st.lists(st.integers(0, 6), min_size=4, max_size=4))
    image = draw(st.tuples(sizes, sizes))
    reach = [d * (w - 1) + 1 for d, w in zip(dilations, window, strict=True)]
    assume(image[0] + pads[0] + pads[1] >= reach[0] and image[1] + pads[2] + pads[3] >= reach[1])
    channels = draw(sizes) + 1
    x, weights = net.data(draw(st.integers(1, 2)), channels, *image), net.parameter(channels, 1, *window)
    y = net.conv(x, weights, groups=channels, strides=list(strides), dilations=list(dilations), paddings=pads)
    other = net.conv(x, net.parameter(channels, 1, *window), groups=channels, strides=list(strides),
                     dilations=list(dilations), paddings=pads)  # fmt: skip
    total = net.op("elementwise_add", "Out", {"X": y, "Y": other})
    check(net, net.op(draw(st.sampled_from(["relu", "swish"])), "Out", {"X": total}), scale=prod(window) ** 0.5)


@pytest.mark.parametrize("type", ["elementwise_add", "elementwise_mul", "elementwise_max"])
def test_an_image_in_blocks_and_a_volume_without_a_batch(type: str) -> None:
    net = Net()
    x = net.conv(net.data(1, 3, 6, 5), net.parameter(20, 3, 3, 3))
    y = net.op(type, "Out", {"X": net.op("relu", "Out", {"X": x}), "Y": net.data(20, 4, 3)})
    check(net, net.conv(y, net.parameter(4, 20, 1, 1)), scale=30)


def test_lowering_leaves_the_graph_as_it_is() -> None:
    """Groups of few channels are put together with zeros between; the node is the convolution that was asked for."""
    net = Net()
    x, weights = net.data(1, 128, 6, 6), net.parameter(128, 4, 3, 3)
    out = net.conv(x, weights, groups=32, paddings=[1, 1])
    check(net, out)
    (region,) = net.plan.work
    (compiled,) = region.specializations.kept.values()
    (node,) = {kernel_call.node for kernel_call in compiled.kernel_calls if kernel_call.node is not None}
    assert (node.attrs["weights"].shape, node.attrs["groups"]) == ((128, 4, 3, 3), 32)
