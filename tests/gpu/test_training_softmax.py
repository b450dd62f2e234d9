"""Softmax in training steps: one kernel with the dropout of its results, one for its gradient; the numbers of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.runtime.engines.cuda import rows
from fluidtool.runtime.engines.cuda.calls import Launch
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.test_training_attention import needed, network
from tests.gpu.test_training_halves import near
from tests.gpu.test_training_steps import Job, same

pytestmark = pytest.mark.usefixtures("cupy")
ROWS, COLUMNS = 6, 20


def sgd() -> Any:
    return fluid.optimizer.SGD(0.5)


def jobs(build: Any, feeds: list[dict[str, Any]], rtol: float = 2e-5) -> list[Job]:
    """A job on the CPU and one on the GPU, whose parameters are the same after some steps."""
    both = [Job(build, sgd, place) for place in (fluid.CPUPlace(), None)]
    for feed in feeds:
        losses = [job.step(feed)[0] for job in both]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    same(*both, rtol)
    return both


def weights(
    columns: int = COLUMNS,
    dropout: float = 0.3,
    implementation: str = "upscale_in_train",
    factor: float = 1.0,
    before: Any = None,
    after: Any = None,
) -> Any:
    """A softmax of products, a dropout, and a product. before: what else reads the softmax. after: what reads the dropout."""

    def build() -> Any:
        x = layers.data("x", [12])
        scores = layers.scale(layers.fc(x, columns), factor) if factor != 1.0 else layers.fc(x, columns)
        found = softmax = layers.softmax(scores)
        extra = before(softmax) if before else None
        if dropout:
            found = layers.dropout(found, dropout, dropout_implementation=implementation)
        found = layers.fc(after(found) if after else found, 5)
        if extra is not None:
            found = found + layers.fc(extra, 5)
        return layers.mean(layers.square(found - 0.7))

    return build


def feeds(count: int = 3) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"x": random.standard_normal((ROWS, 12)).astype(np.float32)} for _ in range(count)]


def kernels(step: CudaStep, *prefixes: str) -> list[str]:
    """The kernels with these names, in order."""
    names = [call.name.rpartition("_")[0] for call in step.calls if isinstance(call, Launch)]
    return [name for name in names if name in prefixes]


def dropped(step: CudaStep) -> int:
    """The kernels of softmax that also drop."""
    launched = [call for call in step.calls if isinstance(call, Launch) and call.name.startswith("softmax_")]
    return sum("y * " in call.source for call in launched)


# ---------------------------------------------------------------- dropout
@pytest.mark.parametrize("implementation", ["upscale_in_train", "downgrade_in_infer"])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_a_softmax_and_its_dropout_are_one_kernel(factor: float, implementation: str, compiled: list[CudaStep]) -> None:
    jobs(weights(implementation=implementation, factor=factor), feeds())
    assert dropped(compiled[-1]) == 1
    assert kernels(compiled[-1], "draw", "softmax", "softmax_back") == ["draw", "softmax", "softmax_back"]


@pytest.mark.parametrize("mask", ["", "keys", "rows", "heads"])
def test_attention_in_float32_is_products_and_three_kernels(mask: str, compiled: list[CudaStep]) -> None:
    build = network(alpha=0.35, mask=mask, dropout=0.3)
    jobs(build, [needed(build, step) for step in range(3)], 1e-4)
    assert dropped(compiled[-1]) == 1
    assert kernels(compiled[-1], "draw", "softmax", "softmax_back", "reduce") == ["draw", "softmax", "softmax_back"]


@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_attention_in_halves_likewise(half: str, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    build = network(alpha=0.35, mask="keys", dropout=0.3)
    near(build, [needed(build, step) for step in range(3)], half, growth=5.0)
    (softmax,) = [call for call in compiled[-1].calls if isinstance(call, Launch) and "y * " in call.source]
    assert [pointer.buffer.half for pointer in softmax.pointers][-1] == half and dropped(compiled[-1]) == 1


@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_a_dropout_of_nothing_or_of_all(dropout: float, compiled: list[CudaStep]) -> None:
    jobs(weights(dropout=dropout), feeds())
    assert dropped(compiled[-1]) == int(dropout > 0)


@pytest.mark.parametrize("columns", [1, 3, 33, 256, 300])
@pytest.mark.parametrize("kept", [0, 32])
def test_rows_of_any_length_in_registers_or_not(
    columns: int, kept: int, compiled: list[CudaStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "KEPT", kept)
    jobs(weights(columns), feeds(2))
    assert dropped(compiled[-1]) == 1


def test_the_cpu_drops_the_same_weights() -> None:
    build = weights()
    both = [Job(build, sgd, place) for place in (fluid.CPUPlace(), None)]
    ops = both[0].main.global_block().ops
    names = [next(op for op in ops if op.type == type).outputs["Out"][0] for type in ("softmax", "dropout")]
    for feed in feeds():
        want, found = (job.step(feed, *names)[1:] for job in both)
        for a, b in zip(want, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(found[1] == 0, want[1] == 0)
        assert 0 < (found[1] == 0).mean() < 1


def test_weights_that_are_read_before_are_dropped_by_a_kernel_of_their_own(compiled: list[CudaStep]) -> None:
    jobs(weights(before=layers.square), feeds())
    assert dropped(compiled[-1]) == 0


def test_a_dropout_within_its_reader_stays_there(compiled: list[CudaStep]) -> None:
    jobs(weights(after=lambda found: layers.scale(found, 1.0, bias=0.5)), feeds())
    assert dropped(compiled[-1]) == 0


def test_a_dropout_of_something_else_stays_a_kernel(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        hidden = layers.dropout(layers.fc(layers.data("x", [12]), 8, act="tanh"), 0.3)
        return layers.mean(layers.square(layers.fc(hidden, 5) - 0.7))

    jobs(build, feeds())
    assert dropped(compiled[-1]) == 0 and kernels(compiled[-1], "draw") == ["draw"]


def test_weights_that_only_the_dropout_reads_are_not_stored(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        x = layers.data("x", [12])
        found = layers.dropout(layers.softmax(x), 0.3)  # nothing before has parameters
        return layers.mean(layers.square(layers.fc(found, 5) - 0.7))

    jobs(build, feeds())
    assert dropped(compiled[-1]) == 0


# ---------------------------------------------------------------- gradients
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_the_gradient_of_a_softmax_and_a_factor_are_one_kernel(factor: float, compiled: list[CudaStep]) -> None:
    jobs(weights(dropout=0.0, factor=factor), feeds())
    found = kernels(compiled[-1], "softmax", "softmax_back", "reduce")
    assert found == ["softmax", "softmax_back"]
    (back,) = [call for call in compiled[-1].calls if isinstance(call, Launch) and call.name.startswith("softmax_back")]
    assert ("0.3" in back.source) == (factor != 1.0)


def test_a_gradient_that_several_read_is_not_scaled_in_place(compiled: list[CudaStep]) -> None:
    def build() -> Any:
        x = layers.data("x", [12])
        scores = layers.fc(x, COLUMNS)
        found = layers.softmax(layers.scale(scores, 0.3) + layers.fc(layers.square(x), COLUMNS))
        return layers.mean(layers.square(layers.fc(found, 5) - 0.7))

    jobs(build, feeds())
    assert kernels(compiled[-1], "softmax", "softmax_back") == ["softmax", "softmax_back"]


def test_a_gradient_that_is_fetched() -> None:
    both = [Job(weights(), sgd, place) for place in (fluid.CPUPlace(), None)]
    ops = both[0].main.global_block().ops
    name = next(op for op in ops if op.type == "softmax_grad").outputs["X@GRAD"][0]
    want, found = (job.step(feeds(1)[0], name)[1] for job in both)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6 * np.abs(want).max())
