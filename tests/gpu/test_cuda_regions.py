"""Regions on a GPU: kernels are generated, and run as C++ thread by thread; libraries are stood in for. The numbers are numpy's."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import FluidError, OperatorError, OutOfMemoryError
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.engines.cuda import ranking
from fluidtool.runtime.engines.cuda.region import CudaRegion
from fluidtool.runtime.partition import Region, reasons
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.fuzz._networks import network
from tests.gpu.standin import EVENTS
from tests.gpu.standin.devices import MACHINE
from tests.runtime.native.checking import Array, Net

RTOL = 5e-6  # of the largest number


pytestmark = pytest.mark.usefixtures("cupy")


def on_gpu(net: Net, *names: str, runs: int = 3) -> list[Array]:
    """The outputs of the last of some runs: the second captures a graph, the third launches it."""
    executor = Executor(CUDAPlace(0))
    for _ in range(runs):
        found = executor.run(net.program, net.feeds, list(names), net.scope)
    net.plan = executor.plan(net.program, list(names)).block(0)
    return [value.numpy() for value in found]


def compiled(net: Net) -> CudaRegion:
    """What the only region was compiled to."""
    (region,) = [step for step in net.plan.work if isinstance(step, Region)]
    (found,) = region.specializations.kept.values()
    assert isinstance(found, CudaRegion)
    return found


def calls(net: Net) -> list[str]:
    """The kinds of calls: generated kernels by what they are for, libraries by their class."""
    return [getattr(call, "name", type(call).__name__).partition("_")[0] for call in compiled(net).calls]


def check(net: Net, *names: str, rtol: float = RTOL) -> list[str]:
    """The outputs are numpy's, and one region computed them; its calls."""
    want = net.run("numpy", *names)
    found = on_gpu(net, *names)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(1.0, float(np.abs(b).max())))
    return calls(net)


@pytest.mark.parametrize("type", ["prior_box", "anchor_generator"])
def test_boxes_of_a_grid_are_constants(type: str) -> None:
    """They depend on shapes alone."""
    net = Net()
    image = net.data(1, 3, 24, 24)
    features = net.op("relu", "Out", {"X": net.conv(image, net.parameter(4, 3, 3, 3), strides=[8, 8], paddings=[1, 1])})
    given: dict[str, Any] = {"Input": features}
    attrs: dict[str, Any] = {"variances": [0.1, 0.1, 0.2, 0.2], "aspect_ratios": [1.0, 2.0]}
    if type == "prior_box":
        given["Image"] = image
        boxes = net.op(type, "Boxes", given, "Variances", min_sizes=[4.0], flip=True, clip=True, **attrs)
    else:
        boxes = net.op(type, "Anchors", given, "Variances", anchor_sizes=[8.0], stride=[8.0, 8.0], **attrs)
    found = check(
        net, net.op("scale", "Out", {"X": boxes}, scale=2.0, bias=0.5), net.op("tanh", "Out", {"X": features})
    )
    assert "Convolution" in found or "Choice" in found


# ---------------------------------------------------------------- one call each
@pytest.mark.parametrize(
    ("shape", "filters", "attrs"),
    [
        ((2, 3, 9, 7), (5, 3, 3, 2), {"strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2]}),
        ((1, 8, 6, 6), (12, 2, 3, 3), {"groups": 4, "paddings": [1, 1]}),
        ((2, 6, 7, 7), (12, 1, 3, 3), {"groups": 6, "strides": [2, 2], "type": "depthwise_conv2d"}),
        ((1, 1, 5, 5), (4, 1, 1, 1), {"strides": [3, 3]}),
    ],
    ids=["uneven", "groups", "two filters for each channel", "one channel"],
)
def test_convolutions(shape: Any, filters: Any, attrs: dict[str, Any]) -> None:
    net = Net()
    check(net, net.conv(net.data(*shape), net.parameter(*filters), **attrs))


@pytest.mark.parametrize("axis", [0, 1])
def test_no_probability_is_0(axis: int) -> None:
    """Paddle takes scores that are less than the largest one by more than 64 for those."""
    net = Net()
    x = net.data(of=np.array([[0, -1e9], [-100, -200]], np.float32))
    name = net.op("softmax", "Out", {"X": x}, axis=axis)
    (want,), (found,) = net.run("numpy", name), on_gpu(net, name)
    assert want.min() > 0
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_what_follows_a_convolution_is_one_kernel() -> None:
    net = Net()
    x, weights = net.data(2, 4, 6, 6), net.parameter(4, 4, 3, 3)
    y = net.conv(x, weights, paddings=[1, 1])
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(4)}, axis=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.data(2, 4, 6, 6)}, axis=-1)
    y = net.op("relu", "Out", {"X": y})
    assert check(net, net.conv(y, weights)) == ["each", "Convolution", "each", "Convolution", "each"]


