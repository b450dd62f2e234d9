"""The networks whose inference is measured, built with the fluid API, random weights: `write(name, folder)`.

A folder gets `model.pdmodel`, `model.pdiparams` and `io.npz`: `in_NAME` one set of inputs, `bs1_out_I` what the numpy
engine computes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.feeds import with_lod
from fluidtool import fluid

SEED = 90
WORDS, STEPS = 5148, 128  # of the LSTM
Feeds = dict[str, np.ndarray[Any, Any]]
layers = fluid.layers


@dataclass(frozen=True)
class Network:
    """build() appends the operators and returns (names of the inputs, outputs); feeds(random) makes one set of inputs."""

    build: Callable[[], tuple[list[str], list[Any]]]
    feeds: Callable[[np.random.RandomState], Feeds]
    title: str


# ---------------------------------------------------------------- images
def convolution(data: Any, channels: int, size: int, stride: int = 1, groups: int = 1, act: str | None = "relu") -> Any:
    """Convolution and batch_norm. Where it ends a residual branch (no `act`) it is scaled down, so that sums stay small."""
    weights = fluid.ParamAttr(initializer=fluid.initializer.MSRA(uniform=False))
    data = layers.conv2d(
        data, channels, size, stride, (size - 1) // 2, groups=groups, param_attr=weights, bias_attr=False
    )
    low, high = (0.6, 1.2) if act else (0.1, 0.3)
    scale = fluid.ParamAttr(initializer=fluid.initializer.Uniform(low, high))
    return layers.batch_norm(data, act=act, is_test=True, param_attr=scale)


def classes(data: Any) -> Any:
    data = layers.pool2d(data, pool_type="avg", global_pooling=True)
    return layers.fc(data, 1000, act="softmax")


def resnet50() -> tuple[list[str], list[Any]]:
    image = layers.data("image", [3, 224, 224])
    data = layers.pool2d(convolution(image, 64, 7, 2), 3, "max", 2, 1)
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            shortcut = convolution(data, channels * 4, 1, stride, act=None) if block == 0 else data
            branch = convolution(convolution(data, channels, 1), channels, 3, stride)
            data = layers.elementwise_add(shortcut, convolution(branch, channels * 4, 1, act=None), act="relu")
    return ["image"], [classes(data)]


def mobilenet_v1() -> tuple[list[str], list[Any]]:
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


def image_feeds(random: np.random.RandomState) -> Feeds:
    return {"image": random.randn(1, 3, 224, 224).astype("float32")}


# ---------------------------------------------------------------- sequences
def bert(depth: int = 12, width: int = 768, heads: int = 12, words: int = 30522, length: int = 128) -> Any:
    """The encoder of BERT with its pooled output."""

    def weights(scale: float = 0.03) -> Any:
        return fluid.ParamAttr(initializer=fluid.initializer.TruncatedNormal(scale=scale))

    def linear(data: Any, size: int, act: str | None = None) -> Any:
        return layers.fc(data, size, num_flatten_dims=2, act=act, param_attr=weights())

    def split(data: Any) -> Any:
        return layers.transpose(layers.reshape(data, [0, 0, heads, width // heads]), [0, 2, 1, 3])

    def build() -> tuple[list[str], list[Any]]:
        names = ["src_ids", "pos_ids", "sent_ids"]
        ids = [fluid.data(name, [-1, length], "int64") for name in names]
        mask = fluid.data("input_mask", [-1, length, 1], "float32")
        data, *rest = [
            fluid.embedding(source, [height, width], param_attr=weights())
            for source, height in zip(ids, (words, 512, 2), strict=True)
        ]
        for other in rest:
            data = data + other
        data = layers.layer_norm(data, begin_norm_axis=2)
        allowed = layers.scale(layers.matmul(mask, mask, transpose_y=True), 10000.0, -1.0, bias_after_scale=False)
        allowed = layers.stack([allowed] * heads, axis=1)
        for _ in range(depth):
            query, key, value = (split(linear(data, width)) for _ in range(3))
            scores = layers.matmul(layers.scale(query, (width // heads) ** -0.5), key, transpose_y=True)
            context = layers.matmul(layers.softmax(layers.elementwise_add(scores, allowed)), value)
            context = layers.reshape(layers.transpose(context, [0, 2, 1, 3]), [0, 0, width])
            data = layers.layer_norm(layers.elementwise_add(data, linear(context, width)), begin_norm_axis=2)
            inner = linear(linear(data, 4 * width, "gelu"), width)
            data = layers.layer_norm(layers.elementwise_add(data, inner), begin_norm_axis=2)
        first = layers.slice(data, axes=[1], starts=[0], ends=[1])
        return [*names, "input_mask"], [data, linear(first, width, "tanh")]

    return build


def bert_feeds(length: int = 128, words: int = 30522) -> Callable[[np.random.RandomState], Feeds]:
    def feeds(random: np.random.RandomState) -> Feeds:
        mask = np.ones((1, length, 1), np.float32)
        mask[:, length * 3 // 4 :] = 0
        return {
            "src_ids": random.randint(0, words, (1, length)).astype("int64"),
            "pos_ids": np.arange(length, dtype="int64")[None],
            "sent_ids": (np.arange(length) > length // 2).astype("int64")[None],
            "input_mask": mask,
        }

    return feeds


def lstm() -> tuple[list[str], list[Any]]:
    source = fluid.data("words", [-1, 1], "int64", lod_level=1)
    data = layers.embedding(source, [WORDS, 128])
    for _ in range(2):
        data, _ = layers.dynamic_lstm(layers.fc(data, 4 * 256), 4 * 256, use_peepholes=False)
    return ["words"], [layers.fc(layers.sequence_pool(data, "max"), 2, act="softmax")]


def lstm_feeds(random: np.random.RandomState) -> Feeds:
    return {"words": random.randint(0, WORDS, (STEPS, 1)).astype("int64")}


NETWORKS = {
    "resnet50": Network(resnet50, image_feeds, "ResNet-50, 224 x 224"),
    "mobilenet_v1": Network(mobilenet_v1, image_feeds, "MobileNet-V1, 224 x 224"),
    "bert_base": Network(bert(), bert_feeds(), "BERT-base, 128 words"),
    "lstm": Network(lstm, lstm_feeds, "LSTM 2 x 256, 128 words"),
}


def draw_apart(startup: fluid.Program) -> None:
    """Give each initializer a seed of its own.

    With the program's seed all parameters of one shape would be the same numbers, and engines that look for that would
    compute queries, keys and values as one.
    """
    for number, op in enumerate(startup.global_block().ops):
        if op.has_attr("seed"):
            op._set_attr("seed", SEED + number)


def write(network: Network, folder: Path) -> None:
    """Build, initialize, save; nothing is done when the folder is complete already."""
    if (folder / "io.npz").exists():
        return
    main, startup = fluid.Program(), fluid.Program()
    scope = fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        names, outputs = network.build()
        draw_apart(startup)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(
            str(folder),
            names,
            outputs,
            executor,
            main,
            model_filename="model.pdmodel",
            params_filename="model.pdiparams",
        )
    import fluidtool

    model = fluidtool.load(folder / "model.pdmodel", engine="numpy")
    inputs = network.feeds(np.random.RandomState(0))
    found = model.run(with_lod(model, inputs)).values()
    arrays = {f"in_{name}": array for name, array in inputs.items()}
    arrays |= {f"bs1_out_{number}": np.asarray(value) for number, value in enumerate(found)}
    np.savez(folder / "io.npz", **arrays)
