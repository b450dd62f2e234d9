"""Attention in training steps with halves in memory: cuDNN's, forward and backward, or what stands for it; as in BERT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda.calls import Attention, AttentionGradient, Choice, Launch
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.standin.devices import MACHINE
from tests.gpu.test_cuda_fused import ROUNDING
from tests.gpu.test_training_halves import near
from tests.gpu.test_training_steps import Job, same

BATCH, ROWS, HEADS, SIZE = 2, 6, 2, 8


@pytest.fixture(autouse=True, params=ROUNDING)
def half(request: pytest.FixtureRequest, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A precision of 16 bits, which is asked for."""
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", request.param)
    yield str(request.param)
    MACHINE.refused = frozenset()


def network(
    size: int = SIZE, alpha: float = 1.0, scale: float = 1.0, mask: str = "", dropout: float = 0.0, keys: str = "x"
) -> Any:
    """A layer of attention with a residual connection. mask: its shape. keys: the input of keys and values."""

    def heads(x: Any) -> Any:
        found = layers.fc(x, HEADS * size, num_flatten_dims=2, bias_attr=False)
        return layers.transpose(layers.reshape(found, [0, 0, HEADS, size]), [0, 2, 1, 3])

    def build() -> Any:
        x = layers.data("x", [ROWS, 12])
        other = x if keys == "x" else layers.data(keys, [ROWS - 2, 12])
        q, k, v = heads(layers.tanh(layers.fc(x, 12, num_flatten_dims=2))), heads(other), heads(other)
        if scale != 1.0:
            q = layers.scale(q, scale)
        scores = layers.matmul(q, k, transpose_y=True, alpha=alpha)
        if mask:
            scores = layers.elementwise_add(scores, masks(mask, ROWS if keys == "x" else ROWS - 2))
        weights = layers.softmax(scores)
        if dropout:
            weights = layers.dropout(weights, dropout, dropout_implementation="upscale_in_train")
        found = layers.reshape(layers.transpose(layers.matmul(weights, v), [0, 2, 1, 3]), [0, 0, HEADS * size])
        found = layers.fc(found, 12, num_flatten_dims=2) + x
        return layers.mean(layers.square(layers.reduce_mean(layers.fc(found, 3, num_flatten_dims=2), 1) - 0.7))

    return build


def masks(kind: str, keys: int) -> Any:
    """Numbers that are added to scores: of keys, of rows and keys, of every head, or learned."""
    if kind == "learned":
        return layers.create_parameter([BATCH, 1, ROWS, keys], "float32", name="bias")
    given = layers.data("mask", [1, 1, keys])
    if kind == "keys":
        return given
    wide = layers.expand(given, [1, 1, ROWS, 1])
    found = layers.stack([layers.squeeze(wide, [1])] * HEADS, axis=1) if kind == "heads" else wide
    found.stop_gradient = True
    return found


def feed(seed: int, keys: int = ROWS) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    mask = np.where(random.random((BATCH, 1, 1, keys)) < 0.3, -1e4, 0.0).astype(np.float32)
    mask[..., 0] = 0
    given = {"x": random.standard_normal((BATCH, ROWS, 12)), "other": random.standard_normal((BATCH, ROWS - 2, 12))}
    return {**{name: array.astype(np.float32) for name, array in given.items()}, "mask": mask}


