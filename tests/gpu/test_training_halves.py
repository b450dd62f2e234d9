"""Training steps with halves in memory: activations and their gradients; parameters, their gradients and sums are float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda.calls import Choice, Convolution, Launch, Product, flat
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu import cases
from tests.gpu.standin.devices import MACHINE
from tests.gpu.test_cuda_fused import ROUNDING
from tests.gpu.test_cuda_recurrent_steps import LAYERS, network, stack, steps_of
from tests.gpu.test_cuda_recurrent_steps import batch as sequences
from tests.gpu.test_cuda_structured import sentences, tagger
from tests.gpu.test_cuda_tables import batch as rows_of_tables
from tests.gpu.test_cuda_tables import two_tables
from tests.gpu.test_training_steps import BY_NORMS, OPTIMIZERS, Job, attention, batch, perceptron, words


@pytest.fixture(autouse=True, params=ROUNDING)
def half(request: pytest.FixtureRequest, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A precision of 16 bits, which is asked for."""
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", request.param)
    return str(request.param)


def sgd() -> Any:
    return fluid.optimizer.SGD(0.1)


def near(build: Any, feeds: list[dict[str, Any]], half: str, optimizer: Any = sgd, growth: float = 2.0) -> Job:
    """A job in halves whose losses, and changes of its parameters, are the CPU's but for rounding. growth: of that, by layers."""
    want, job = Job(build, optimizer, fluid.CPUPlace()), Job(build, optimizer)
    before = want.values()
    for feed in feeds:
        a, b = (float(np.ravel(each.step(feed)[0])[0]) for each in (want, job))
        assert abs(a - b) < growth * ROUNDING[half] * abs(a)
    after, found = want.values(), job.values()
    moved = {name: after[name] - before[name] for name in after}
    scale = np.sqrt(sum(float(np.sum(each.astype(np.float64) ** 2)) for each in moved.values()))
    error = np.sqrt(sum(float(np.sum((found[name] - after[name]).astype(np.float64) ** 2)) for name in after))
    assert 0 < error / scale < growth * ROUNDING[half]
    return job


def kinds(call: Convolution) -> set[str]:
    return {pointer.buffer.half for pointer in (call.x, call.weights, call.out)}


def test_products_read_halves_and_gradients_of_parameters_are_float32(half: str, compiled: list[CudaStep]) -> None:
    near(perceptron, [batch()], half)
    products = [call for call in compiled[-1].calls if isinstance(call, Product)]
    assert {each.pointer.buffer.half for call in products for each in (call.x, call.y)} == {half}
    assert [call.out.pointer.buffer.half for call in products] == [half, half, half, "", ""]


def test_parameters_that_change_are_float32(half: str, compiled: list[CudaStep]) -> None:
    near(perceptron, [batch()], half)
    states = {
        pointer.buffer for call in compiled[-1].calls for pointer in call.pointers if pointer.buffer.role == "state"
    }
    assert states and {buffer.half for buffer in states} == {""}


def test_a_parameter_is_converted_once_in_a_step(half: str, compiled: list[CudaStep]) -> None:
    near(perceptron, [batch()], half)
    factors = [call.y.pointer for call in compiled[-1].calls if isinstance(call, Product)]
    assert factors[1].buffer is factors[2].buffer  # of the last layer, forward and backward


@pytest.mark.parametrize("name", [*OPTIMIZERS, *BY_NORMS])
def test_every_optimizer_has_master_values(name: str, half: str) -> None:
    rule = {**OPTIMIZERS, **BY_NORMS}[name]
    want, job = Job(perceptron, rule, fluid.CPUPlace()), Job(perceptron, rule)
    for step in range(4):
        a, b = (each.step(batch(seed=step))[0] for each in (want, job))
        np.testing.assert_allclose(b, a, rtol=3 * ROUNDING[half])


def test_small_updates_are_not_lost_in_rounding(half: str) -> None:
    tiny = {"fp16": 1e-5, "bf16": 1e-4}[half]  # of a parameter of 1, no half would show it
    job = Job(perceptron, lambda: fluid.optimizer.SGD(tiny))
    job.scope.find_var("fc_1.w_0").get_tensor().set(np.ones((16, 5), np.float32), fluid.CPUPlace())
    for step in range(3):
        job.step(batch(seed=step))
    moved = job.values()["fc_1.w_0"] - 1
    assert (moved != 0).mean() > 0.9 and np.abs(moved).max() < 1e-3


