"""Sequences, recurrent layers, resampling, volumes and boxes in regions on a GPU: the numbers are numpy's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fluidtool.runtime.engines.cuda.calls import Launch
from tests.gpu.test_cuda_regions import check, compiled, on_gpu
from tests.runtime.native.checking import Net
from tests.runtime.native.test_detection import decoded, yolo
from tests.runtime.native.test_sequences import gru, lstm, projected_lstm, sequences, small

LENGTHS = [[3, 1, 4, 2], [0, 3, 0, 1]]


pytestmark = pytest.mark.usefixtures("cupy")


# ---------------------------------------------------------------- recurrent layers
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("attrs", [{}, {"is_reverse": True, "peepholes": True}])
def test_lstm(lengths: list[int], attrs: dict[str, Any]) -> None:
    net = Net()
    kinds = check(net, lstm(net, sequences(net, lengths, 4 * 5), 5, **attrs), rtol=2e-5)
    steps = max(lengths)
    assert kinds == ["pack", *["lstm"] * steps]


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("size", [1, 8, 9, 33, 264, 300])
def test_steps_of_few_rows_are_one_call_each(rows: int, size: int) -> None:
    """Sizes below, at and beyond what a block has: 8 units, 32 slices of 8 terms."""
    net = Net()
    kinds = check(net, lstm(net, sequences(net, [3] * rows, 4 * size), size, peepholes=True), rtol=2e-5)
    assert kinds == ["pack", *["lstm"] * 3]


def test_steps_of_many_rows_are_a_product_and_a_kernel_until_few_are_left() -> None:
    net = Net()
    kinds = check(net, lstm(net, sequences(net, [2] * 5 + [4] * 4, 4 * 9), 9), rtol=2e-5)
    assert kinds == ["pack", "lstm", "Product", "lstm", "lstm", "lstm"]


def test_one_call_for_a_step_gives_the_same_bits_every_time() -> None:
    net = Net()
    name = lstm(net, sequences(net, [5, 3], 4 * 40), 40)
    assert on_gpu(net, name)[0].tobytes() == on_gpu(net, name)[0].tobytes()


@pytest.mark.parametrize("layer", [lstm, gru])
def test_what_a_step_reads_from_other_blocks_is_not_written(layer: Any) -> None:
    """Blocks of a kernel run at once, unlike those of the stand-in."""
    net = Net()
    width = 4 if layer is lstm else 3
    check(net, layer(net, sequences(net, [4, 3], width * 9), 9), rtol=2e-5)
    steps = [call for call in compiled(net).calls if isinstance(call, Launch) and "slice" in call.source]
    assert len(steps) == (3 if layer is lstm else 6)
    for call in steps:
        state = re.search(r"found.r. \+= (p\d+)", call.source)
        names = re.findall(r"(const )?[a-z]+\* (p\d+|out)[,)]", call.source)
        given = {
            name: (pointer.buffer, bool(const)) for (const, name), pointer in zip(names, call.pointers, strict=True)
        }
        assert state is not None
        assert given[state[1]][0] not in {buffer for buffer, const in given.values() if not const}


def test_lstm_with_other_activations() -> None:
    net = Net()
    names = {"gate_activation": "tanh", "cell_activation": "relu", "candidate_activation": "identity"}
    check(net, lstm(net, sequences(net, [4, 2], 4 * 3), 3, **names), rtol=2e-5)


def test_steps_that_are_alike_share_their_kernel() -> None:
    net = Net()
    check(net, lstm(net, sequences(net, [6, 6, 6], 4 * 3), 3), rtol=2e-5)
    names = {call.name for call in compiled(net).calls if hasattr(call, "name")}
    assert len(names) == 3  # rows in order, the first step, all others


@pytest.mark.parametrize(("bounds", "projection"), [((0.0, 0.0), "identity"), ((0.2, 0.1), "tanh")])
def test_projected_lstm(bounds: tuple[float, float], projection: str) -> None:
    net = Net()
    names = {"cell_clip": bounds[0], "proj_clip": bounds[1], "proj_activation": projection}
    check(net, projected_lstm(net, [3, 1, 4], 5, 3, True, **names), rtol=2e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"is_reverse": True, "origin_mode": True}])
def test_gru(lengths: list[int], initial: bool, attrs: dict[str, Any]) -> None:
    net = Net()
    gates = sequences(net, lengths, 3 * 5)
    first = net.data(of=small(net, len(lengths), 5)) if initial else ""
    kinds = check(net, gru(net, gates, 5, first=first, **attrs), rtol=2e-5)
    steps = ["reset", "gru"] * (max(lengths) - 1)
    assert kinds[kinds.index("pack") + 1 :] == (["each", "reset", "gru"] if initial else ["gru"]) + steps


@pytest.mark.parametrize("rows", [1, 8, 9])
@pytest.mark.parametrize("size", [1, 16, 33, 260])
def test_steps_of_gru_by_rows(rows: int, size: int) -> None:
    net = Net()
    kinds = check(net, gru(net, sequences(net, [2] * rows, 3 * size), size), rtol=2e-5)
    step = ["reset", "gru"] if rows <= 8 else ["Product", "reset", "Product", "gru"]
    assert kinds == ["pack", "gru", *step]


@pytest.mark.parametrize("origin", [False, True])
def test_gru_unit(origin: bool) -> None:
    net = Net()
    inputs = {"Input": net.data(4, 9), "HiddenPrev": net.data(4, 3), "Weight": net.parameter(of=small(net, 3, 9))}
    attrs = {"activation": 2, "gate_activation": 1, "origin_mode": origin}
    check(net, net.op("gru_unit", "Hidden", inputs, "Gate", "ResetHiddenPrev", **attrs), rtol=2e-5)


# ---------------------------------------------------------------- sequences
@pytest.mark.parametrize("lengths", LENGTHS)
def test_pooling_of_sequences(lengths: list[int]) -> None:
    net = Net()
    x = lstm(net, sequences(net, lengths, 4 * 3), 3)
    pooled = [
        net.op("sequence_pool", "Out", {"X": x}, "MaxIndex", pooltype=how, is_test=True, pad_value=0.5)
        for how in ("SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST")
    ]
    assert check(net, *pooled, rtol=2e-5)[-6:] == ["pool"] * 6


def test_rows_of_sequences_move() -> None:
    net = Net()
    x = net.op("sequence_reverse", "Y", {"X": sequences(net, [3, 1, 4], 4)})
    x = net.op("sequence_conv", "Out", {"X": x, "Filter": net.parameter(12, 6)}, contextLength=3, contextStart=-1,
               contextStride=1, paddingTrainable=False)  # fmt: skip
    assert check(net, x).count("rows") == 2


def test_softmax_of_sequences() -> None:
    net = Net()
    x = net.op("mul", "Out", {"X": sequences(net, [3, 1, 0, 40], 4), "Y": net.parameter(4, 1)})
    assert check(net, net.op("sequence_softmax", "Out", {"X": x}))[-1] == "softmax"


@pytest.mark.parametrize("rows", [1, 5])
def test_cosines(rows: int) -> None:
    net = Net()
    x, y = net.data(5, 70), net.data(rows, 70)
    assert check(net, net.op("cos_sim", "Out", {"X": x, "Y": y}, "XNorm", "YNorm")) == ["cosine"]


# ---------------------------------------------------------------- images and volumes
@pytest.mark.parametrize("after_convolution", [False, True])
def test_resampling(after_convolution: bool) -> None:
    net = Net()
    pool = {"pooling_type": "max", "ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0]}
    x = net.op("pool2d", "Out", {"X": net.data(2, 3, 6, 7)}, **pool)
    if after_convolution:
        x = net.conv(x, net.parameter(5, 3, 1, 1))
    found = []
    for method, height, width in (("nearest", 9, 4), ("bilinear", 9, 4), ("bilinear", 3, 11), ("bicubic", 3, 11)):
        attrs = {"interp_method": method, "out_h": height, "out_w": width, "align_corners": False, "align_mode": 1}
        found.append(net.op(f"{method}_interp", "Out", {"X": x}, **attrs))
    check(net, *found, rtol=1e-5)


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2], "paddings": [1, 1]},
        {"strides": [2, 3], "paddings": [0, 1, 1, 0]},
        {"strides": [2, 2], "paddings": [0, 0], "output_size": [10, 14]},
        {"strides": [5, 4]},
        {"dilations": [2, 3], "paddings": [1, 2]},
        {"groups": 2},
        {"groups": 4, "type": "depthwise_conv2d_transpose"},
    ],
)
@pytest.mark.parametrize("volumes", [False, True])
def test_transposed_convolutions(volumes: bool, attrs: dict[str, Any]) -> None:
    """With a scale, a bias and a ReLU after them."""
    net = Net()
    settled = {
        "strides": [1, 1],
        "paddings": [0, 0],
        "dilations": [1, 1],
        "groups": 1,
        "type": "conv2d_transpose",
    } | attrs
    groups, type = settled["groups"], settled.pop("type")
    shape, filters = (2, 4, 4, 6), (4, 6 // groups if groups < 4 else 1, 3, 3)
    if volumes:
        type, shape, filters = "conv3d_transpose", (2, 4, 2, 4, 6), (*filters[:2], 2, 3, 3)
        more = {"strides": 2, "dilations": 1, "output_size": 4}
        settled |= {name: [first, *settled[name]] for name, first in more.items() if name in settled}
        pads = settled["paddings"]
        settled["paddings"] = [0, *pads] if len(pads) == 2 else [0, 0, *pads]
    x = net.op(type, "Output", {"Input": net.data(*shape), "Filter": net.parameter(*filters)}, **settled)
    count = filters[1] * groups
    for operate in ("elementwise_mul", "elementwise_add"):
        x = net.op(operate, "Out", {"X": x, "Y": net.parameter(count)}, axis=1)
    found = check(net, net.op("relu", "Out", {"X": x}), rtol=1e-5)
    assert [call for call in found if call != "each"] == ["Convolution"] and len(found) == (5 if volumes else 3)


def test_a_transposed_convolution_padded_by_an_algorithm_is_left_to_cupy() -> None:
    net = Net()
    inputs = {"Input": net.data(1, 3, 4, 3), "Filter": net.parameter(3, 4, 3, 3)}
    attrs = {"strides": [2, 2], "paddings": [0, 0], "dilations": [1, 1], "groups": 1, "padding_algorithm": "SAME"}
    name = net.op("conv2d_transpose", "Output", inputs, **attrs)
    with pytest.raises(AssertionError):
        check(net, name)
    assert net.why_not() == ["padding by an algorithm"]


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_volumes(groups: int) -> None:
    net = Net()
    settled = {"strides": [2, 1, 2], "paddings": [1, 0, 1], "dilations": [1, 1, 1], "groups": groups}
    inputs = {"Input": net.data(2, 4, 5, 6, 7), "Filter": net.parameter(6, 4 // groups, 3, 2, 3)}
    x = net.op("conv3d", "Output", inputs, **settled)
    x = net.op("relu", "Out", {"X": x})
    pool = {"ksize": [2, 2, 2], "strides": [2, 2, 2], "paddings": [1, 0, 0]}
    kinds = check(
        net, *(net.op("pool3d", "Out", {"X": x}, pooling_type=how, **pool) for how in ("max", "avg")), rtol=1e-5
    )
    assert kinds.count("Choice") == 1


def test_channels_become_pixels() -> None:
    net = Net()
    x = net.conv(net.data(2, 3, 4, 5), net.parameter(12, 3, 1, 1))
    check(net, net.op("pixel_shuffle", "Out", {"X": x}, upscale_factor=2))


def test_normalization_by_channels_around() -> None:
    net = Net()
    x = net.conv(net.data(2, 3, 4, 5), net.parameter(7, 3, 1, 1))
    check(net, net.op("lrn", "Out", {"X": x}, "MidOut", n=5, k=1.5, alpha=0.3, beta=0.75), rtol=1e-5)


# ---------------------------------------------------------------- boxes
@pytest.mark.parametrize("attrs", [{}, {"clip_bbox": False, "scale_x_y": 1.2}, {"conf_thresh": 0.999}])
def test_boxes_of_yolo(attrs: dict[str, Any]) -> None:
    net = Net()
    assert check(net, *yolo(net, (2, 4, 9), 2_000_000, **attrs), rtol=1e-5)[-2:] == ["boxes", "scores"]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("scale", ["input", "attribute", "none"])
def test_boxes_of_ssd(axis: int, scale: str) -> None:
    net = Net()
    boxes = decoded(net, (3, 4), axis, scale, box_normalized=axis == 0)
    assert check(net, boxes, rtol=1e-5)[-1] == "decode"
