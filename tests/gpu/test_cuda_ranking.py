"""Where the largest and smallest numbers are, in regions on a GPU: places and order of the CPU, ties and NaN included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda import ranking
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.test_cuda_regions import calls, on_gpu
from tests.gpu.test_training_halves import near
from tests.gpu.test_training_reductions import in_a_step, kernels
from tests.gpu.test_training_softmax import jobs
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
LIMITS = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ["numbers", "ties", "equal", "infinite", "nan", "nan and ties", "nothing else"]


def scores(kind: str, *shape: int, seed: int = 0) -> Array:
    """Scores that are all different, often equal, always equal, infinite, or not numbers."""
    random = np.random.default_rng(seed)
    found = random.standard_normal(shape).astype(np.float32)
    if "ties" in kind:
        found = random.integers(-2, 3, shape).astype(np.float32)
    if kind == "equal":
        found[...] = 0.25
    if kind == "infinite":
        found = random.choice(np.array([-np.inf, -np.inf, 1, np.inf], np.float32), shape)
    if "nan" in kind:
        found[random.random(shape) < 0.3] = np.nan
    if kind == "nothing else":
        found[...] = np.nan
    return found


def same(net: Net, *names: str) -> list[str]:
    """The results of the only region are numpy's, to the bit; its calls."""
    want, found = net.run("numpy", *names), on_gpu(net, *names)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    return calls(net)


def read(net: Net, array: Array) -> str:
    """Scores that a region reads: it begins with an operator that makes it worthwhile."""
    pooled = net.data(of=array.reshape(*[1] * max(4 - array.ndim, 0), *array.shape))
    found = net.op("pool2d", "Out", {"X": pooled}, pooling_type="max", ksize=[1, 1], strides=[1, 1], paddings=[0, 0])
    return net.op("reshape2", "Out", {"X": found}, "XShape", shape=list(array.shape))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type", ["arg_max", "arg_min"])
@pytest.mark.parametrize(("shape", "axis"), [((4, 7), 1), ((4, 7), 0), ((2, 5, 3), 1), ((3, 300), -1), ((1, 1), 1)])
def test_the_first_place_of_the_largest_or_smallest_number(shape: Any, axis: int, type: str, kind: str) -> None:
    net = Net()
    x = read(net, scores(kind, *shape))
    assert same(net, net.op(type, "Out", {"X": x}, axis=axis))[-1] == "place"


def test_an_axis_may_be_kept() -> None:
    net = Net()
    x = read(net, scores("ties", 4, 6))
    same(net, net.op("arg_max", "Out", {"X": x}, axis=1, keepdims=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "k"), [(5, 1), (5, 2), (5, 5), (300, 3), (300, 1), (40, 7), (1, 1), (70, 64)])
def test_the_largest_numbers_and_their_places(columns: int, k: int, kind: str) -> None:
    net = Net()
    x = read(net, scores(kind, 6, columns))
    names = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=k)
    assert same(net, *names)[-2:] == (["place", "each"] if k == 1 else ["largest", "each"])


@LIMITS
@given(
    columns=st.sampled_from([2, 3, 4, 8, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1023, 1025]),
    k=st.integers(1, 9),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
)
def test_rows_at_the_edges_of_warps_and_blocks(columns: int, k: int, kind: str, seed: int) -> None:
    net = Net()
    x = read(net, scores(kind, 3, columns, seed=seed))
    same(net, *net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=min(k, columns)))


@pytest.mark.parametrize("kind", ["numbers", "ties", "a nan"])
def test_a_row_that_registers_do_not_hold(kind: str) -> None:
    """Of several NaN in long rows numpy takes any."""
    net, array = Net(), scores(kind.replace("a nan", "numbers"), 2, 256 * 32 + 5)
    if kind == "a nan":
        array[1, 5000] = np.nan
    x = read(net, array)
    names = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=4)
    same(net, *names, net.op("arg_max", "Out", {"X": x}, axis=-1))


def test_the_places_alone() -> None:
    net = Net()
    x = read(net, scores("ties", 6, 9))
    assert same(net, net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=2)[1])[-1] == "largest"


@pytest.mark.parametrize("attrs", [{"k": 3}, {"k": 3, "axis": 0}, {"k": 3, "largest": False}])
def test_later_attributes_that_have_no_kernel_are_left_to_the_operator(attrs: dict[str, Any]) -> None:
    net = Net()
    x = read(net, scores("numbers", 6, 9))
    names = net.several("top_k_v2", {"Out": 1, "Indices": 1}, {"X": x}, **attrs)
    want, found = net.run("numpy", *names), on_gpu(net, *names)
    assert bool(net.why_not()) == (len(attrs) > 1)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "k"), [(65, 65), (66, 65), (128, 100), (200, 200), (1500, 300)])
def test_many_of_the_largest_numbers(columns: int, k: int, kind: str) -> None:
    """Rows are sorted; of equal numbers those of the CPU, in its order."""
    net = Net()
    x = read(net, scores(kind, 3, columns))
    names = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=k)
    assert same(net, *names)[-3:] == ["sort", "largest", "each"]


