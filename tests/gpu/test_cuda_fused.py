"""What cuDNN computes at once on a GPU, or the engine where it refuses: ends of convolutions, attention; and halves in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda.lowering import HALVES
from fluidtool.runtime.engines.cuda.sources import PRELUDE
from tests.gpu import cases
from tests.gpu.standin.devices import MACHINE
from tests.gpu.standin.kernels import RawModule
from tests.gpu.test_cuda_regions import attention, calls, check, compiled, on_gpu
from tests.runtime.native.checking import Net

ROUNDING = {"fp16": 2.5e-3, "bf16": 2e-2}  # by norm: some units in the last place, 2**-11 and 2**-8 of a number


pytestmark = pytest.mark.usefixtures("cupy")


@pytest.fixture(params=[False, True], ids=["taken", "refused"])
def refused(request: pytest.FixtureRequest) -> bool:
    """Whether cuDNN has no plans for sums, activations and attention."""
    if request.param:
        MACHINE.refused = frozenset({"add", "relu", "sigmoid", "tanh", "gelu", "swish", "sdpa"})
    return bool(request.param)


@pytest.fixture(params=ROUNDING)
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A precision of 16 bits, which is asked for."""
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", request.param)
    return str(request.param)


def near(net: Net, half: str, *names: str) -> list[str]:
    """The outputs are numpy's but for the rounding to halves, and one region computed them; its calls."""
    want = net.run("numpy", *names)
    found = on_gpu(net, *names)
    assert net.why_not() == [] and net.regions() == len(net.plan.work) == 1
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        error = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert 0 < error < ROUNDING[half]
    return calls(net)


# ---------------------------------------------------------------- convolutions
ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("relu", {}), ("relu6", {"threshold": 6.0}), ("sigmoid", {}), ("tanh", {}), ("gelu", {"approximate": False}),
    ("leaky_relu", {"alpha": 0.1}), ("swish", {"beta": 1.5}),
]  # fmt: skip


def block(net: Net, type: str, attrs: dict[str, Any], width: int = 4) -> str:
    """Three convolutions, a bias, and a sum with the first one; an activation; a fourth one that reads it."""
    x, weights = net.data(2, width, 6, 6), net.parameter(width, width, 3, 3)
    before = net.conv(x, weights, paddings=[1, 1])
    y = net.conv(net.conv(before, weights, paddings=[1, 1]), weights, paddings=[1, 1])
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(width)}, axis=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": before}, axis=-1)
    y = net.op(type, "Out", {"X": y}, **attrs)
    return net.conv(y, weights)


@pytest.mark.parametrize(("type", "attrs"), ACTIVATIONS)
def test_a_convolution_with_what_follows_it_is_one_call(
    type: str, attrs: dict[str, Any], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", "tf32")
    net = Net()
    assert check(net, block(net, type, attrs)) == [
        "each",
        "Convolution",
        "Convolution",
        "Choice",
        "Convolution",
        "each",
    ]
    fused = compiled(net).calls[3].first
    assert compiled(net).work.refused == int(refused)
    assert fused.bias is not None and fused.added is not None and fused.activation is not None


def test_in_float32_a_sum_stays_a_kernel() -> None:
    net = Net()
    check(net, block(net, "relu", {}))
    assert compiled(net).work.refused == 1


@pytest.mark.parametrize("type", ["hard_swish", "softsign", "exp"])
def test_an_activation_that_cudnn_lacks_stays_a_kernel(type: str) -> None:
    net = Net()
    attrs = {"threshold": 6.0, "scale": 6.0, "offset": 3.0} if type == "hard_swish" else {}
    found = check(net, block(net, type, attrs), rtol=2e-5)
    assert found == ["each", *["Convolution"] * 3, "each", "Convolution", "each"]


def test_a_sum_with_an_image_in_another_layout_stays_a_kernel() -> None:
    net = Net()
    x, weights = net.data(2, 4, 6, 6), net.parameter(4, 4, 3, 3)
    y = net.conv(x, weights, paddings=[1, 1])
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.data(2, 4, 6, 6)}, axis=-1)
    assert "Choice" not in check(net, net.conv(y, weights))