@pytest.mark.parametrize(
    "attrs",
    [
        {"pooling_type": "max", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]},
        {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "ceil_mode": True},
        {"pooling_type": "avg", "ksize": [3, 2], "strides": [2, 1], "paddings": [1, 1], "exclusive": True},
        {"pooling_type": "avg", "ksize": [3, 3], "strides": [1, 1], "paddings": [1, 1], "exclusive": False},
        {"pooling_type": "avg", "ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0], "global_pooling": True},
        {"pooling_type": "avg", "ksize": [4, 2], "strides": [1, 1], "paddings": [0, 0], "adaptive": True},
    ],
)
@pytest.mark.parametrize("after_convolution", [False, True])
def test_pooling(attrs: dict[str, Any], after_convolution: bool) -> None:
    net = Net()
    x = net.data(2, 3, 9, 7)
    if after_convolution:
        x = net.conv(x, net.parameter(5, 3, 1, 1))
    check(net, net.op("pool2d", "Out", {"X": x}, **attrs))


def test_normalization_by_channel_and_by_row() -> None:
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
    check(net, y, net.op("layer_norm", "Y", {"X": z}, "Mean", "Variance", begin_norm_axis=3, epsilon=1e-5))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_normalization_over_groups(groups: int) -> None:
    net = Net()
    inputs = {"X": net.data(2, 6, 5, 3), "Scale": net.parameter(6), "Bias": net.parameter(6)}
    y = net.op("group_norm", "Y", inputs, "Mean", "Variance", groups=groups, epsilon=1e-5, data_layout="NCHW")
    check(net, net.op("relu", "Out", {"X": y}))


def test_a_sum_before_a_normalization_is_read_with_it() -> None:
    net = Net()
    x, other = net.data(7, 600), net.data(7, 600)
    y = net.op("elementwise_add", "Out", {"X": x, "Y": other}, axis=-1)
    row = {"X": y, "Scale": net.parameter(600), "Bias": net.parameter(600)}
    y = net.op("layer_norm", "Y", row, "Mean", "Variance", begin_norm_axis=1, epsilon=1e-5)
    assert check(net, net.op("relu", "Out", {"X": y})) == ["norm"]


@pytest.mark.parametrize("type", ["add", "sub", "mul", "div", "max", "min"])
@pytest.mark.parametrize(("other", "axis"), [((2, 3, 4, 5), -1), ((3, 4), 1), ((5,), -1), ((2, 1, 4, 1), -1)])
def test_broadcasting(type: str, other: tuple[int, ...], axis: int) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4, 5)}, axis=-1)
    y = net.data(of=np.abs(net.random.standard_normal(other)).astype(np.float32) + 1)
    check(net, net.op(f"elementwise_{type}", "Out", {"X": x, "Y": y}, axis=axis))


ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
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
    ("softsign", {}),
    ("clip", {"min": -0.5, "max": 2.0}),
    ("hard_sigmoid", {"slope": 0.2, "offset": 0.5}),
    ("scale", {"scale": 2.5, "bias": -1.0, "bias_after_scale": False}),
    ("dropout", {"dropout_prob": 0.25, "is_test": True, "dropout_implementation": "downgrade_in_infer"}),
]


