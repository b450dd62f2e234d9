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

from benchmarks import image_networks as of
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
def images(size: tuple[int, int] = (224, 224)) -> Callable[[np.random.RandomState], Feeds]:
    """Makes one image of this size."""
    return lambda random: {"image": random.randn(1, 3, *size).astype("float32")}


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
    "resnet50": Network(of.resnet50, images(), "ResNet-50, 224 x 224"),
    "mobilenet_v1": Network(of.mobilenet_v1, images(), "MobileNet-V1, 224 x 224"),
    "bert_base": Network(bert(), bert_feeds(), "BERT-base, 128 words"),
    "lstm": Network(lstm, lstm_feeds, "LSTM 2 x 256, 128 words"),
    "mobilenet_v2": Network(of.mobilenet_v2, images(), "MobileNet-V2, 224 x 224"),
    "mobilenet_v3_small": Network(of.mobilenet_v3(of.SMALL, 576, 1024), images(), "MobileNet-V3 small, 224 x 224"),
    "mobilenet_v3_large": Network(of.mobilenet_v3(of.LARGE, 960, 1280), images(), "MobileNet-V3 large, 224 x 224"),
    "efficientnet": Network(of.efficientnet, images(), "EfficientNet-B0, 224 x 224"),
    "yolo": Network(of.yolo, images((416, 416)), "YOLOv3 tiny, 416 x 416"),
    "db": Network(of.db, images((320, 320)), "DB, 320 x 320"),
    "slim_db": Network(of.slim_db, images((640, 640)), "DB, slim, 640 x 640"),
    "crnn": Network(of.crnn, images((32, 320)), "CRNN, 32 x 320"),
    "se_resnext50": Network(of.se_resnext50, images(), "SE-ResNeXt-50, 224 x 224"),
}


def draw_apart(startup: fluid.Program) -> None:
    """Give each initializer a seed of its own.

    With the program's seed all parameters of one shape would be the same numbers, and engines that look for that would
    compute queries, keys and values as one.
    """
    for number, op in enumerate(startup.global_block().ops):
        if op.has_attr("seed"):
            op._set_attr("seed", SEED + number)


def save(network: Network, folder: Path) -> None:
    """Build, initialize, save; nothing is done when the files of the model are there already."""
    if (folder / "model.pdmodel").exists() and (folder / "model.pdiparams").exists():
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


def write(network: Network, folder: Path) -> None:
    """Save a network and what it computes; nothing is done when the folder is complete already."""
    if (folder / "io.npz").exists():
        return
    save(network, folder)
    import fluidtool

    model = fluidtool.load(folder / "model.pdmodel", engine="numpy")
    inputs = network.feeds(np.random.RandomState(0))
    found = model.run(with_lod(model, inputs)).values()
    arrays = {f"in_{name}": array for name, array in inputs.items()}
    arrays |= {f"bs1_out_{number}": np.asarray(value) for number, value in enumerate(found)}
    np.savez(folder / "io.npz", **arrays)
