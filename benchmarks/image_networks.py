"""Networks that read images, built with the fluid API: classifiers, detectors, a reader of text.

Each function appends the operators and returns (names of the inputs, outputs), as those of inference_networks.py do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from fluidtool import fluid

layers = fluid.layers
Built = tuple[list[str], list[Any]]
CHARACTERS = 6625  # that the reader tells apart


SCALES = {None: (0.1, 0.3), "swish": (1.0, 1.4), "hard_swish": (1.0, 1.5)}
"""Of batch_norm before an activation. A residual branch (no activation) is scaled down, so that sums stay small."""
USUAL = (0.6, 1.2)


def convolution(
    data: Any, channels: int, size: int, stride: Any = 1, groups: int = 1, act: str | None = "relu",
    scales: tuple[float, float] | None = None,
) -> Any:  # fmt: skip
    """Convolution and batch_norm."""
    weights = fluid.ParamAttr(initializer=fluid.initializer.MSRA(uniform=False))
    data = layers.conv2d(
        data, channels, size, stride, (size - 1) // 2, groups=groups, param_attr=weights, bias_attr=False
    )
    low, high = scales or SCALES.get(act, USUAL)
    scale = fluid.ParamAttr(initializer=fluid.initializer.Uniform(low, high))
    by_name = act if act != "leaky_relu" else None
    data = layers.batch_norm(data, act=by_name, is_test=True, param_attr=scale)
    return layers.leaky_relu(data, 0.1) if act == "leaky_relu" else data


def classes(data: Any) -> Any:
    data = layers.pool2d(data, pool_type="avg", global_pooling=True)
    return layers.fc(data, 1000, act="softmax")


def squeezed(data: Any, inner: int, gate: Callable[[Any], Any], act: str = "relu") -> Any:
    """Squeeze and excite: channels are scaled by what two small products make of their means."""
    mean = layers.pool2d(data, pool_type="avg", global_pooling=True)
    mean = layers.conv2d(mean, inner, 1, act=act)
    return layers.elementwise_mul(data, gate(layers.conv2d(mean, data.shape[1], 1)))


def hard_sigmoid(data: Any) -> Any:
    return layers.hard_sigmoid(data, slope=0.2, offset=0.5)


# ---------------------------------------------------------------- classifiers
def resnet50() -> Built:
    image = layers.data("image", [3, 224, 224])
    data = layers.pool2d(convolution(image, 64, 7, 2), 3, "max", 2, 1)
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            shortcut = convolution(data, channels * 4, 1, stride, act=None) if block == 0 else data
            branch = convolution(convolution(data, channels, 1), channels, 3, stride)
            data = layers.elementwise_add(shortcut, convolution(branch, channels * 4, 1, act=None), act="relu")
    return ["image"], [classes(data)]


def mobilenet_v1() -> Built:
    image = layers.data("image", [3, 224, 224])
    data, channels = convolution(image, 32, 3, 2), 32
    for wider, stride in (
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ):
        data = convolution(data, channels, 3, stride, groups=channels)
        data, channels = convolution(data, wider, 1), wider
    return ["image"], [classes(data)]


def inverted(data: Any, wide: int, channels: int, size: int, stride: Any, act: str, gate: Any = None) -> Any:
    """A block of MobileNet-V2 and those after it: widen, convolve by channel, (squeeze), narrow, add."""
    inner = data if wide == data.shape[1] else convolution(data, wide, 1, act=act)
    inner = convolution(inner, wide, size, stride, groups=wide, act=act)
    inner = gate(inner, data.shape[1]) if gate else inner
    if stride == 1 and data.shape[1] == channels:
        return layers.elementwise_add(data, convolution(inner, channels, 1, act=None))
    return convolution(inner, channels, 1, act=None, scales=USUAL)


def mobilenet_v2() -> Built:
    image = layers.data("image", [3, 224, 224])
    data = convolution(image, 32, 3, 2, act="relu6")
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for times, channels, blocks, stride in rows:
        for block in range(blocks):
            wide = data.shape[1] * times
            data = inverted(data, wide, channels, 3, stride if block == 0 else 1, "relu6")
    return ["image"], [classes(convolution(data, 1280, 1, act="relu6"))]


class Row(NamedTuple):
    """A block of MobileNet-V3."""

    size: int
    wide: int
    channels: int
    squeeze: bool
    act: str
    stride: int


R, H = "relu", "hard_swish"
SMALL = tuple(
    Row(*row)
    for row in (
        (3, 16, 16, True, R, 2), (3, 72, 24, False, R, 2), (3, 88, 24, False, R, 1), (5, 96, 40, True, H, 2),
        (5, 240, 40, True, H, 1), (5, 240, 40, True, H, 1), (5, 120, 48, True, H, 1), (5, 144, 48, True, H, 1),
        (5, 288, 96, True, H, 2), (5, 576, 96, True, H, 1), (5, 576, 96, True, H, 1),
    )
)  # fmt: skip
LARGE = tuple(
    Row(*row)
    for row in (
        (3, 16, 16, False, R, 1), (3, 64, 24, False, R, 2), (3, 72, 24, False, R, 1), (5, 72, 40, True, R, 2),
        (5, 120, 40, True, R, 1), (5, 120, 40, True, R, 1), (3, 240, 80, False, H, 2), (3, 200, 80, False, H, 1),
        (3, 184, 80, False, H, 1), (3, 184, 80, False, H, 1), (3, 480, 112, True, H, 1), (3, 672, 112, True, H, 1),
        (5, 672, 160, True, H, 2), (5, 960, 160, True, H, 1), (5, 960, 160, True, H, 1),
    )
)  # fmt: skip


def squeezed_v3(data: Any, _: int) -> Any:
    return squeezed(data, data.shape[1] // 4, hard_sigmoid)


def mobilenet_v3(rows: tuple[Row, ...], last: int, wide: int) -> Callable[[], Built]:
    """MobileNet-V3 of 224 x 224; `last` channels before the mean, `wide` behind it."""

    def build() -> Built:
        image = layers.data("image", [3, 224, 224])
        data = convolution(image, 16, 3, 2, act=H)
        for row in rows:
            gate = squeezed_v3 if row.squeeze else None
            data = inverted(data, row.wide, row.channels, row.size, row.stride, row.act, gate)
        data = layers.pool2d(convolution(data, last, 1, act=H), pool_type="avg", global_pooling=True)
        data = layers.hard_swish(layers.conv2d(data, wide, 1, bias_attr=False))
        return ["image"], [layers.fc(data, 1000, act="softmax")]

    return build


def efficientnet() -> Built:
    """EfficientNet-B0."""
    image = layers.data("image", [3, 224, 224])
    data = convolution(image, 32, 3, 2, act="swish")
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    for times, channels, blocks, stride, size in rows:
        for block in range(blocks):
            wide = data.shape[1] * times
            data = inverted(data, wide, channels, size, stride if block == 0 else 1, "swish", squeezed_b0)
    return ["image"], [classes(convolution(data, 1280, 1, act="swish"))]


def squeezed_b0(data: Any, before: int) -> Any:
    return squeezed(data, max(before // 4, 1), layers.sigmoid, "swish")


def excited(data: Any, inner: int) -> Any:
    """Squeeze and excite by products, as the models of Paddle 1.8 have it."""
    mean = layers.pool2d(data, pool_type="avg", global_pooling=True)
    factors = layers.fc(layers.fc(mean, inner, act="relu"), data.shape[1], act="sigmoid")
    return layers.elementwise_mul(data, factors, axis=0)


def se_resnext50() -> Built:
    """SE-ResNeXt-50, 32 groups of 4 channels."""
    image = layers.data("image", [3, 224, 224])
    data = layers.pool2d(convolution(image, 64, 7, 2), 3, "max", 2, 1)
    for stage, (blocks, channels) in enumerate(((3, 128), (4, 256), (6, 512), (3, 1024))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            shortcut = convolution(data, channels * 2, 1, stride, act=None) if block == 0 else data
            branch = convolution(convolution(data, channels, 1), channels, 3, stride, groups=32)
            branch = convolution(branch, channels * 2, 1, act=None)
            branch = excited(branch, channels * 2 // 16)
            data = layers.elementwise_add(shortcut, branch, act="relu")
    return ["image"], [classes(data)]


# ---------------------------------------------------------------- detectors
def yolo() -> Built:
    """The tiny YOLOv3 of 416 x 416, without what selects boxes."""
    image = layers.data("image", [3, 416, 416])
    data, leaky = image, partial(convolution, act="leaky_relu")
    for channels in (16, 32, 64, 128):
        data = layers.pool2d(leaky(data, channels, 3), 2, "max", 2)
    fine = leaky(data, 256, 3)
    data = leaky(layers.pool2d(fine, 2, "max", 2), 512, 3)
    data = layers.pool2d(layers.pad2d(data, [0, 1, 0, 1], "edge"), 2, "max", 1)
    data = leaky(leaky(data, 1024, 3), 256, 1)
    coarse = layers.conv2d(leaky(data, 512, 3), 255, 1)
    wide = layers.resize_nearest(leaky(data, 128, 1), scale=2.0, align_corners=False)
    data = leaky(layers.concat([wide, fine], axis=1), 256, 3)
    return ["image"], [coarse, layers.conv2d(data, 255, 1)]


def db() -> Built:
    """A detector of text: MobileNet-V3 of half the width, levels added from coarse to fine, a map of probabilities."""
    image = layers.data("image", [3, 320, 320])
    data, levels = convolution(image, 8, 3, 2, act=H), []
    for row in LARGE:
        if row.stride == 2:
            levels.append(data)
        gate = squeezed_v3 if row.squeeze else None
        data = inverted(data, halved(row.wide), halved(row.channels), row.size, row.stride, row.act, gate)
    levels = [*levels[1:], convolution(data, halved(960), 1, act=H)]
    return ["image"], [probabilities([layers.conv2d(each, 96, 1, bias_attr=False) for each in levels])]


def halved(channels: int) -> int:
    """Half of them, a multiple of 8."""
    return max(8, (channels // 2 + 4) // 8 * 8)


def probabilities(levels: list[Any], gate: Callable[[Any], Any] = lambda data: data) -> Any:
    """The head of DB, from levels each of which is half as large as the one before; `gate`: what its parts pass through."""
    up = partial(layers.resize_nearest, align_corners=False)
    for at in range(len(levels) - 1, 0, -1):
        levels[at - 1] = layers.elementwise_add(levels[at - 1], up(levels[at], scale=2.0))
    parts = [gate(layers.conv2d(each, 24, 3, padding=1, bias_attr=False)) for each in levels]
    parts = [part if at == 0 else up(part, scale=2.0**at) for at, part in enumerate(parts)]
    data = convolution(layers.concat(parts[::-1], axis=1), 24, 3)
    data = layers.batch_norm(layers.conv2d_transpose(data, 24, filter_size=2, stride=2), act="relu", is_test=True)
    return layers.sigmoid(layers.conv2d_transpose(data, 1, filter_size=2, stride=2))


SLIM = tuple(
    Row(size, wide, channels, False, act, stride)
    for size, wide, channels, act, stride in (
        (3, 8, 8, R, 1), (3, 32, 16, R, 2), (3, 40, 16, R, 1), (5, 40, 24, R, 2), (5, 64, 24, R, 1), (5, 64, 24, R, 1),
        (3, 120, 40, H, 2), (3, 104, 40, H, 1), (3, 96, 40, H, 1), (3, 96, 40, H, 1), (3, 240, 56, H, 1), (3, 336, 56, H, 1),
        (5, 336, 80, H, 2), (5, 480, 80, H, 1), (5, 480, 80, H, 1),
    )
)  # fmt: skip


def slim_db() -> Built:
    """A detector of text as it runs on phones: no gates but those of its levels, which are added to what they scale."""
    image = layers.data("image", [3, 640, 640])
    data, levels = convolution(image, 8, 3, 2, act=H), []
    for row in SLIM:
        if row.stride == 2:
            levels.append(data)
        data = inverted(data, row.wide, row.channels, row.size, row.stride, row.act)
    levels = [*levels[1:], convolution(data, 480, 1, act=H)]
    wide = [gated(layers.conv2d(each, 96, 1, bias_attr=False)) for each in levels]
    return ["image"], [probabilities(wide, gated)]


def gated(data: Any) -> Any:
    """An image, and that image scaled by channel, added up."""
    return layers.elementwise_add(data, squeezed_v3(data, 0))


# ---------------------------------------------------------------- readers
def crnn() -> Built:
    """A reader of a line of text: MobileNet-V3 of half the width on 32 x 320, LSTMs in both directions, characters."""
    image = layers.data("image", [3, 32, 320])
    data = convolution(image, 8, 3, 2, act=H)
    for number, row in enumerate(SMALL):
        stride: Any = (2, 1) if row.stride == 2 and number > 0 else 1
        gate = squeezed_v3 if row.squeeze else None
        data = inverted(data, halved(row.wide), halved(row.channels), row.size, stride, row.act, gate)
    data = layers.pool2d(convolution(data, halved(576), 1, act=H), 2, "max", 2)
    steps = layers.im2sequence(data, filter_size=[1, 1], stride=[1, 1])
    for _ in range(2):
        ways = [
            layers.dynamic_lstm(layers.fc(steps, 4 * 48), 4 * 48, use_peepholes=False, is_reverse=backward)[0]
            for backward in (False, True)
        ]
        steps = layers.concat(ways, axis=1)
    return ["image"], [layers.fc(steps, CHARACTERS, act="softmax")]