def needed(build: Any, seed: int, keys: int = ROWS) -> dict[str, Any]:
    """What a network is fed."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        build()
    names = set(main.global_block().vars)
    return {name: array for name, array in feed(seed, keys).items() if name in names}


def attentions(step: CudaStep) -> list[str]:
    """The attentions that are offered to cuDNN."""
    found = [call.first for call in step.calls if isinstance(call, Choice)]
    return [type(call).__name__ for call in found if isinstance(call, Attention | AttentionGradient)]


NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a factor of the product": {"alpha": 0.35},
    "a factor before": {"scale": 0.35},
    "a mask of keys": {"alpha": 0.35, "mask": "keys"},
    "a mask of rows and keys": {"mask": "rows"},
    "a mask for each head": {"scale": 0.35, "mask": "heads"},
    "keys of another input": {"keys": "other", "mask": "keys"},
    "heads of 16": {"size": 16, "alpha": 0.25},
}
TOGETHER = ["Attention", "AttentionGradient"]


@pytest.mark.parametrize("refused", [(), ("sdpa",), ("sdpa_backward",), ("sdpa", "sdpa_backward")])
@pytest.mark.parametrize("name", NETWORKS)
def test_attention_is_cudnns_both_ways(
    name: str, refused: tuple[str, ...], half: str, compiled: list[CudaStep]
) -> None:
    """Each way that is refused is computed by products, with the other one by cuDNN."""
    MACHINE.refused = frozenset(refused)
    options = NETWORKS[name]
    build, keys = network(**options), ROWS - 2 if "keys" in options else ROWS
    job = near(build, [needed(build, step, keys) for step in range(3)], half, growth=5.0)
    assert attentions(compiled[-1]) == TOGETHER and job.region().region.parts is None
    assert compiled[-1].work.refused == len(refused)


def test_nothing_is_moved_between_attention_and_its_layers(half: str, compiled: list[CudaStep]) -> None:
    """Heads lie side by side, as products leave them and read them."""
    near(network(alpha=0.3), [needed(network(), 0)], half, growth=5.0)
    both = [call.first for call in compiled[-1].calls if isinstance(call, Choice)]
    heads = {pointer.buffer for call in both for pointer in call.pointers}
    copies = [call for call in compiled[-1].calls if isinstance(call, Launch) and call.name.startswith("each")]
    assert copies and not heads & {pointer.buffer for call in copies for pointer in call.pointers}


def test_the_mask_is_made_once(half: str, compiled: list[CudaStep]) -> None:
    near(network(mask="keys"), [needed(network(mask="keys"), 0)], half, growth=5.0)
    first, back = (call.first for call in compiled[-1].calls if isinstance(call, Choice))
    assert isinstance(first, Attention) and isinstance(back, AttentionGradient)
    assert first.mask is not None and back.mask is not None
    assert first.mask.place.buffer is back.mask.place.buffer
    assert first.stats is not None and first.stats.place.buffer is back.stats.place.buffer


APART: dict[str, dict[str, Any]] = {
    "a dropout of the weights, which the CPU draws": {"dropout": 0.3},
    "a mask that is learned": {"mask": "learned"},
    "heads that are no whole pieces of 16 bytes": {"size": 4},
    "heads that are too wide": {"size": 136},
}


@pytest.mark.parametrize("name", APART)
def test_other_attentions_are_products_and_softmax(name: str, half: str, compiled: list[CudaStep]) -> None:
    build = network(**APART[name])
    near(build, [needed(build, step) for step in range(3)], half, growth=5.0)
    assert not attentions(compiled[-1])


@pytest.mark.parametrize("type", ["softmax", "matmul"])
def test_weights_and_scores_that_are_fetched_are_computed(type: str, half: str, compiled: list[CudaStep]) -> None:
    jobs = [Job(network(), lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    name = next(op for op in jobs[0].main.global_block().ops if op.type == type).outputs["Out"][0]
    want, found = (job.step(needed(network(), 0), name)[1] for job in jobs)
    np.testing.assert_allclose(found, want, atol=5 * ROUNDING[half] * np.abs(want).max())
    assert not attentions(compiled[-1])


def test_a_result_and_a_gradient_that_are_fetched_are_float32(half: str, compiled: list[CudaStep]) -> None:
    jobs = [Job(network(), lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    block = jobs[0].main.global_block()
    result = [op.outputs["Out"][0] for op in block.ops if op.type == "matmul"][1]
    back = next(op for op in block.ops if op.type == "matmul_grad" and op.inputs["X"][0] != result)
    names = [result, back.outputs["Y@GRAD"][0]]
    want, found = (job.step(needed(network(), 0), *names)[1:] for job in jobs)
    assert attentions(compiled[-1]) == TOGETHER
    for a, b in zip(want, found, strict=True):
        assert b.dtype == np.float32
        np.testing.assert_allclose(b, a, atol=8 * ROUNDING[half] * np.abs(a).max())


def test_in_float32_nothing_changes(compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", "float32")
    build = network(alpha=0.35, mask="keys")
    jobs = [Job(build, lambda: fluid.optimizer.SGD(0.1), place) for place in (fluid.CPUPlace(), None)]
    for step in range(3):
        for job in jobs:
            job.step(needed(build, step))
    same(*jobs, 1e-4)
    assert not attentions(compiled[-1])
