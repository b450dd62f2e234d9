"""`inspect`, `profile` and `passes.cost` count the same multiply-adds: those of the definition, however they are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fluidtool
from fluidtool import fluid
from fluidtool.fluid import layers
from fluidtool.passes.cost import count, input_metas
from tests.cli.support import call_json

Build = Callable[[], Any]
LOD = ["--lod", "x=[[2,3]]", "--batch", "2"]


def data(name: str, *shape: int, lod_level: int = 0) -> Any:
    return layers.data(name, list(shape), append_batch_size=False, lod_level=lod_level)


def image(channels: int, size: int) -> Any:
    return data("x", 2, channels, size, size)


def grouped_convolution() -> Any:
    return layers.conv2d(image(128, 6), 128, 3, padding=1, groups=32)


def fused_convolution() -> Any:
    return layers.relu(layers.batch_norm(layers.conv2d(image(3, 8), 16, 3, bias_attr=False)))


def transposed_convolution() -> Any:
    return layers.conv2d_transpose(image(4, 5), 6, filter_size=2, stride=2)


def volume_convolution() -> Any:
    return layers.conv3d(data("x", 2, 3, 4, 6, 6), 8, 3, padding=1, bias_attr=False)


def product() -> Any:
    return layers.fc(data("x", 2, 12), 5, act="relu")


def joined_products() -> Any:
    x = data("x", 4, 12)
    return layers.concat([layers.fc(x, 16), layers.fc(x, 32)], axis=1)


def attention() -> Any:
    q, k, v = (data(name, 2, 4, size, 8) for name, size in (("q", 6), ("k", 7), ("v", 7)))
    return layers.matmul(layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=0.35)), v)


def lstm() -> Any:
    return layers.dynamic_lstm(data("x", -1, 32, lod_level=1), 32)[0]


def gru() -> Any:
    return layers.dynamic_gru(data("x", -1, 24, lod_level=1), 8, h_0=data("first", -1, 8))


def windows_of_sequences() -> Any:
    return layers.sequence_conv(data("x", -1, 4, lod_level=1), 5, 3)


CASES: list[tuple[Build, int, list[str]]] = [
    (grouped_convolution, 2 * 128 * 6 * 6 * 4 * 9, []),
    (fused_convolution, 2 * 16 * 6 * 6 * 3 * 9, []),
    (transposed_convolution, 2 * 4 * 5 * 5 * 6 * 4, []),
    (volume_convolution, 2 * 8 * 4 * 6 * 6 * 3 * 27, []),
    (product, 2 * 12 * 5, []),
    (joined_products, 4 * 12 * (16 + 32), []),
    (attention, 2 * 4 * 6 * 7 * (8 + 8), []),
    (lstm, 5 * 8 * 32, LOD),
    (gru, 5 * 8 * 24, LOD),
    (windows_of_sequences, 5 * 3 * 4 * 5, LOD),
]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Build], Path]:
    def save(build: Build) -> Path:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
            out = build()
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            feeds = [name for name, var in main.global_block().vars.items() if var.is_data]
            fluid.io.save_inference_model(str(tmp_path / "model"), feeds, [out], executor, main)
        return tmp_path / "model"

    return save


@pytest.mark.parametrize(("build", "multiply_adds", "lod"), CASES, ids=[case[0].__name__ for case in CASES])
class TestOneCount:
    def test_of_cost_and_inspect(
        self, saved: Callable[[Build], Path], build: Build, multiply_adds: int, lod: list[str]
    ) -> None:
        path = saved(build)
        model = fluidtool.load(path)
        assert count(model.program, input_metas(model.program, model.feeds, 5)).multiply_adds == multiply_adds
        batch = ["--batch", 5] if lod else []  # of the inputs without a batch of their own
        assert call_json("inspect", path, *batch)["cost"]["multiply_adds"] == multiply_adds

    @pytest.mark.usefixtures("native")
    @pytest.mark.parametrize("engine", ["numpy", "native"])
    def test_of_profile(
        self, saved: Callable[[Build], Path], build: Build, multiply_adds: int, lod: list[str], engine: str
    ) -> None:
        found = call_json("profile", saved(build), "--random", *lod, "--repeat", 1, "--warmup", 0, "--engine", engine)
        assert sum(item["multiply_adds"] for item in found["items"]) == multiply_adds


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("build", [fused_convolution, attention, lstm])
def test_what_is_fused_is_computed_natively(saved: Callable[[Build], Path], build: Build) -> None:
    found = call_json("profile", saved(build), "--random", *(LOD if build is lstm else []), "--repeat", 1)
    assert {item["engine"] for item in found["items"]} == {"native"}


@pytest.mark.usefixtures("native")
def test_the_kernel_that_multiplies_has_them_all(saved: Callable[[Build], Path]) -> None:
    found = call_json("profile", saved(gru), "--random", *LOD, "--repeat", 1)
    counts = {item["kernel"]: item["multiply_adds"] for item in found["items"]}
    assert counts == {"gather rows": 0, "gru sequences": 5 * 8 * 24, "in and out": 0}