@pytest.mark.parametrize(("type", "attrs"), ACTIVATIONS)
def test_activations(type: str, attrs: dict[str, Any]) -> None:
    net = Net()
    values = np.linspace(0 if type == "sqrt" else -9, 9, 1001, dtype=np.float32).reshape(1, -1)
    x = net.op(
        "mul", "Out", {"X": net.data(of=np.eye(3, dtype=np.float32)), "Y": net.parameter(of=values.repeat(3, 0))}
    )
    more = ("Mask",) if type == "dropout" else ()
    check(net, net.op(type, "Out", {"X": x}, *more, **attrs), rtol=2e-6)


@pytest.mark.parametrize("type", ["relu", "sigmoid", "elementwise_max", "softmax", "reduce_max", "pool2d"])
def test_what_is_not_a_number_stays(type: str) -> None:
    net = Net()
    values = net.random.standard_normal((1, 2, 3, 3)).astype(np.float32)
    values[0, 1, 1, 1] = np.nan
    x = net.op("softmax", "Out", {"X": net.data(of=values)}, axis=1)
    attrs: dict[str, Any] = {"softmax": {"axis": -1}, "reduce_max": {"dim": [3], "keep_dim": False}}.get(type, {})
    if type == "pool2d":
        attrs = {"pooling_type": "avg", "ksize": [2, 2], "strides": [1, 1], "paddings": [0, 0]}
    inputs = {"X": x} | ({"Y": net.data(1, 2, 3, 3)} if type == "elementwise_max" else {})
    y = net.op(type, "Out", inputs, **attrs)
    np.testing.assert_array_equal(np.isnan(on_gpu(net, y)[0]), np.isnan(net.run("numpy", y)[0]))


def test_moves() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4, 6)}, axis=-1)
    a = net.op("transpose2", "Out", {"X": x}, "XShape", axis=[0, 2, 1, 3])
    b = net.op("reshape2", "Out", {"X": a}, "XShape", shape=[0, -1, 6])
    c = net.op("slice", "Out", {"Input": b}, axes=[1, 2], starts=[1, -4], ends=[9, 100], decrease_axis=[])
    d = net.op("concat", "Out", {"X": [c, c]}, axis=-1)
    parts = [d, net.op("scale", "Out", {"X": d}, scale=2.0, bias=0.0, bias_after_scale=True)]
    e = net.op("stack", "Y", {"X": parts}, axis=1)
    f = net.op("slice", "Out", {"Input": e}, axes=[1], starts=[1], ends=[2], decrease_axis=[1])
    check(net, e, f)


@pytest.mark.parametrize("padding_value", [0.0, 2.5])
def test_padding(padding_value: float) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4, 5)}, axis=-1)
    check(net, net.op("pad", "Out", {"X": x}, paddings=[0, 1, 0, 0, 2, 3, 1, 0], pad_value=padding_value))


@pytest.mark.parametrize("dims", [[3], [2, 3], [1], [0, 1], [0, 1, 2, 3]])
@pytest.mark.parametrize("type", ["sum", "mean", "max", "min", "prod"])
def test_reductions(type: str, dims: list[int]) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, 3, 4, 300)}, axis=-1)
    check(net, net.op(f"reduce_{type}", "Out", {"X": x}, dim=dims, keep_dim=True, reduce_all=False))


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_softmax(axis: int) -> None:
    net = Net()
    check(net, net.op("softmax", "Out", {"X": net.data(3, 4, 2, 700)}, axis=axis))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (3, 4, 6), (2, 1, 1, 6), (1, 2, 4, 1)])
def test_products_of_computed_matrices(shape: tuple[int, ...], swapped: bool) -> None:
    net = Net()
    other = (*shape[:-2], 5, shape[-1]) if swapped else (*shape[:-2], shape[-1], 5)
    x, y = net.data(*shape), net.data(*other)
    out = net.op("matmul", "Out", {"X": x, "Y": y}, transpose_X=False, transpose_Y=swapped, alpha=0.25)
    dims = {"x_num_col_dims": len(shape) - 1, "y_num_col_dims": 1}
    check(net, out, net.op("mul", "Out", {"X": out, "Y": net.parameter(5, 7)}, **dims))


def test_fc_with_its_bias_and_activation_is_one_call() -> None:
    net = Net()
    inputs = {"Input": net.data(3, 4, 5), "W": net.parameter(5, 7), "Bias": net.parameter(7)}
    y = net.op("fc", "Out", inputs, in_num_col_dims=2, activation_type="relu")
    assert check(net, y) == ["Product"]


