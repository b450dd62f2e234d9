"""`fluidtool.run` and `fluidtool.profile`: a model on files or random values, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import FeedError, FetchError, OutputExistsError, UsageError
from fluidtool.workflows.expectation import Tolerance
from fluidtool.workflows.outputs import require_free, save_outputs
from tests.workflows.conftest import Notebook


def test_a_model_runs_on_a_file(digits: Path, images: np.ndarray[Any, Any]) -> None:
    model = fluidtool.load(digits)
    result = fluidtool.run(model, fluidtool.Inputs(feeds=[str(digits / "x.npy")]))
    (name,) = model.fetches
    expected = model.run({model.feeds[0]: images})[name]
    np.testing.assert_array_equal(np.asarray(result.outputs[name]), np.asarray(expected))
    assert result.engine["operators"] and not result.comparisons


def test_outputs_are_compared_with_those_that_were_expected(digits: Path) -> None:
    inputs = fluidtool.Inputs(feeds=[str(digits / "x.npy")])
    near = fluidtool.run(fluidtool.load(digits), inputs, expected=digits / "expected.npz")
    assert [item.agrees for item in near.comparisons] == [True] and not near.differing
    exact = fluidtool.run(
        fluidtool.load(digits, engine="numpy"), inputs, expected=digits / "expected.npz", tolerance=Tolerance(0.0, 0.0)
    )
    assert exact.differing == list(exact.comparisons)


@pytest.mark.parametrize("tolerance", [{"rtol": -1}, {"atol": -1e-9}, {"rtol": float("nan")}, {"atol": float("nan")}])
def test_a_tolerance_is_not_negative(tolerance: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must not be negative or NaN"):
        Tolerance(**tolerance)


def test_random_inputs_are_told_of(digits: Path, watcher: Notebook) -> None:
    fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(random=True, batch=3), watcher=watcher)
    assert watcher.said == ["random input image: float32 (3, 1, 8, 8)"] and watcher.stages == ["running"]


def test_only_counted_runs_have_a_time(digits: Path) -> None:
    result = fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(random=True), repeat=3, warmup=2)
    assert len(result.seconds) == 3


def test_everything_that_is_computed_can_be_fetched(digits: Path) -> None:
    result = fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(random=True), everything=True)
    assert {"conv2d_0.tmp_0", "fc_0.tmp_2"} <= result.outputs.keys()


def test_an_unknown_fetch_is_refused(digits: Path) -> None:
    with pytest.raises(FetchError, match="no such variable"):
        fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(random=True), ["nothing"])


def test_a_file_for_an_unknown_input_is_refused(digits: Path) -> None:
    with pytest.raises(FeedError, match="no input 'picture'"):
        fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(feeds=[f"picture={digits / 'x.npy'}"]))


def test_a_shape_is_for_random_inputs(digits: Path) -> None:
    with pytest.raises(FeedError, match="random=True"):
        fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(feeds=[str(digits / "x.npy")], shapes=["1,1,8,8"]))


@pytest.mark.parametrize("name", ["out.npz", "out"])
def test_outputs_are_saved_once(digits: Path, tmp_path: Path, name: str) -> None:
    outputs = fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(random=True)).outputs
    save_outputs(outputs, tmp_path / name)
    with pytest.raises(OutputExistsError):
        require_free(tmp_path / name, overwrite=False)
    require_free(tmp_path / name, overwrite=True)


def test_one_file_npy_holds_one_array(digits: Path, tmp_path: Path) -> None:
    outputs = fluidtool.run(fluidtool.load(digits), fluidtool.Inputs(random=True), everything=True).outputs
    with pytest.raises(UsageError, match="can hold one array"):
        save_outputs(outputs, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_an_empty_folder_is_free(tmp_path: Path) -> None:
    require_free(tmp_path, overwrite=False)


def test_a_profile_has_an_item_for_each_operator_and_the_engine(digits: Path) -> None:
    model = fluidtool.load(digits, engine="numpy")
    result = fluidtool.profile(model, fluidtool.Inputs(random=True), repeat=2)
    assert result.engine["name"] == "numpy"
    assert sum(item.times for item in result.profile.items) == 13 - 2  # feed and fetch are no steps


def test_a_profile_of_what_nothing_computes_is_refused(digits: Path) -> None:
    with pytest.raises(FetchError, match="no such variable"):
        fluidtool.profile(fluidtool.load(digits), fluidtool.Inputs(random=True), ["nothing"])
