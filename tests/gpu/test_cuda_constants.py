"""What depends on shapes, attributes and constants alone is a constant of a region or a training step: the numbers of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CUDAPlace, LoDTensor
from tests.gpu.test_cuda_arithmetic import left
from tests.gpu.test_cuda_ranking import read, same, scores
from tests.gpu.test_cuda_regions import on_gpu
from tests.gpu.test_cuda_types_outside import stepped
from tests.gpu.test_cuda_wholes import classifier, trained, worth
from tests.gpu.test_training_images import numbered
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
FP32, INT64, INT32, BOOL = (int(each) for each in (VarType.FP32, VarType.INT64, VarType.INT32, VarType.BOOL))
Build = Callable[[Net, str], str]


def filled(net: Net, number: float, dtype: int, *shape: int) -> str:
    return net.op("fill_constant", "Out", {}, shape=list(shape) or [1], dtype=dtype, value=float(number))


def sizes_of(net: Net, x: str) -> str:
    return net.op("shape", "Out", {"Input": x})


def size_of(net: Net, x: str, axis: int) -> str:
    """The size of an axis, as scripts ask for it: [1] of int32."""
    return net.op("slice", "Out", {"Input": sizes_of(net, x)}, axes=[0], starts=[axis], ends=[axis + 1])


def counted(net: Net, start: float, end: float, step: float, dtype: int) -> str:
    bounds = {"Start": start, "End": end, "Step": step}
    return net.op("range", "Out", {slot: filled(net, number, dtype) for slot, number in bounds.items()})


def evenly(net: Net) -> str:
    given = {"Start": filled(net, -1, FP32), "Stop": filled(net, 2, FP32), "Num": filled(net, 7, INT32)}
    return net.op("linspace", "Out", given)


def halved(net: Net, x: str) -> str:
    """Half of the size of the last axis."""
    by = {"X": size_of(net, x, 2), "Y": filled(net, 2, INT32)}
    return net.op("elementwise_floordiv", "Out", by, axis=-1)


CONSTANTS: dict[str, Build] = {
    "shape": sizes_of,
    "size": lambda net, x: net.op("size", "Out", {"Input": x}),
    "a size": lambda net, x: size_of(net, x, 1),
    "arithmetic on sizes": halved,
    "a cast of sizes": lambda net, x: net.op("cast", "Out", {"X": sizes_of(net, x)}, in_dtype=INT32, out_dtype=FP32),
    "the product of sizes": lambda net, x: net.op("reduce_prod", "Out", {"X": sizes_of(net, x)}, reduce_all=True, dim=[0]),
    "range of int64": lambda net, x: counted(net, 3, -9, -2, INT64),
    "range of int32": lambda net, x: counted(net, 0, 7, 1, INT32),
    "range of floats": lambda net, x: counted(net, 0.5, 3, 0.3, FP32),
    "linspace": lambda net, x: evenly(net),
    "eye": lambda net, x: net.op("eye", "Out", {}, num_rows=3, num_columns=4, dtype=INT64),
    "assign_value": lambda net, x: net.op("assign_value", "Out", {}, shape=[2, 2], dtype=INT32, int32_values=[1, -2, 3, 4]),
    "fill_constant of a computed shape": lambda net, x: net.op(
        "fill_constant", "Out", {"ShapeTensorList": [size_of(net, x, 1), filled(net, 2, INT32)]},
        shape=[-1, -1], dtype=INT64, value=5.0,
    ),
    "floats of a computed shape": lambda net, x: net.op(
        "fill_constant", "Out", {"ShapeTensor": sizes_of(net, x)}, shape=[], dtype=FP32, value=0.5
    ),
    "fill_constant of booleans": lambda net, x: filled(net, 1, BOOL, 2, 3),
    "fill_any_like": lambda net, x: net.op("fill_any_like", "Out", {"X": x}, value=2.5, dtype=-1),
    "fill_any_like of int64": lambda net, x: net.op("fill_any_like", "Out", {"X": x}, value=2.5, dtype=INT64),
    "fill_zeros_like": lambda net, x: net.op("fill_zeros_like", "Out", {"X": x}),
    "fill_zeros_like of int32": lambda net, x: net.op("fill_zeros_like", "Out", {"X": sizes_of(net, x)}),
    "fill_constant_batch_size_like": lambda net, x: net.op(
        "fill_constant_batch_size_like", "Out", {"Input": x}, shape=[-1, 4], dtype=INT32, value=3.0
    ),
    "the shape of another one": lambda net, x: net.op(
        "reshape2", "Out", {"X": x, "ShapeTensor": [size_of(net, x, 2), filled(net, -1, INT32)]}, "XShape", shape=[-1, -1]
    ),
    "the shape of a tensor": lambda net, x: net.op(
        "reshape2", "Out", {"X": x, "Shape": net.op("scale", "Out", {"X": sizes_of(net, x)}, scale=1.0)}, "XShape", shape=[]
    ),
    "repeats": lambda net, x: net.op(
        "expand", "Out", {"X": x, "expand_times_tensor": [filled(net, n, INT32) for n in (1, 2, 1)]}, expand_times=[-1] * 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_a_region(name: str) -> None:
    net = Net()
    same(net, CONSTANTS[name](net, read(net, scores("numbers", 2, 3, 4))), worth(net))


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_a_step(name: str, compiled: list[CudaStep]) -> None:
    net = Net()
    stepped(net, CONSTANTS[name](net, net.op("relu", "Out", {"X": net.data(2, 3, 4)})))
    assert len(compiled) == 1


def test_other_shapes_have_other_constants() -> None:
    net = Net()
    x = net.data(2, 3)
    names = [net.op("relu", "Out", {"X": sums_of(net, x)}), worth(net)]
    for shape in ((2, 3), (5, 3), (1, 7), (2, 3)):
        net.feeds[x] = net.random.standard_normal(shape).astype(np.float32)
        for a, b in zip(on_gpu(net, *names), net.run("numpy", *names), strict=True):
            np.testing.assert_array_equal(a, b)
    on_gpu(net, *names)
    assert net.why_not() == [] and net.regions() == 1


def sums_of(net: Net, x: str) -> str:
    """Numbers and ones of their shape."""
    ones = net.op("fill_constant", "Out", {"ShapeTensor": sizes_of(net, x)}, shape=[], dtype=FP32, value=1.0)
    return net.op("elementwise_add", "Out", {"X": x, "Y": ones}, axis=-1)


# ---------------------------------------------------------------- bounds that are tensors
def sliced(net: Net, x: str, **bounds: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs and attributes of a slice of the last two axes."""
    return {"Input": x, **bounds}, {"axes": [1, 2], "starts": [-1, -1], "ends": [-1, -1], "infer_flags": [-1, -1]}