def test_a_sum_and_a_bias_are_part_of_the_product() -> None:
    net = Net()
    x = net.data(6, 6)
    y = net.op("mul", "Out", {"X": x, "Y": net.parameter(6, 6)}, x_num_col_dims=1, y_num_col_dims=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(6)}, axis=-1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.data(6, 6)}, axis=-1)
    assert check(net, net.op("relu", "Out", {"X": y})) == ["Product"]


def attention(net: Net, batch: int, mask: bool, size: int = 8) -> str:
    """Two heads over five words, from queries, keys and values side by side."""
    heads = []
    for _ in range(3):
        inputs = {"X": net.data(batch, 5, size), "Y": net.parameter(size, size)}
        flat = net.op("mul", "Out", inputs, x_num_col_dims=2, y_num_col_dims=1)
        split = net.op("reshape2", "Out", {"X": flat}, "XShape", shape=[0, 0, 2, size // 2])
        heads.append(net.op("transpose2", "Out", {"X": split}, "XShape", axis=[0, 2, 1, 3]))
    q, k, v = heads
    scores = net.op("matmul", "Out", {"X": q, "Y": k}, transpose_X=False, transpose_Y=True, alpha=0.5)
    if mask:
        scores = net.op("elementwise_add", "Out", {"X": scores, "Y": net.data(batch, 1, 1, 5)}, axis=-1)
    weights = net.op("softmax", "Out", {"X": scores}, axis=-1)
    found = net.op("matmul", "Out", {"X": weights, "Y": v}, transpose_X=False, transpose_Y=False, alpha=1.0)
    turned = net.op("transpose2", "Out", {"X": found}, "XShape", axis=[0, 2, 1, 3])
    return net.op("reshape2", "Out", {"X": turned}, "XShape", shape=[0, 0, size])


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_moves_nothing(batch: int, mask: bool) -> None:
    net = Net()
    y = net.op("relu", "Out", {"X": attention(net, batch, mask)})
    assert check(net, y) == ["Product"] * (3 + batch) + ["softmax"] + ["Product"] * batch + ["each"]


@pytest.mark.parametrize("type", ["lookup_table", "lookup_table_v2"])
@pytest.mark.parametrize("padding", [-1, 3])
def test_rows_of_a_table(type: str, padding: int) -> None:
    net = Net()
    ids = np.array([[1, 3, 0], [6, 3, 2]], np.int64)
    source = net.data(of=ids[..., None] if type == "lookup_table" else ids)
    rows = net.op(type, "Out", {"W": net.parameter(7, 5), "Ids": source}, padding_idx=padding)
    y = net.op("softmax", "Out", {"X": rows}, axis=-1)
    check(net, y)
    net.feeds[source] = net.feeds[source] + 7
    with pytest.raises(OperatorError, match="holds an id of 7 to 13, the table has 7 rows"):
        on_gpu(net, y)


# ---------------------------------------------------------------- random programs
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    case = network(random.Random(seed))

    def run(executor: Executor) -> Any:
        scope = Scope()
        for name, value in case.parameters.items():
            scope.var(name).value = LoDTensor(np.array(value.numpy()), value.lod())
        return executor.run(case.program, case.feeds, case.fetches, scope)

    def outcome(executor: Executor) -> Any:
        try:
            return [value.numpy() for value in run(executor)]
        except FluidError as error:
            return type(error)

    want, found = outcome(Executor(engine="numpy", seed=1)), outcome(Executor(CUDAPlace(0), seed=1))
    if isinstance(want, type):
        assert found is want
        return
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        largest = np.abs(b[np.isfinite(b)]).max(initial=1.0) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * float(largest))


# ---------------------------------------------------------------- runs
def perceptron() -> tuple[Net, str, str]:
    net = Net()
    x = net.data(4, 8)
    y = net.op("mul", "Out", {"X": x, "Y": net.parameter(8, 6)}, x_num_col_dims=1, y_num_col_dims=1)
    return net, x, net.op("softmax", "Out", {"X": y}, axis=-1)


def test_a_run_is_one_launch_between_copies() -> None:
    net, _, y = perceptron()
    executor = Executor(CUDAPlace(0))
    for _ in range(2):
        executor.run(net.program, net.feeds, [y], net.scope)
    with EVENTS.counted() as counts:
        executor.run(net.program, net.feeds, [y], net.scope)
    assert dict(counts) == {"copies to the device": 1, "launches": 2}  # the graph, and a copy of the result


def test_results_are_arrays_of_their_own() -> None:
    net, x, y = perceptron()
    executor = Executor(CUDAPlace(0))

    def run() -> Any:
        return executor.run(net.program, net.feeds, [y], net.scope)[0]

    runs = [run() for _ in range(2)]
    kept = runs[-1].numpy().copy()
    net.feeds[x] = net.feeds[x] + np.arange(8, dtype=np.float32)
    assert (run().numpy() != kept).any()
    np.testing.assert_array_equal(runs[-1].numpy(), kept)


def test_another_batch_is_another_graph_with_the_same_constants() -> None:
    net, x, y = perceptron()
    executor, batch = Executor(CUDAPlace(0)), net.feeds[x]
    for size in (4, 2, 3):
        executor.run(net.program, {x: batch[:size]}, [y], net.scope)
    (region,) = executor.plan(net.program, [y]).block(0).work
    assert isinstance(region, Region)
    assert len(region.specializations.kept) == 3
    assert len(region.specializations.packed.arrays) == 1


def test_new_parameters_are_used() -> None:
    net, _, y = perceptron()
    on_gpu(net, y)
    variable = net.scope.find_var("parameter1")
    assert variable is not None
    variable.value = LoDTensor(np.zeros((8, 6), np.float32))
    np.testing.assert_allclose(on_gpu(net, y)[0], np.full((4, 6), 1 / 6), rtol=1e-6)


def test_a_region_is_split_at_what_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "EXACT", 2)
    net = Net()
    x = net.conv(net.data(1, 3, 7, 7), net.parameter(4, 3, 3, 3), paddings=[1, 1])
    x, _ = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=3)
    y = net.op("softmax", "Out", {"X": x}, axis=-1)
    np.testing.assert_allclose(on_gpu(net, y)[0], net.run("numpy", y)[0], rtol=1e-5, atol=1e-6)
    on_gpu(net, y)
    assert list(reasons(net.plan.work).values()) == ["rows of more than 2 elements"]