@pytest.mark.parametrize("kind", ["numbers", "ties", "infinite"])
def test_many_of_more_numbers_than_a_block_sorts(kind: str) -> None:
    net = Net()
    x = read(net, scores(kind, 2, 5000))
    names = net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=150)
    assert same(net, *names)[-5:] == ["sort", "merge", "merge", "largest", "each"]


@pytest.mark.parametrize("kind", ["numbers", "ties", "infinite", "nan"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(5,), (4, 1), (3, 7), (2, 3, 130), (2, 2100)])
def test_all_numbers_in_order(shape: tuple[int, ...], descending: bool, kind: str) -> None:
    """Equal numbers keep their order, and what is not a number counts as the largest."""
    net = Net()
    x = read(net, scores(kind, *shape))
    names = net.several("argsort", {"Out": 1, "Indices": 1}, {"X": x}, axis=-1, descending=descending)
    assert "sort" in same(net, *names)


def test_the_order_along_another_axis_is_left_to_the_operator() -> None:
    net = Net()
    x = read(net, scores("numbers", 3, 7))
    names = net.several("argsort", {"Out": 1, "Indices": 1}, {"X": x}, axis=0)
    want, found = net.run("numpy", *names), on_gpu(net, *names)
    assert net.why_not() == ["an axis other than the last"]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("type", ["top_k", "argsort"])
def test_more_than_a_kernel_counts_is_left_to_the_operator(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "EXACT", 2)
    net = Net()
    x = read(net, scores("ties", 6, 9))
    attrs: dict[str, Any] = {"k": 3} if type == "top_k" else {"axis": -1}
    names = net.several(type, {"Out": 1, "Indices": 1}, {"X": x}, **attrs)
    want, found = net.run("numpy", *names), on_gpu(net, *names)
    (why,) = net.why_not()
    assert why == "rows of more than 2 elements"
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_in_halves_the_places_are_those_of_the_rounded_scores(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    net = Net()
    x = read(net, scores("ties", 6, 40))
    same(net, *net.several("top_k", {"Out": 1, "Indices": 1}, {"X": x}, k=4))


# ---------------------------------------------------------------- training steps
def ranked(net: Net, type: str, x: Array, is_odd: bool = False, **attrs: Any) -> list[str]:
    """Numbers in order and their places, and the gradient by all numbers. is_odd: by a result that is no view of memory."""
    given = net.data(of=x)
    out, places = net.several(type, {"Out": 1, "Indices": 1}, {"X": given}, **attrs)
    (made,) = net.run("numpy", out)
    grad = net.data(of=np.arange(1, 1 + made.size, dtype=np.float32).reshape(made.shape))
    if is_odd:
        grad = net.op("square", "Out", {"X": grad})
    inputs = {"X": given, "Indices": places, "Out@GRAD": grad}
    attrs = {} if type == "top_k" else attrs
    return [out, places, net.op(f"{type}_grad", "X@GRAD", inputs, **attrs)]


@pytest.mark.parametrize("is_odd", [False, True])
@pytest.mark.parametrize(("shape", "k"), [((3, 7), 1), ((3, 7), 4), ((2, 3, 40), 40), ((2, 300), 100), ((70,), 3)])
def test_the_gradient_goes_back_to_its_places(
    shape: tuple[int, ...], k: int, is_odd: bool, compiled: list[CudaStep]
) -> None:
    net = Net()
    names = ranked(net, "top_k", scores("ties", *shape), is_odd, k=k)
    names += ranked(net, "top_k_v2", scores("numbers", *shape), is_odd, k=k, axis=-1)
    _, _, grad, *_ = in_a_step(net, *names)
    assert len(compiled) == 1 and kernels(compiled[-1]).count("back") == 2
    assert np.count_nonzero(grad) == grad.size // shape[-1] * k


@pytest.mark.parametrize("descending", [False, True])
def test_the_gradient_of_an_order(descending: bool, compiled: list[CudaStep]) -> None:
    net = Net()
    in_a_step(net, *ranked(net, "argsort", scores("ties", 4, 90), axis=-1, descending=descending))
    assert len(compiled) == 1 and kernels(compiled[-1])[-1] == "back"


def test_the_gradient_by_places_from_elsewhere_is_left_to_cupy(compiled: list[CudaStep]) -> None:
    """They may name one twice."""
    net = Net()
    inputs = {"X": net.data(2, 5), "Indices": net.data(of=np.array([[1, 1], [0, 4]])), "Out@GRAD": net.data(2, 2)}
    in_a_step(net, net.op("top_k_grad", "X@GRAD", inputs))
    assert [step.calls for step in compiled if step.calls] == []


@pytest.mark.parametrize("half", ["", "fp16", "bf16"])
def test_a_network_that_learns_from_its_largest_numbers(
    half: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Any:
        x = layers.fc(layers.data("x", [8]), 100, act="tanh")
        return layers.mean(layers.square(layers.fc(layers.topk(x, 70)[0], 3) - 0.5))

    batches = [{"x": np.random.default_rng(seed).standard_normal((6, 8)).astype(np.float32)} for seed in range(3)]
    if half:
        monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
        near(build, batches, half, growth=4.0)
    else:
        both = jobs(build, batches)
        assert both[1].region().region.parts is None
    assert len(compiled) == 3