def pair(net: Net, *names: str) -> str:
    return net.op("concat", "Out", {"X": list(names)}, axis=0)


BOUNDS: dict[str, Callable[[Net, str], tuple[dict[str, Any], dict[str, Any]]]] = {
    "tensors": lambda net, x: sliced(
        net, x, StartsTensor=pair(net, filled(net, 1, INT32), filled(net, 0, INT32)),
        EndsTensor=pair(net, size_of(net, x, 1), halved(net, x)),
    ),
    "lists of tensors": lambda net, x: sliced(
        net, x, StartsTensorList=[filled(net, -2, INT32), filled(net, 1, INT32)],
        EndsTensorList=[size_of(net, x, 1), halved(net, x)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_of_a_slice_may_be_constant_tensors(name: str) -> None:
    net = Net()
    given, attrs = BOUNDS[name](net, read(net, scores("numbers", 2, 3, 4)))
    same(net, net.op("slice", "Out", given, **attrs), worth(net))


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_of_a_slice_and_its_gradient_in_a_step(name: str, compiled: list[CudaStep]) -> None:
    net = Net()
    given, attrs = BOUNDS[name](net, net.op("relu", "Out", {"X": net.data(2, 3, 4)}))
    y = net.op("slice", "Out", given, **attrs)
    grads = net.several("slice_grad", {"Input@GRAD": 1}, {**given, "Out@GRAD": numbered(net, y)}, **attrs)
    stepped(net, y, *grads)
    assert len(compiled) == 1


MOVES: dict[str, Callable[[Net, str], list[str]]] = {
    "split at a size": lambda net, x: net.several(
        "split", {"Out": 2},
        {"X": x, "AxisTensor": filled(net, 2, INT32), "SectionsTensorList": [halved(net, x), filled(net, -1, INT32)]},
        sections=[-1, -1], num=0, axis=0,
    ),
    "new axes": lambda net, x: [
        net.op("unsqueeze2", "Out", {"X": x, "AxesTensor": filled(net, 1, INT32)}, "XShape", axes=[]),
        net.op("unsqueeze2", "Out", {"X": x, "AxesTensorList": [filled(net, n, INT32) for n in (0, -1)]}, "XShape", axes=[]),
    ],
    "concat along an axis": lambda net, x: [net.op("concat", "Out", {"X": [x, x], "AxisTensor": filled(net, -1, INT32)}, axis=0)],
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_sizes_and_axes_of_moves_may_be_constant_tensors(name: str) -> None:
    net = Net()
    same(net, *MOVES[name](net, read(net, scores("numbers", 2, 3, 4))), worth(net))


@pytest.mark.parametrize("name", MOVES)
def test_sizes_and_axes_of_moves_in_a_step(name: str, compiled: list[CudaStep]) -> None:
    net = Net()
    stepped(net, *MOVES[name](net, net.op("relu", "Out", {"X": net.data(2, 3, 4)})))
    assert len(compiled) == 1


def test_bounds_that_are_fed_are_left_to_the_operator() -> None:
    net = Net()
    x, bound = read(net, scores("numbers", 2, 6)), net.data(of=np.array([4], np.int32))
    given = {"Input": x, "StartsTensor": filled(net, 1, INT32), "EndsTensor": bound}
    found = net.op("slice", "Out", given, axes=[1], starts=[-1], ends=[-1], infer_flags=[-1])
    left(net, "EndsTensor that is computed", found)


# ---------------------------------------------------------------- what is no constant
def test_a_range_up_to_a_number_that_is_fed_is_left_to_the_operator() -> None:
    net = Net()
    end = net.data(of=np.array([5]))
    found = net.op("range", "Out", {"Start": filled(net, 0, INT64), "End": end, "Step": filled(net, 1, INT64)})
    left(net, f"a constant that depends on {end}", found, worth(net))


def test_a_shape_that_is_fed_is_left_to_the_operator() -> None:
    net = Net()
    given = {"X": read(net, scores("numbers", 2, 6)), "Shape": net.data(of=np.array([3, 4], np.int32))}
    left(net, "Shape that is computed", net.op("reshape2", "Out", given, "XShape", shape=[]))


def test_a_step_of_0_has_the_message_of_the_cpu() -> None:
    net = Net()
    names, messages = [counted(net, 0, 3, 0, INT64), worth(net)], []
    for run in (lambda: net.run("numpy", *names), lambda: on_gpu(net, *names)):
        with pytest.raises(Exception, match="Step must not be 0") as caught:
            run()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


# ---------------------------------------------------------------- sequences, boxes, parameters
@pytest.mark.parametrize("dtype", [FP32, INT64, INT32])
def test_constants_for_each_sequence_of_a_step(dtype: int, compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.data(5, 2)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 2, 5]])
    like = {"Input": net.op("relu", "Out", {"X": x})}
    stepped(net, net.op("fill_constant_batch_size_like", "Out", like, shape=[-1, 4], dtype=dtype, value=3.0))
    assert len(compiled) == 1


GRIDS: dict[str, tuple[tuple[str, str], Mapping[str, Any]]] = {
    "prior_box": (("Boxes", "Variances"), {"min_sizes": [4.0], "max_sizes": [8.0], "aspect_ratios": [2.0], "flip": True}),
    "density_prior_box": (
        ("Boxes", "Variances"), {"fixed_sizes": [4.0], "fixed_ratios": [1.0], "densities": [2], "flatten_to_2d": True},
    ),
    "anchor_generator": (
        ("Anchors", "Variances"), {"anchor_sizes": [16.0], "aspect_ratios": [0.5, 1.0], "stride": [8.0, 8.0]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("type", GRIDS)
def test_boxes_of_a_grid_in_a_step(type: str, compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.op("relu", "Out", {"X": net.data(1, 3, 4, 4)})
    given = {"Input": x} if type == "anchor_generator" else {"Input": x, "Image": net.data(1, 3, 32, 32)}
    slots, attrs = GRIDS[type]
    stepped(net, *net.several(type, dict.fromkeys(slots, 1), given, variances=[0.1, 0.1, 0.2, 0.2], **attrs))
    assert len(compiled) == 1


def by_sizes(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """The average loss, by the number of rows; and the rows in the order that they have."""
    rows = layers.slice(layers.shape(probabilities), axes=[0], starts=[0], ends=[1])
    places = layers.range(0, 6, 1, "int64")
    return [layers.reduce_sum(loss) / layers.cast(rows, "float32"), layers.gather(probabilities, places), rows]


def masked(probabilities: Any, y: Any, loss: Any) -> list[Any]:
    """The loss of the samples of some classes."""
    zero = layers.fill_constant_batch_size_like(y, [-1, 1], "int64", 0)
    ones = layers.ones_like(loss)
    return [layers.reduce_sum(loss * layers.cast(layers.not_equal(y, zero), "float32") + ones)]


@pytest.mark.parametrize("build", [by_sizes, masked])
def test_metrics_by_constants_are_part_of_the_graph(build: Any, compiled: list[CudaStep]) -> None:
    trained(*classifier(build))
    assert len(compiled) == 3


def test_a_step_with_a_shape_of_a_batch_is_one_graph_for_each_batch(compiled: list[CudaStep]) -> None:
    """Shapes that a script computes do not divide forward from backward."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [6])
        rows = layers.slice(layers.shape(x), axes=[0], starts=[0], ends=[1])
        hidden = layers.reshape(layers.fc(x, 8, act="tanh"), [rows, 2, 4])
        start = layers.fill_constant([rows, 1, 4], "float32", 0.25)
        loss = layers.mean(layers.square(layers.concat([hidden, start], axis=1)))
        fluid.optimizer.Adam(1e-2).minimize(loss)
    found: list[list[Array]] = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        feeds = [np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32) for n in (3, 5, 3)]
        found.append([executor.run(main, {"x": feed}, [loss], scope=scope)[0] for feed in feeds])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)
    assert len(compiled) == 3 and len(set(compiled)) == 2