@pytest.mark.parametrize(
    ("package", "missing", "why"),
    [("cudnn", "a convolution needs cuDNN", "conv2d"), ("nvmath.bindings", "a product needs cuBLASLt", "mul")],
)
def test_without_a_library_its_operators_run_by_cupy(
    package: str, missing: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    net = Net()
    if why == "mul":
        y = net.op("mul", "Out", {"X": net.data(4, 8), "Y": net.parameter(8, 6)}, x_num_col_dims=1, y_num_col_dims=1)
    else:
        y = net.conv(net.data(1, 3, 7, 7), net.parameter(4, 3, 3, 3))
    y = net.op("softmax", "Out", {"X": y}, axis=-1)
    np.testing.assert_allclose(on_gpu(net, y)[0], net.run("numpy", y)[0], rtol=1e-5, atol=1e-6)
    on_gpu(net, y)
    assert any(missing in reason for reason in reasons(net.plan.work).values())


def test_a_region_that_does_not_fit_says_what_would() -> None:
    net = Net()
    x = net.data(1000, 64)
    y = net.op("mul", "Out", {"X": x, "Y": net.parameter(64, 640)}, x_num_col_dims=1, y_num_col_dims=1)
    y = net.op("softmax", "Out", {"X": y}, axis=-1)
    MACHINE.free_bytes = 1_000_000
    with pytest.raises(OutOfMemoryError) as found:
        Executor(CUDAPlace(0)).run(net.program, net.feeds, [y], net.scope)
    message = str(found.value)
    assert "a region needs 5,376,000 bytes on the GPU: Out of memory allocating 2,560,000 bytes" in message
    assert (
        "GPU 0 has 1,000,000 of 17,179,869,184 bytes free. About 186 of the 1000 rows of a batch would fit." in message
    )
