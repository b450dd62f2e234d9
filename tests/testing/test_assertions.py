"""`fluidtool.testing.assert_model_outputs`: what passes, what fails, and how the failure reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import FetchError, UsageError
from fluidtool.testing import assert_model_outputs, model_outputs
from tests.cli.support import DIGITS, TOPICS


@pytest.fixture(scope="module")
def model() -> fluidtool.Model:
    return fluidtool.load(DIGITS)


@pytest.fixture(scope="module")
def images() -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.load(DIGITS / "x.npy")
    return found


@pytest.fixture(scope="module")
def expected(model: fluidtool.Model, images: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.asarray(value) for name, value in model_outputs(model, images).items()}


def test_files_of_real_paddle_agree() -> None:
    assert_model_outputs(DIGITS, DIGITS / "x.npy", DIGITS / "expected.npz")


def test_sequences_from_files_have_lengths() -> None:
    assert_model_outputs(TOPICS, TOPICS / "feed.npz", TOPICS / "expected.npz", lods=str(TOPICS / "lod.json"))


@pytest.mark.parametrize("by_name", [False, True])
def test_arrays_agree(model: fluidtool.Model, images: Any, expected: dict[str, Any], by_name: bool) -> None:
    (name,) = expected
    inputs = {model.feeds[0]: images} if by_name else images
    assert_model_outputs(model, inputs, expected if by_name else expected[name], rtol=0, atol=1e-6)


def test_a_failure_names_the_output_and_its_worst_element(
    model: fluidtool.Model, images: Any, expected: dict[str, Any]
) -> None:
    ((name, value),) = expected.items()
    changed = value.copy()
    changed[1, 2] += 0.5
    with pytest.raises(AssertionError) as caught:
        assert_model_outputs(model, images, {name: changed}, rtol=0, atol=0.25)
    first, second = str(caught.value).splitlines()
    assert first.startswith("1 of 1 outputs of ") and first.endswith("(rtol 0, atol 0.25):")
    assert second.startswith(f"  {name}: 1 of {value.size} elements differ, by at most 0.5; at [1, 2] found ")


def test_a_tolerance_is_kept(model: fluidtool.Model, images: Any, expected: dict[str, Any]) -> None:
    shifted = {name: value + np.float32(0.01) for name, value in expected.items()}
    assert_model_outputs(model, images, shifted, rtol=0, atol=0.011)
    with pytest.raises(AssertionError, match="elements differ"):
        assert_model_outputs(model, images, shifted, rtol=0, atol=0.009)


def test_another_shape_is_a_difference(model: fluidtool.Model, images: Any, expected: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"has shape \(\d+, 10\), expected \(10,\)"):
        assert_model_outputs(model, images, {name: value[0] for name, value in expected.items()})


def test_a_test_that_cannot_fail_is_refused(model: fluidtool.Model, images: Any) -> None:
    with pytest.raises(UsageError, match="could not fail"):
        assert_model_outputs(model, images, {})


def test_an_unknown_output_is_refused(model: fluidtool.Model, images: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "expected.npz", nothing=np.zeros(1))
    with pytest.raises(FetchError, match="nothing"):
        assert_model_outputs(model, images, tmp_path / "expected.npz")
