"""Regions that ONNX Runtime or OpenVINO computes: numpy's numbers, and the rest stays here.

Also an oracle for the native engine and numpy: two more implementations of every computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import DeviceError, OperatorError, UsageError
from fluidtool.runtime import Executor
from fluidtool.runtime.graph.importers import IMPORTERS
from fluidtool.tensor import CUDAPlace
from tests.cli.support import DIGITS, TOPICS, call, call_json, error_of
from tests.runtime.native.checking import Array, Net

PACKAGES = {"onnxruntime": ("onnxruntime", "onnx"), "openvino": ("openvino",)}


def missing(engine: str) -> list[str]:
    """The packages of an engine that are not installed."""
    return [name for name in PACKAGES[engine] if find_spec(name) is None]


INSTALLED = [engine for engine in PACKAGES if not missing(engine)]


@pytest.fixture(params=INSTALLED or ["neither"])
def engine(request: pytest.FixtureRequest) -> str:
    if not INSTALLED:
        pytest.skip("neither is installed: pip install 'fluidtool[onnxruntime,openvino]'")
    return str(request.param)


@pytest.mark.parametrize("engine", PACKAGES)
def test_an_engine_is_tried_where_it_is_installed(engine: str) -> None:
    if missing(engine):
        pytest.skip(f"{', '.join(missing(engine))} is not installed: pip install 'fluidtool[{engine}]'")
    assert engine in INSTALLED


def check(net: Net, engine: str, *names: str, rtol: float = 5e-6, regions: int = 1) -> None:
    """The outputs are numpy's within `rtol` of the largest number, and the engine computed them."""
    want, found = net.run("numpy", *names), net.run(engine, *names)
    assert net.why_not() == [] and net.regions() == regions
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a - b).max() <= rtol * max(1.0, np.abs(b).max())


# ---------------------------------------------------------------- computations
@pytest.mark.parametrize(
    ("shape", "filters", "attrs"),
    [
        ((2, 3, 9, 7), (5, 3, 3, 2), {"strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2]}),
        ((1, 8, 6, 6), (12, 2, 3, 3), {"groups": 4, "paddings": [1, 1]}),
        ((2, 6, 7, 7), (6, 1, 3, 3), {"groups": 6, "strides": [2, 2], "type": "depthwise_conv2d"}),
        ((1, 4, 5, 5), (4, 4, 1, 1), {"strides": [3, 3]}),
    ],
    ids=["uneven", "groups", "depthwise", "stride above kernel"],
)
def test_convolution(engine: str, shape: Any, filters: Any, attrs: dict[str, Any]) -> None:
    net = Net()
    check(net, engine, net.conv(net.data(*shape), net.parameter(*filters), **attrs))


@pytest.mark.parametrize(
    "attrs",
    [
        {"pooling_type": "max", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]},
        {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "ceil_mode": True},
        {"pooling_type": "avg", "ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1], "exclusive": True},
        {"pooling_type": "avg", "ksize": [3, 3], "strides": [1, 1], "paddings": [1, 1], "exclusive": False},
        {"pooling_type": "avg", "ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0], "global_pooling": True},
        {"pooling_type": "avg", "ksize": [3, 1], "strides": [1, 1], "paddings": [0, 0], "adaptive": True},
    ],
)
def test_pooling(engine: str, attrs: dict[str, Any]) -> None:
    net = Net()
    check(net, engine, net.op("pool2d", "Out", {"X": net.data(2, 3, 9, 7)}, **attrs))


def test_normalization_by_channel_and_by_row(engine: str) -> None:
    net = Net()
    inputs = {
        "X": net.data(2, 5, 4, 3),
        "Scale": net.parameter(5),
        "Bias": net.parameter(5),
        "Mean": net.parameter(5),
        "Variance": net.parameter(of=np.linspace(0.5, 2, 5, dtype=np.float32)),
    }
    more = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
    y = net.op("batch_norm", "Y", inputs, *more, is_test=True, epsilon=1e-5, momentum=0.9)
    row = {"X": y, "Scale": net.parameter(12), "Bias": net.parameter(12)}
    z = net.op("layer_norm", "Y", row, "Mean", "Variance", begin_norm_axis=2, epsilon=1e-5)
    check(net, engine, y, net.op("layer_norm", "Y", {"X": z}, "Mean", "Variance", begin_norm_axis=3, epsilon=1e-5))


@pytest.mark.parametrize("type", ["add", "sub", "mul", "div", "max", "min"])
@pytest.mark.parametrize(("other", "axis"), [((2, 3, 4, 5), -1), ((3, 4), 1), ((5,), -1), ((2, 1, 4, 1), -1)])
def test_broadcasting(engine: str, type: str, other: tuple[int, ...], axis: int) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4, 5)}, axis=-1)
    y = net.data(of=np.abs(net.random.standard_normal(other)).astype(np.float32) + 1)
    check(net, engine, net.op(f"elementwise_{type}", "Out", {"X": x, "Y": y}, axis=axis))