def images(channels: int, groups: int) -> Any:
    def build() -> Any:
        x, y = layers.data("x", [3, 9, 9]), layers.data("y", [1], dtype="int64")
        x = layers.batch_norm(layers.conv2d(x, channels, 3, padding=1, stride=2), act="relu")
        x = layers.conv2d(x, channels, 3, padding=1, groups=groups, act="relu") + x
        x = layers.pool2d(x, 3, "max", 2, pool_padding=1) + layers.pool2d(x, 3, "avg", 2, pool_padding=1)
        x = layers.conv2d_transpose(x, 8, filter_size=3, stride=2)
        x = layers.pool2d(x, global_pooling=True, pool_type="avg")
        return layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 5), y))

    return build


def pictures(count: int) -> list[dict[str, Any]]:
    return [
        {**batch(4, seed), "x": np.random.default_rng(seed).random((4, 3, 9, 9), np.float32)} for seed in range(count)
    ]


@pytest.mark.parametrize("groups", [1, 2, 16])
def test_convolutions_and_their_gradients(groups: int, half: str, compiled: list[CudaStep]) -> None:
    near(images(16, groups), pictures(4), half, growth=6.0)


@pytest.mark.parametrize("groups", [2, 16])
def test_what_cudnn_refuses_in_halves_is_computed_in_float32(groups: int, half: str, compiled: list[CudaStep]) -> None:
    MACHINE.refused = frozenset({"odd conv of halves"})
    near(images(16, groups), pictures(4), half, growth=6.0)
    assert compiled[-1].work.refused == 3


def test_groups_are_offered_to_cudnn_in_halves(half: str, compiled: list[CudaStep]) -> None:
    near(images(16, 16), pictures(1), half, growth=6.0)
    choices = [call for call in compiled[-1].calls if isinstance(call, Choice)]
    assert len(choices) == 3  # of the second layer, with both gradients; the first one has 8 channels in the place of 3
    assert all(kinds(choice.first) == {half} for choice in choices if isinstance(choice.first, Convolution))
    others = [call for choice in choices for call in choice.otherwise if isinstance(call, Convolution)]
    assert len(others) == 3 and all(kinds(call) == {""} for call in others)
    plain = [call for call in compiled[-1].calls if isinstance(call, Convolution)]
    assert len(plain) == 2 + 3 and all(kinds(call) == {half} for call in plain)
    assert sum(isinstance(call, Convolution) for call in flat(compiled[-1].calls)) == 5 + 6


def test_attention_norms_tables_and_dropout(half: str, compiled: list[CudaStep]) -> None:
    near(attention, [words(step) for step in range(3)], half, growth=4.0)
    launched = [call for call in compiled[-1].calls if hasattr(call, "name") and call.name.startswith("softmax")]
    assert [call.pointers[-1].buffer.half for call in launched] == [
        half,
        "",
        half,
    ]  # of scores, the loss, gradients of scores


@pytest.mark.parametrize(
    "name",
    [
        "lstm with peepholes",
        "lstmp with peepholes",
        "gru",
        "lstm with initial states",
        "softmax",
        "convolution",
        "pool max",
    ],
)
def test_sequences_read_and_write_float32_between_halves(name: str, half: str, compiled: list[CudaStep]) -> None:
    near(network(LAYERS[name]), [sequences(step) for step in range(3)], half, growth=4.0)
    assert len(compiled) == 3


def test_stacks_of_layers_and_conditional_random_fields(half: str, compiled: list[CudaStep]) -> None:
    near(stack(is_bidirec=True, dropout_prob=0.4), [steps_of(step) for step in range(3)], half, growth=4.0)
    near(tagger(), [sentences(step, [3, 1, 4]) for step in range(3)], half, growth=4.0)
    assert len(compiled) == 6


def test_clipped_rows(half: str, compiled: list[CudaStep]) -> None:
    def clipped() -> Any:
        return fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.01))

    near(two_tables, [rows_of_tables(step) for step in range(3)], half, clipped, growth=4.0)
    assert any(call.name.startswith("merged") for call in compiled[-1].calls if isinstance(call, Launch))


def test_what_is_fetched_is_float32(half: str) -> None:
    job = Job(perceptron, sgd)
    found = job.step(batch(), "fc_0.tmp_2", "fc_0.w_0@GRAD")
    assert [each.dtype for each in found] == [np.float32] * 3


@pytest.mark.parametrize(
    "name", ["conv_bn_adam", "seq2seq_att_adam", "w2v_sparse_sgd", "mlp_sgd_clip_gnorm", "mlp_lamb_poly"]
)
def test_packed_training_runs(name: str, half: str) -> None:
    cases.training_in_halves(name, half)
