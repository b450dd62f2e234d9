"""`fluidtool.view`: files, notebooks, figures from documents, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fluidtool
from fluidtool.drawing.coloring import Coloring
from fluidtool.drawing.graph import Place
from fluidtool.errors import OutputExistsError, UnreadableError, UsageError
from fluidtool.workflows.view import view
from tests.cli.support import BIAS, WEIGHT, linear_model, linear_program, write_model
from tests.drawing.programs import chain, looping

MUL, ADD, RELU, SOFTMAX = (Place(0, at) for at in range(1, 5))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


def timed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"schema": "fluidtool.profile/1", "items": list(items)}


def coloring(model: Path, **documents: Any) -> Coloring:
    (figures,) = view(model, **documents).figures
    return figures.coloring


# ---------------------------------------------------------------- files
@pytest.mark.parametrize(
    ("name", "start"), [("a.html", "<!DOCTYPE html>"), ("a.SVG", "<svg "), ("a.dot", "digraph "), ("a.gv", "digraph ")]
)
def test_the_suffix_says_the_format(model: Path, tmp_path: Path, name: str, start: str) -> None:
    drawn = fluidtool.view(model, tmp_path / name)
    assert drawn.files == (tmp_path / name,)
    assert (tmp_path / name).read_text("utf-8").startswith(start)


def test_another_suffix_is_refused_and_nothing_written(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"graph.png: .* expected .html, .svg or .dot"):
        view(model, tmp_path / "graph.png")
    assert not (tmp_path / "graph.png").exists()


def test_what_is_there_stays(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "graph.svg"
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="already exists"):
        view(model, path)
    assert path.read_text() == "mine"
    view(model, path, overwrite=True)
    assert path.read_text("utf-8").startswith("<svg")


def test_parameters_are_not_needed(tmp_path: Path) -> None:
    path = tmp_path / "__model__"
    path.write_bytes(linear_program().serialize_to_string())
    assert "<svg" in view(path).svg()


def test_an_open_model_is_drawn_as_it_is(model: Path) -> None:
    assert view(fluidtool.load(model)).svg() == view(model).svg().replace("<title>model<", "<title>__model__<")


def test_statistics_of_parameters_stand_in_the_page(model: Path) -> None:
    assert "min 0, mean 0.55, max 1.1, std" in view(model, with_params=True).html()
    assert "mean 0.55" not in view(model).html()


def test_nan_in_a_parameter_is_counted(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[0, 0] = float("nan")
    path = write_model(tmp_path / "nan", linear_program(), w=weight, b=BIAS)
    assert "1 NaN of 12" in view(path, with_params=True).html()


# ---------------------------------------------------------------- notebooks
def test_a_notebook_shows_the_page_in_a_frame_of_its_own(model: Path) -> None:
    shown = view(model)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!DOCTYPE html&gt;')
    assert shown.count("<") == 2


def test_a_notebook_without_frames_shows_the_picture(model: Path) -> None:
    assert view(model)._repr_svg_().startswith("<svg ")


# ---------------------------------------------------------------- folding
def test_what_is_folded_can_be_chosen(tmp_path: Path) -> None:
    path = write_model(tmp_path / "chain", chain(100))
    shown = {fold: len(view(path, fold=fold).graph("html").nodes) for fold in ("auto", "always", "never")}
    assert shown["auto"] == shown["never"] == 102 > 20 > shown["always"]


# ---------------------------------------------------------------- time
def test_times_belong_to_operators_by_their_position(model: Path) -> None:
    items = [
        {"block": 0, "operator": 1, "output": "product", "seconds": 0.003},
        {"block": 0, "operator": 3, "output": "positive", "seconds": 0.001},
    ]
    found = coloring(model, profile=timed(*items))
    assert (found.by, found.marks[MUL].text, found.marks[MUL].css) == ("time", "3 ms · 75 %", "heat7")
    assert found.marks[RELU].text == "1 ms · 25 %"


def test_times_without_positions_belong_to_what_writes_the_output(model: Path) -> None:
    found = coloring(model, profile=timed({"output": "sum", "seconds": 2.0}))
    assert found.marks[ADD].text == "2 s · 100 %"


def test_of_operators_that_write_one_name_the_type_decides(tmp_path: Path) -> None:
    path = linear_model(tmp_path / "in_place", in_place=True)
    items = [{"name": kind, "output": "sum", "seconds": 1.0} for kind in ("elementwise_add", "relu")]
    assert set(coloring(path, profile=timed(*items)).marks) >= {ADD, RELU}


def test_operators_of_one_kernel_call_are_colored_alike(model: Path) -> None:
    found = coloring(
        model, profile=timed({"output": "positive", "seconds": 1e-3}, {"output": "probability", "seconds": 1e-5})
    )
    assert [found.marks[each].text for each in (MUL, ADD)] == ["within operator 3"] * 2
    assert found.marks[MUL].css == found.marks[RELU].css


def test_a_group_has_the_time_of_what_is_in_it(tmp_path: Path) -> None:
    path = write_model(tmp_path / "loop", looping())
    items = [
        {"block": 1, "operator": at, "output": name, "seconds": 1.0} for at, name in ((0, "more"), (2, "condition"))
    ]
    drawn = view(path, profile=timed(*items))
    (loop,) = drawn.unfolded.groups()
    mark = drawn.figures[0].coloring.of(loop)
    assert mark is not None and mark.text == "2 s · 100 %"


def test_a_real_profile_colors_every_operator(model: Path, tmp_path: Path) -> None:
    from tests.cli.support import call

    document = call("profile", model, "--random", "--engine", "numpy", "--repeat", 1, "--json").stdout
    (tmp_path / "time.json").write_text(document)
    assert set(coloring(model, profile=tmp_path / "time.json").marks) == {MUL, ADD, RELU, SOFTMAX}


def test_a_profile_of_another_model_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="the profile has no operator of this model"):
        view(model, profile=timed({"output": "elsewhere", "seconds": 1.0}))


@pytest.mark.parametrize("document", [{}, {"items": 3}, {"items": [1]}, {"items": {"a": 1}}])
def test_what_is_no_profile_is_refused(model: Path, document: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is not a document of profile"):
        view(model, profile=document)


def test_a_file_that_is_no_json_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "time.json").write_text("{")
    with pytest.raises(UnreadableError, match=r"time.json as JSON"):
        view(model, profile=tmp_path / "time.json")


# ---------------------------------------------------------------- differences
def differing(**kwargs: Any) -> dict[str, Any]:
    op = {"type": "relu", "left": 3, "right": None, "left_outputs": ["positive"], "right_outputs": [], "changes": []}
    block = {"left": 0, "right": 0, "changes": [], "operators": [op | kwargs], "variables": []}
    return {"schema": "fluidtool.diff/1", "equal": False, "changes": [], "blocks": [block]}


def test_an_operator_that_the_other_model_lacks(model: Path) -> None:
    assert coloring(model, difference=differing()).marks[RELU].css == "only"


def test_an_operator_with_other_attributes(model: Path) -> None:
    found = coloring(model, difference=differing(right=4, changes=[{"field": "attribute axis", "left": 1, "right": 2}]))
    assert (found.marks[RELU].css, found.marks[RELU].text) == ("changed", "attribute axis")


def test_the_model_may_be_the_second_one(model: Path) -> None:
    found = coloring(model, difference=differing(left=77, right=3))
    assert set(found.marks) == {RELU}


def test_a_difference_of_other_models_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="compares other models"):
        view(model, difference=differing(type="conv2d", right=2))


def test_a_parameter_that_differs_marks_its_operators(model: Path) -> None:
    document = {
        "blocks": [],
        "parameters": [{"name": "w", "left": "float32 (4, 3)", "right": "float32 (4, 3)", "largest_difference": 0.25}],
    }
    assert coloring(model, difference=document).marks[MUL].text == "w: 0.25"


def test_a_real_difference(model: Path, tmp_path: Path) -> None:
    from tests.cli.support import call

    other = write_model(tmp_path / "other", linear_program(), w=WEIGHT + 1, b=BIAS)
    document = json.loads(call("diff", model, other, "--with-params", "--json").stdout)
    assert {place: mark.text for place, mark in coloring(model, difference=document).marks.items()} == {MUL: "w: 1"}


def test_errors_of_compared_values(model: Path) -> None:
    values = [
        {"name": "product", "largest_difference": 0.0},
        {"name": "sum", "largest_difference": 1e-4},
        {"name": "lost", "largest_difference": 1.0},
    ]
    (figures,) = view(model, difference={"schema": "fluidtool.compare/1", "values": values}).figures
    assert figures.unmatched == 1
    assert [figures.coloring.marks[each].css for each in (MUL, ADD)] == ["equal", "heat4"]


def test_a_comparison_finds_values_by_their_names_in_either_model(model: Path) -> None:
    values = [
        {"name": "x", "partner": "x", "block": None, "operator": None, "relative_difference": 0.0},
        {"name": "other", "partner": "sum", "block": 0, "operator": 4, "relative_difference": 1.0},
        {"name": "product", "partner": "product", "block": 0, "operator": 1, "fault": "shapes"},
        {"name": "positive", "partner": "positive", "block": 0, "operator": 3, "rewritten": True},
    ]
    (figures,) = view(model, difference={"values": values}).figures
    assert figures.unmatched == 0
    assert {place: mark.text for place, mark in figures.coloring.marks.items()} == {MUL: "inf", ADD: "1"}


@pytest.mark.parametrize("error", ["NaN", "Infinity"])
def test_a_value_that_is_not_finite_is_the_worst(model: Path, error: str) -> None:
    found = coloring(model, difference={"values": [{"name": "sum", "largest_difference": error}]})
    assert found.marks[ADD].css == "heat7"


def test_what_is_no_difference_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="is not a document of diff or compare"):
        view(model, difference={"items": []})


def test_colors_need_figures(model: Path) -> None:
    with pytest.raises(UsageError, match="colors by time need figures; give --profile FILE"):
        view(model, color_by="time")


def test_colors_by_kind_stay_if_that_is_asked_for(model: Path) -> None:
    drawn = view(model, profile=timed({"output": "sum", "seconds": 2.0}), color_by="kind")
    assert "2 s" not in drawn.svg() and "2 s" in drawn.html()
