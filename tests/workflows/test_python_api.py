"""The Python API as its users write it: models and outputs that are called, indexed, converted, saved and shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import ArgumentTypeError, FeedError, OutputExistsError, UsageError
from fluidtool.html_table import MOST_ROWS, html_table
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.cli.support import DIGITS, TOPICS, linear_model
from tests.support.checkout import ROOT, child_environment

IMAGES = np.load(DIGITS / "x.npy")


@pytest.fixture
def model() -> fluidtool.Model:
    return fluidtool.load(DIGITS)


# ---------------------------------------------------------------- calling
def test_a_model_is_called_by_position_name_or_mapping(model: fluidtool.Model) -> None:
    one, two, three = model(IMAGES), model(image=IMAGES), model({"image": IMAGES})
    assert list(one) == model.fetches
    assert np.array_equal(one[0], two[0]) and np.array_equal(one[0], three[0])


def test_more_values_than_inputs_are_refused(model: fluidtool.Model) -> None:
    with pytest.raises(FeedError, match=r"2 values are given; the inputs are image float32"):
        model(IMAGES, IMAGES)


def test_a_list_becomes_an_array_of_the_declared_type(tmp_path: Path) -> None:
    linear = fluidtool.load(linear_model(tmp_path / "m"))
    rows = [[1, 2, 3, 4], [0, -1, 0.5, 2]]
    assert np.array_equal(linear(rows)[0], linear(np.array(rows, "float32"))[0])
    assert np.array_equal(linear(x=tuple(rows))[0], linear(np.array(rows, "float32"))[0])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1, 2], [3]], "not rectangular"),
        ([["a", "b", "c", "d"]], "takes float32, found a list of <U1"),
        ([[1j, 0, 0, 0]], "takes float32, found a list of complex128"),
        ([1.0, 2.0], r"takes shape \(-1, 4\)"),
    ],
)
def test_a_list_that_cannot_be_the_input_is_refused(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        fluidtool.load(linear_model(tmp_path / "m"))(value)


def test_a_list_for_sequences_is_ambiguous() -> None:
    with pytest.raises(FeedError, match="does not say where they end; give a LoDTensor"):
        fluidtool.load(TOPICS)({"words": [[1], [2]]})


def test_run_takes_values_and_paths() -> None:
    result = fluidtool.run(DIGITS, fluidtool.Inputs(feeds={"image": IMAGES}))
    assert result.outputs[0].shape() == [8, 10]
    with pytest.raises(FeedError, match="no variable 'picture'"):
        fluidtool.run(DIGITS, fluidtool.Inputs(feeds={"picture": IMAGES}))


# ---------------------------------------------------------------- outputs
def test_outputs_have_names_and_positions(model: fluidtool.Model) -> None:
    found = model.run({"image": IMAGES}, ["fc_0.tmp_0", "fc_0.tmp_1"])
    assert found[0] is found["fc_0.tmp_0"] and found[-1] is found["fc_0.tmp_1"]
    with pytest.raises(IndexError, match=r"there is no output 2; the outputs are fc_0\.tmp_0, fc_0\.tmp_1"):
        found[2]
    with pytest.raises(KeyError, match="fc_9"):
        found["fc_9"]


def test_one_output_is_an_array(model: fluidtool.Model) -> None:
    found = model(IMAGES)
    want = found[0].numpy()
    assert np.array_equal(np.asarray(found), want) and np.array_equal(np.from_dlpack(found), want)
    assert np.asarray(found, dtype="float64").dtype == np.float64
    assert np.array_equal(np.from_dlpack(found[0]), want)


def test_several_outputs_are_not_one_array(model: fluidtool.Model) -> None:
    found = model.run({"image": IMAGES}, ["fc_0.tmp_0", "fc_0.tmp_1"])
    with pytest.raises(ArgumentTypeError, match=r"there are 2 outputs.*outputs\[0\]"):
        np.asarray(found)


def test_outputs_print_names_types_shapes_and_values() -> None:
    found = fluidtool.Outputs(
        a=LoDTensor(np.arange(8, dtype="int64")), b=SelectedRows([1], 9, np.ones((1, 2))), c=LoDTensor()
    )
    assert repr(found).splitlines() == [
        "Outputs",
        "  a  int64  (8,)  0 1 2 3 4 5 …",
        "  b  SelectedRows  1 of 9 rows",
        "  c  LoDTensor",
    ]


# ---------------------------------------------------------------- notebooks
def test_notebooks_show_tables(model: fluidtool.Model) -> None:
    for shown in (model, model.program, model(IMAGES), fluidtool.run(model, fluidtool.Inputs(random=True))):
        html = shown._repr_html_()  # type: ignore[attr-defined]
        assert html.startswith("<table>") and html.endswith("</table>")
    assert "image" in model._repr_html_() and "conv2d" in model.program._repr_html_()


def test_names_are_escaped() -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e" + "x" * 10_000
    html = html_table(hostile, (hostile,), [(hostile,)] * (MOST_ROWS + 7))
    assert "<script>" not in html and "\x1b" not in html and "\u202e" not in html and "and 7 more" in html
    assert len(html) < 200_000 and "&lt;script&gt;" in html


def test_a_model_says_what_it_takes_and_gives(model: fluidtool.Model) -> None:
    assert re.fullmatch(r"Model\(.*__model__: image float32 \(-1, 1, 8, 8\) -> .*\)", repr(model))


def test_dir_lists_the_calls() -> None:
    assert {"load", "run", "check", "diff", "convert", "reshape", "prune", "transpile"} <= set(dir(fluidtool))


# ---------------------------------------------------------------- saving
def test_a_model_is_saved_as_it_was_loaded(model: fluidtool.Model, tmp_path: Path) -> None:
    files = model.save(tmp_path / "copy")
    assert {path.name for path in files} == {
        path.name for path in DIGITS.iterdir() if (tmp_path / "copy" / path.name).is_file()
    }
    assert fluidtool.diff(model, tmp_path / "copy", params=True).equal
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        model.save(tmp_path / "copy")
    assert model.save(tmp_path / "copy", overwrite=True)


def test_parameters_that_changed_are_saved(model: fluidtool.Model, tmp_path: Path) -> None:
    model(IMAGES)
    weight = model.scope.find_var("fc_0.w_0").get_tensor()
    weight.set(np.zeros(weight.shape(), "float32"))
    model.save(tmp_path / "changed")
    (changed,) = fluidtool.diff(DIGITS, tmp_path / "changed", params=True).parameters or ()
    assert changed.name == "fc_0.w_0"


def test_a_model_in_memory_is_what_every_call_takes(model: fluidtool.Model, tmp_path: Path) -> None:
    assert fluidtool.check(model) == [] and fluidtool.diff(model, model).equal
    assert fluidtool.reshape(model, {"image": (8, 1, 8, 8)}).program is not model.program
    assert fluidtool.prune(model, ["fc_0.tmp_0"], tmp_path / "pruned").files
    assert fluidtool.convert(model, tmp_path / "pair", to="paddle2").files
    assert fluidtool.transpile(model, ["fuse-batch-norm"]).stages
    with pytest.raises(UsageError, match="the model is open already"):
        fluidtool.prune(model, ["fc_0.tmp_0"], tmp_path / "other", params=str(DIGITS))


def test_the_examples_of_the_documentation_have_types(tmp_path: Path) -> None:
    """docs/python.md and README, block by block; tests/test_readme.py runs them."""
    pytest.importorskip("mypy")
    for page in (ROOT / "docs" / "python.md",):
        for number, block in enumerate(
            re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        ):
            (tmp_path / f"{page.stem}_{number}.py").write_text(block)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir"]
    files = sorted(map(str, tmp_path.glob("*.py")))
    done = subprocess.run(
        [*command, str(tmp_path / "cache"), "--follow-imports=silent", *files],
        capture_output=True, text=True, check=False, env=child_environment(), cwd=ROOT,
    )  # fmt: skip
    assert files and done.returncode == 0, done.stdout + done.stderr