def test_what_is_refused_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from fluidtool.runtime.engines.cuda import cudnn

    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", "tf32")
    MACHINE.refused, asked = frozenset({"add"}), []
    described = cudnn.described
    monkeypatch.setattr(cudnn, "described", lambda *given: asked.append(given[1]) or described(*given))
    net = Net()
    check(net, block(net, "relu", {}))
    assert sum(call.bias is not None for call in asked) == 1


# ---------------------------------------------------------------- products
def test_gelu_by_the_tangent_is_the_end_of_its_product() -> None:
    net = Net()
    y = net.op("mul", "Out", {"X": net.data(5, 6), "Y": net.parameter(6, 7)}, x_num_col_dims=1, y_num_col_dims=1)
    y = net.op("elementwise_add", "Out", {"X": y, "Y": net.parameter(7)}, axis=-1)
    assert check(net, net.op("gelu", "Out", {"X": y}, approximate=True)) == ["Product"]


def test_gelu_itself_is_a_kernel() -> None:
    net = Net()
    y = net.op("mul", "Out", {"X": net.data(5, 6), "Y": net.parameter(6, 7)}, x_num_col_dims=1, y_num_col_dims=1)
    assert check(net, net.op("gelu", "Out", {"X": y}, approximate=False)) == ["Product", "each"]


def test_algorithms_know_how_matrices_are_aligned() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(6, 9)}, axis=-1)
    part = net.op("slice", "Out", {"Input": x}, axes=[0], starts=[1], ends=[6], decrease_axis=[])
    y = net.op("mul", "Out", {"X": part, "Y": net.parameter(9, 7)}, x_num_col_dims=1, y_num_col_dims=1)
    check(net, x, net.op("softmax", "Out", {"X": y}, axis=-1))


# ---------------------------------------------------------------- halves
@pytest.mark.parametrize("kind", HALVES)
def test_kernels_convert_halves_as_the_host_does(kind: str, cupy: Any) -> None:
    code = PRELUDE + (
        'extern "C" __global__ void there(const float* in, half16* out) '
        f"{{ out[blockIdx.x] = ft_to_{kind}(in[blockIdx.x]); }}\n"
        'extern "C" __global__ void back(const half16* in, float* out) '
        f"{{ out[blockIdx.x] = ft_of_{kind}(in[blockIdx.x]); }}\n"
    )
    module = RawModule(code)
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    spread = (random.standard_normal(100_000) * 2.0 ** random.integers(-30, 20, 100_000)).astype(np.float32)
    values = np.concatenate([bits.view(np.float32), spread, np.array([65519, 65520, -65520, 1e9, np.inf], np.float32)])
    given, found = cupy.asarray(values), cupy.empty(values.size, np.uint16)
    module.get_function("there")((values.size,), (1,), (given, found))
    number = ~np.isnan(values)
    np.testing.assert_array_equal(found.get()[number], HALVES[kind](values)[number])
    halves = np.arange(1 << 16, dtype=np.uint16)
    wide = cupy.empty(halves.size, np.float32)
    module.get_function("back")((halves.size,), (1,), (cupy.asarray(halves), wide))
    want = (
        halves.view(np.float16).astype(np.float32)
        if kind == "fp16"
        else (halves.astype(np.uint32) << 16).view(np.float32)
    )
    np.testing.assert_array_equal(wide.get(), want)


def test_convolutions_of_eights_read_and_write_halves(half: str, refused: bool) -> None:
    net = Net()
    found = near(net, half, block(net, "relu", {}, 8))
    assert found == ["each", "Convolution", "Convolution", "Choice", "Convolution", "each"]
    convolutions = [getattr(call, "first", call) for call in compiled(net).calls[1:5]]
    assert {pointer.buffer.half for call in convolutions for pointer in (call.x, call.weights, call.out)} == {half}


