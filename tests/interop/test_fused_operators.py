"""Real Paddle 1.8.5 runs each fused operator that our rewrites write, to the numbers of the program before.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it these tests are reported as not run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.ir import Program
from fluidtool.passes.pipeline import plan_passes
from tests.interop.test_saved_models import SCRIPT
from tests.support.checkout import paddle_environment
from tests.support.golden import array_difference, read_arrays

TOLERANCE = {"kind": "allclose", "rtol": 1e-5, "atol": 1e-5}
LAYERS = fluid.layers


def rows_of_fc() -> Any:
    x = LAYERS.data("x", [4])
    for _ in range(3):
        x = LAYERS.fc(x, 6, act="relu")
    return x


def fc_of_three_dimensions() -> Any:
    return LAYERS.fc(LAYERS.data("x", [3, 4]), 6, num_flatten_dims=2, act="relu")


def squared_products() -> Any:
    x = LAYERS.data("x", [4])
    y = LAYERS.matmul(x, LAYERS.tanh(x), transpose_x=True)
    squares = LAYERS.matmul(LAYERS.square(x), LAYERS.square(y))
    return LAYERS.scale(LAYERS.elementwise_sub(LAYERS.square(LAYERS.matmul(x, y)), squares), 0.5)


def sequence_convolution() -> Any:
    return LAYERS.sequence_conv(LAYERS.data("x", [4], lod_level=1), 5, filter_size=3, act="relu")


def transposed_convolution() -> Any:
    x = LAYERS.data("x", [4, 5, 5])
    x = LAYERS.conv2d_transpose(x, 6, filter_size=3, stride=2, groups=2)
    return LAYERS.batch_norm(x, act="relu", epsilon=1e-4)


def convolution_in_three_dimensions() -> Any:
    x = LAYERS.conv3d(LAYERS.data("x", [4, 5, 5, 5]), 6, 3, bias_attr=False)
    return LAYERS.batch_norm(x, act="relu")


def depthwise_convolution() -> Any:
    x = LAYERS.data("x", [4, 5, 5])
    x = LAYERS.conv2d(x, 4, 3, groups=4, use_cudnn=False, bias_attr=False)  # a depthwise_conv2d
    return LAYERS.batch_norm(x)


def channels_last() -> Any:
    x = LAYERS.data("x", [5, 5, 4])
    x = LAYERS.conv2d(x, 6, 3, data_format="NHWC", bias_attr=False)
    return LAYERS.batch_norm(x, data_layout="NHWC")


def normalized_fc() -> Any:
    return LAYERS.batch_norm(LAYERS.fc(LAYERS.data("x", [4]), 6), act="relu")


def affine_channels() -> Any:
    x = LAYERS.conv2d(LAYERS.data("x", [4, 5, 5]), 6, 3)
    scale, bias = (LAYERS.create_parameter([6], "float32") for _ in range(2))
    return LAYERS.affine_channel(x, scale, bias)


def dropped_out() -> Any:
    x = LAYERS.tanh(LAYERS.data("x", [4]))
    return LAYERS.dropout(LAYERS.dropout(x, 0.3), 0.3, dropout_implementation="upscale_in_train")


# What builds it, the shape of its input, an operator that is there afterwards, one that is not.
NETWORKS: dict[str, tuple[Any, tuple[int, ...], str, str]] = {
    "rows of fc": (rows_of_fc, (3, 4), "fusion_repeated_fc_relu", "mul"),
    "fc of three dimensions": (fc_of_three_dimensions, (2, 3, 4), "fc", "mul"),
    "squared products": (squared_products, (3, 4), "fusion_squared_mat_sub", "elementwise_sub"),
    "sequences": (sequence_convolution, (7, 4), "fusion_seqconv_eltadd_relu", "sequence_conv"),
    "transposed convolution": (transposed_convolution, (2, 4, 5, 5), "conv2d_transpose", "batch_norm"),
    "three dimensions": (convolution_in_three_dimensions, (2, 4, 5, 5, 5), "conv3d", "batch_norm"),
    "depthwise convolution": (depthwise_convolution, (2, 4, 5, 5), "depthwise_conv2d", "batch_norm"),
    "channels last": (channels_last, (2, 5, 5, 4), "conv2d", "batch_norm"),
    "normalized fc": (normalized_fc, (3, 4), "fc", "batch_norm"),
    "affine channels": (affine_channels, (2, 4, 5, 5), "conv2d", "affine_channel"),
    "dropout": (dropped_out, (3, 4), "scale", "dropout"),
}


@pytest.fixture(scope="module")
def paddle() -> str:
    """The interpreter of real Paddle."""
    interpreter = os.environ.get("FLUIDTOOL_PADDLE_PYTHON")
    if not interpreter:
        pytest.skip("not run: FLUIDTOOL_PADDLE_PYTHON does not name the interpreter of a real Paddle")
    return interpreter


def save(name: str, folder: Path) -> list[dict[str, Any]]:
    """A network as it is and rewritten, with random parameters; what to run."""
    build, shape, there, gone = NETWORKS[name]
    random, main, startup = np.random.default_rng(3), Program(), Program()
    executor = fluid.Executor(fluid.CPUPlace())
    feed = {"x": random.uniform(-1, 1, shape).astype(np.float32)}
    if name == "sequences":
        feed["x@lod"] = np.array(json.dumps([[4, 1, 2]]))
    np.savez(folder / f"{name}.feed.npz", **feed)
    jobs = []
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        with fluid.program_guard(main, startup):
            result = build()
        executor.run(startup)
        for parameter in main.all_parameters():
            tensor = fluid.global_scope().find_var(parameter.name).get_tensor()  # type: ignore[union-attr]
            tensor.set(random.uniform(0.1, 1, tensor.shape()).astype(np.float32), fluid.CPUPlace())
        fluid.io.save_inference_model(str(folder / name / "plain"), ["x"], [result], executor, main)
        program, feeds, fetches = fluid.io.load_inference_model(str(folder / name / "plain"), executor)
        for planned in plan_passes(["all-inference"]).passes:
            planned.run(program, fluid.global_scope(), [fetches[0].name])
        types = [op.type for op in program.global_block().ops]
        assert gone not in types and there in types, types
        fetched = [program.global_block().var(fetches[0].name)]
        fluid.io.save_inference_model(str(folder / name / "fused"), feeds, fetched, executor, program)
    for kind in ("plain", "fused"):
        files = {"folder": str(folder / name / kind), "model": None, "params": None}
        jobs.append({**files, "feed": str(folder / f"{name}.feed.npz"), "out": str(folder / f"{name}.{kind}.npz")})
    return jobs


@pytest.fixture(scope="module")
def folder(paddle: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where real Paddle left what it computed."""
    folder = tmp_path_factory.mktemp("fused")
    jobs = [job for name in NETWORKS for job in save(name, folder)]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    env = paddle_environment()
    subprocess.run([paddle, str(SCRIPT), str(folder / "jobs.json")], capture_output=True, check=False, env=env)
    return folder


@pytest.mark.parametrize("name", list(NETWORKS))
def test_it_computes_the_same(name: str, folder: Path) -> None:
    for kind in ("plain", "fused"):
        error = folder / f"{name}.{kind}.npz.error"
        assert not error.exists(), error.read_text()[-600:]
    plain, fused = (read_arrays(folder / f"{name}.{kind}.npz")["fetch_0"] for kind in ("plain", "fused"))
    assert array_difference(fused, plain, TOLERANCE) is None