@pytest.mark.parametrize(
    ("type", "attrs"),
    [
        ("relu", {}),
        ("relu6", {"threshold": 6.0}),
        ("sigmoid", {}),
        ("tanh", {}),
        ("gelu", {"approximate": False}),
        ("gelu", {"approximate": True}),
        ("leaky_relu", {"alpha": 0.02}),
        ("hard_swish", {"threshold": 6.0, "scale": 6.0, "offset": 3.0}),
        ("swish", {"beta": 1.5}),
        ("exp", {}),
        ("sqrt", {}),
        ("square", {}),
        ("abs", {}),
        ("hard_sigmoid", {"slope": 0.2, "offset": 0.5}),
        ("scale", {"scale": 2.5, "bias": -1.0, "bias_after_scale": True}),
        ("scale", {"scale": 2.5, "bias": -1.0, "bias_after_scale": False}),
        ("dropout", {"dropout_prob": 0.25, "is_test": True, "dropout_implementation": "downgrade_in_infer"}),
    ],
)
def test_activations(engine: str, type: str, attrs: dict[str, Any]) -> None:
    net = Net()
    values = np.linspace(0 if type == "sqrt" else -9, 9, 1001, dtype=np.float32).reshape(1, -1)
    x = net.op(
        "mul", "Out", {"X": net.data(of=np.eye(3, dtype=np.float32)), "Y": net.parameter(of=values.repeat(3, 0))}
    )
    x = net.op("scale", "Out", {"X": x}, scale=1.0, bias=0.0, bias_after_scale=True)
    more = ("Mask",) if type == "dropout" else ()
    check(net, engine, net.op(type, "Out", {"X": x}, *more, **attrs))


def test_moves(engine: str) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4, 6)}, axis=-1)
    a = net.op("transpose2", "Out", {"X": x}, "XShape", axis=[0, 2, 1, 3])
    b = net.op("reshape2", "Out", {"X": a}, "XShape", shape=[0, -1, 6])
    c = net.op("slice", "Out", {"Input": b}, axes=[1, 2], starts=[1, -4], ends=[9, 100], decrease_axis=[])
    d = net.op("concat", "Out", {"X": [c, c]}, axis=-1)
    parts = [d, net.op("scale", "Out", {"X": d}, scale=2.0, bias=0.0, bias_after_scale=True)]
    e = net.op("stack", "Y", {"X": parts}, axis=1)
    f = net.op("slice", "Out", {"Input": e}, axes=[1], starts=[1], ends=[2], decrease_axis=[1])
    check(net, engine, e, f)


@pytest.mark.parametrize("swapped", [False, True])
def test_products(engine: str, swapped: bool) -> None:
    net = Net()
    x, y = net.data(2, 3, 4, 6), net.data(*((2, 3, 5, 6) if swapped else (2, 3, 6, 5)))
    out = net.op("matmul", "Out", {"X": x, "Y": y}, transpose_X=False, transpose_Y=swapped, alpha=0.25)
    flat = net.op("mul", "Out", {"X": out, "Y": net.parameter(5, 7)}, x_num_col_dims=3, y_num_col_dims=1)
    check(net, engine, out, flat)


def test_fc_with_its_bias_and_activation(engine: str) -> None:
    net = Net()
    inputs = {"Input": net.data(3, 4, 5), "W": net.parameter(5, 7), "Bias": net.parameter(7)}
    check(net, engine, net.op("fc", "Out", inputs, in_num_col_dims=2, activation_type="relu"))


@pytest.mark.parametrize("type", ["lookup_table", "lookup_table_v2"])
@pytest.mark.parametrize("padding", [-1, 3])
def test_rows_of_a_table(engine: str, type: str, padding: int) -> None:
    net = Net()
    ids = np.array([[1, 3, 0], [6, 3, 2]], np.int64)
    source = net.data(of=ids[..., None] if type == "lookup_table" else ids)
    rows = net.op(type, "Out", {"W": net.parameter(7, 5), "Ids": source}, padding_idx=padding)
    y = net.op("softmax", "Out", {"X": rows}, axis=-1)
    check(net, engine, y)
    net.feeds[source] = net.feeds[source] + 7
    with pytest.raises(OperatorError, match="holds an id of 7 to 13, the table has 7 rows"):
        net.run(engine, y)