@pytest.mark.parametrize(("width", "groups"), [(4, 1), (16, 2)])
def test_other_convolutions_stay_in_float32(half: str, width: int, groups: int) -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(2, width, 5, 5)}, axis=1)
    y = net.conv(x, net.parameter(width, width // groups, 3, 3), groups=groups)
    near(net, half, net.op("relu", "Out", {"X": y}))
    (call,) = [call for call in compiled(net).calls if type(call).__name__ == "Convolution"]
    assert {call.x.buffer.half, call.weights.buffer.half, call.out.buffer.half} == {""}


def test_products_of_halves_have_an_output_of_the_type_that_is_read(half: str) -> None:
    net = Net()
    y = net.data(6, 8)
    for _ in range(2):
        inputs = {"Input": y, "W": net.parameter(8, 8), "Bias": net.parameter(8)}
        y = net.op("fc", "Out", inputs, in_num_col_dims=1, activation_type="relu")
    assert near(net, half, y) == ["each", "Product", "Product"]
    _, first, last = compiled(net).calls
    kinds = [(each.pointer if hasattr(each, "pointer") else each).buffer.half for each in (first.x, first.y, first.out)]
    assert (
        kinds == [half] * 3
        and last.out.pointer.buffer.half == last.bias.buffer.half == "" == last.out.pointer.buffer.half
    )


def test_weights_are_half_as_large(half: str) -> None:
    net = Net()
    y = net.op("mul", "Out", {"X": net.data(3, 64), "Y": net.parameter(64, 32)}, x_num_col_dims=1, y_num_col_dims=1)
    near(net, half, net.op("softmax", "Out", {"X": y}, axis=-1))
    weights = compiled(net).calls[1].y.pointer.buffer
    assert weights.half == half and weights.array.nbytes == 2 * 64 * 32


def test_tables_are_halves(half: str) -> None:
    net = Net()
    ids = net.data(of=np.array([[1, 3, 0], [6, 3, 2]], np.int64))
    rows = net.op("lookup_table_v2", "Out", {"W": net.parameter(7, 5), "Ids": ids}, padding_idx=-1)
    near(net, half, net.op("softmax", "Out", {"X": rows}, axis=-1))
    _, call, *_ = compiled(net).calls  # after the mark of ids is cleared
    assert half in {pointer.buffer.half for pointer in call.pointers}


def test_a_mask_that_is_too_large_for_halves_stays_a_mask(half: str) -> None:
    net = Net()
    mask = np.where(np.arange(5) < 3, 0, -1e9).astype(np.float32).reshape(1, 1, 1, 5).repeat(2, 0)
    y = attention(net, 2, True, size=16)
    (name,) = [name for name, fed in net.feeds.items() if fed.shape == mask.shape]
    net.feeds[name] = mask
    near(net, half, net.op("relu", "Out", {"X": y}))


# ---------------------------------------------------------------- attention
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_of_halves_is_one_call(batch: int, mask: bool, half: str, refused: bool) -> None:
    net = Net()
    found = near(net, half, net.op("relu", "Out", {"X": attention(net, batch, mask, size=16)}))
    assert found.count("Choice") == 1 and found.count("Product") == 3 and "softmax" not in found


def test_attention_of_float32_is_not_cudnns() -> None:
    net = Net()
    assert "Choice" not in check(net, net.op("relu", "Out", {"X": attention(net, 2, False, size=16)}))


def test_heads_that_are_no_whole_pieces_are_not_cudnns(half: str) -> None:
    net = Net()
    assert "Choice" not in near(net, half, net.op("relu", "Out", {"X": attention(net, 2, False, size=8)}))


# ---------------------------------------------------------------- models
@pytest.mark.parametrize("name", ["resnet_cifar", "mobilenet_v1", "text_lstm"])
def test_models_in_halves(name: str, half: str) -> None:
    cases.model_in_halves(name, half)
