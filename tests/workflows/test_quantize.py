"""`fluidtool.quantize`: a model in 8 bits from some data, and how far its outputs are from those of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import FeedError, OutputExistsError, ProgramError, UsageError
from fluidtool.workflows.calibration import METHODS, Method, Sizes
from tests.cli.support import DIGITS

X = np.load(DIGITS / "x.npy")
CLOSE = 0.02  # of a probability


def test_the_saved_model_gives_what_the_result_says(tmp_path: Path) -> None:
    result = fluidtool.quantize(str(DIGITS), [{"image": X}], tmp_path / "out")
    (output,) = result.outputs
    want, got = (np.asarray(fluidtool.load(path).run({"image": X})[output.name]) for path in (DIGITS, tmp_path / "out"))
    assert output.largest_difference == pytest.approx(np.abs(got - want).max(), rel=1e-3) and result.batches == 1
    assert output.root_mean_square == pytest.approx(np.sqrt(((got - want) ** 2).mean()), rel=1e-3)
    assert 0 < output.largest_difference < CLOSE and output.largest_value == pytest.approx(want.max())
    assert (got.argmax(1) == want.argmax(1)).all()


def test_every_engine_runs_it_alike(tmp_path: Path) -> None:
    result = fluidtool.quantize(str(DIGITS), [{"image": X}], tmp_path / "out")
    values = [
        np.asarray(fluidtool.load(tmp_path / "out", engine=engine).run({"image": X})[result.outputs[0].name])
        for engine in ("numpy", "auto")
    ]
    np.testing.assert_allclose(*values, rtol=0, atol=1e-3)


def test_operators_and_their_scales() -> None:
    result = fluidtool.quantize(str(DIGITS), [{"image": X}, {"image": 2 * X}])
    assert [each.type for each in result.operators] == ["conv2d", "conv2d", "mul"] and not result.files
    first = result.operators[0]
    assert first.done and first.input == "image" and first.input_scale == pytest.approx(2 * float(np.abs(X).max()))
    weights = np.abs(np.asarray(fluidtool.load(DIGITS).files.parameters["conv2d_0.w_0"].numpy())).max(axis=(1, 2, 3))
    assert first.weight_scales == pytest.approx((weights.min(), weights.max()))


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: Method) -> None:
    found = fluidtool.quantize(str(DIGITS), [{"image": X}], method=method, percentile=99.9)
    whole = fluidtool.quantize(str(DIGITS), [{"image": X}])
    for one, other in zip(found.operators, whole.operators, strict=True):
        assert 0 < one.input_scale <= other.input_scale


def test_some_operators_keep_computing_in_floats() -> None:
    result = fluidtool.quantize(str(DIGITS), [{"image": X}], skip=["fc_*", "conv2d_0.tmp_0"])
    assert [each.done for each in result.operators] == [False, True, False]
    assert result.operators[0].reason == "it is to be skipped"


@pytest.mark.parametrize("name", ["fc_0.tmp_9", "nothing*", "fc_0.w_0"])
def test_what_is_not_computed_cannot_be_skipped(name: str) -> None:
    with pytest.raises(ProgramError, match=r"no operator computes '.*', so there is nothing to skip"):
        fluidtool.quantize(str(DIGITS), [{"image": X}], skip=["fc_*", name])


def test_nothing_quantized_changes_nothing() -> None:
    (output,) = fluidtool.quantize(str(DIGITS), [{"image": X}], skip=["*"]).outputs
    assert output.largest_difference == 0


def test_the_difference_of_outputs_that_are_nan_is_nan() -> None:
    (output,) = fluidtool.quantize(str(DIGITS), [{"image": X}, {"image": X * np.nan}, {"image": X}]).outputs
    assert np.isnan([output.largest_difference, output.root_mean_square, output.largest_value]).all()


def test_files_of_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "more.npz", image=X[:2])
    result = fluidtool.quantize(str(DIGITS), [str(DIGITS / "x.npy"), str(tmp_path / "more.npz")])
    assert result.batches == 2


def test_no_data() -> None:
    with pytest.raises(UsageError, match="needs data to measure how large activations become"):
        fluidtool.quantize(str(DIGITS), [])


def test_data_of_another_shape() -> None:
    with pytest.raises(FeedError, match="image"):
        fluidtool.quantize(str(DIGITS), [{"image": X[:, :, :2]}])


def test_an_unknown_method() -> None:
    with pytest.raises(UsageError, match="there is no method 'guess'; expected one of abs_max, kl, percentile"):
        fluidtool.quantize(str(DIGITS), [{"image": X}], method="guess")  # type: ignore[arg-type]


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.5])
def test_a_percentile_out_of_range(percentile: float) -> None:
    with pytest.raises(UsageError, match="the percentile must be above 0 and at most 100"):
        fluidtool.quantize(str(DIGITS), [{"image": X}], method="percentile", percentile=percentile)


def test_output_that_is_there(tmp_path: Path) -> None:
    fluidtool.quantize(str(DIGITS), [{"image": X}], tmp_path / "out")
    with pytest.raises(OutputExistsError):
        fluidtool.quantize(str(DIGITS), [{"image": X}], tmp_path / "out")


# ---------------------------------------------------------------- sizes
def sizes(values: np.ndarray) -> Sizes:
    found = Sizes()
    found.measure(values)
    found.count(values)
    return found


def test_a_percentile_leaves_out_what_is_rare() -> None:
    values = np.concatenate([np.linspace(-1, 1, 9_999), [100.0]])
    assert sizes(values).end("percentile", 99.9) == pytest.approx(1, abs=0.1)
    assert sizes(values).end("percentile", 100) == sizes(values).end("abs_max", 0) == 100


def test_the_divergence_leaves_out_a_long_tail() -> None:
    values = np.random.default_rng(0).standard_normal(100_000)
    values[0] = 12.0
    assert 3.5 < sizes(values).end("kl", 0) < 12


@pytest.mark.parametrize("method", METHODS)
def test_values_of_no_size_have_no_end(method: Method) -> None:
    assert sizes(np.zeros(5)).end(method, 99) == 0
    assert sizes(np.array([1.0, np.inf])).end(method, 99) == 0
    assert sizes(np.array([1.0, np.nan])).end(method, 99) == 0