# ---------------------------------------------------------------- whole models
@pytest.mark.parametrize("sample", [DIGITS, TOPICS], ids=["digits", "topics"])
def test_samples_give_what_paddle_gave(engine: str, sample: Any) -> None:
    args = (
        ["--lod", sample / "lod.json", "--feed", sample / "feed.npz"]
        if sample == TOPICS
        else ["--feed", sample / "x.npy"]
    )
    result = call("run", sample, *args, "--engine", engine, "--expect", sample / "expected.npz")
    assert result.exit_code == 0, result.stderr


def test_large_constants_and_another_batch_size(engine: str) -> None:
    net = Net()
    x = net.data(2, 64)
    y = net.op("mul", "Out", {"X": x, "Y": net.parameter(64, 50)})
    check(net, engine, y, rtol=1e-5)
    net.feeds[x] = np.concatenate([net.feeds[x]] * 3)
    check(net, engine, y, rtol=1e-5)


def test_results_are_arrays_of_their_own(engine: str) -> None:
    net = Net()
    x = net.data(2, 5)
    y = net.op("softmax", "Out", {"X": x}, axis=-1)
    executor = Executor(engine=engine)

    def run(feeds: Mapping[str, Array]) -> Array:
        return executor.run(net.program, feeds, [y], net.scope)[0].numpy()

    first = run(net.feeds)
    kept = first.copy()
    run({x: net.feeds[x] + 1.5 * np.arange(5, dtype=np.float32)})
    np.testing.assert_array_equal(first, kept)


# ---------------------------------------------------------------- what stays here
def uneven(net: Net) -> str:
    """A convolution, adaptive windows of different sizes, a softmax."""
    x = net.conv(net.data(1, 3, 7, 7), net.parameter(4, 3, 3, 3), paddings=[1, 1])
    attrs = {"pooling_type": "avg", "ksize": [3, 3], "strides": [1, 1], "paddings": [0, 0], "adaptive": True}
    return net.op("softmax", "Out", {"X": net.op("pool2d", "Out", {"X": x}, **attrs)}, axis=-1)


def test_a_region_is_cut_at_what_is_not_delegated(engine: str) -> None:
    net = Net()
    y = uneven(net)
    want, found = net.run("numpy", y), net.run(engine, y)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-5, atol=1e-6)
    assert net.why_not() == ["adaptive windows of different sizes are not delegated"]


def test_the_plan_says_what_is_delegated(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = call_json("inspect", DIGITS, "--plan", "--engine", engine)
    assert data["delegated_to"] == engine and {step["engine"] for step in data["steps"]} == {engine}
    assert len(data["native"]["regions"]) == 1
    monkeypatch.delitem(IMPORTERS, "sequence_pool")  # as if there were no importer
    out = call("inspect", TOPICS, "--plan", "--engine", engine).stdout
    assert "sequence_pool" in out.split("Left to numpy")[1]


def test_run_says_who_computed(engine: str) -> None:
    result = call("run", DIGITS, "--random", "--engine", engine, "--repeat", 2)
    assert f"2 runs by {engine} (" in result.stderr and "11 of 11 operators in 1 region" in result.stderr


def test_a_profile_shows_regions_as_one(engine: str) -> None:
    items = call_json("profile", DIGITS, "--random", "--engine", engine, "--repeat", 1)["items"]
    assert [(item["kernel"], item["engine"]) for item in items] == [("region", engine), ("in and out", engine)]
    assert items[0]["multiply_adds"] > 0


# ---------------------------------------------------------------- where it is not
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_missing_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(import_module(f"fluidtool.runtime.engines.{name}"), "version", missing)
    with pytest.raises(DeviceError, match=rf"engine {name} is not available .*pip install 'fluidtool\[{name}\]'"):
        fluidtool.load(DIGITS, engine=name)
    assert "pip install" in error_of(call("run", DIGITS, "--random", "--engine", name))


@pytest.mark.parametrize("name", PACKAGES)
def test_at_a_gpu_they_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"the engine {name} computes on the CPU"):
        fluidtool.load(DIGITS, engine=name, place=CUDAPlace(0))
