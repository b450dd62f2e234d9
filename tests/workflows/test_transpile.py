"""`fluidtool.transpile`, `prune`, `diff`, `check`: what is done to a model, and what is found out about one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fluidtool
from fluidtool.errors import OutputExistsError, ParameterFileError, ProgramError
from fluidtool.workflows import transpile as module
from fluidtool.workflows.check import check_security
from tests.workflows.conftest import Notebook


def test_passes_run_and_the_result_is_saved_as_the_model_was(digits: Path, tmp_path: Path) -> None:
    result = fluidtool.transpile(digits, ["fuse-batch-norm"], output=tmp_path / "out", verify=True)
    assert [stage.name for stage in result.stages] == ["fuse-batch-norm"] and not result.differing
    assert (result.before.parameters, result.after.parameters) == (12, 6)
    assert {path.name for path in result.files} == {path.name for path in (tmp_path / "out").iterdir()}
    assert fluidtool.load(tmp_path / "out").fetches == fluidtool.load(digits).fetches


def test_nothing_is_written_where_values_differ(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = module.compare_runs
    monkeypatch.setattr(
        module, "compare_runs", lambda *a, **k: tuple(replace(each, fault="other") for each in compared(*a, **k))
    )
    result = fluidtool.transpile(digits, ["fuse-batch-norm"], output=tmp_path / "out", verify=True)
    assert result.differing and result.files == () and not (tmp_path / "out").exists()


def test_figures_of_a_run_are_there_when_they_are_measured(digits: Path) -> None:
    plain = fluidtool.transpile(digits, ["release-memory"])
    measured = fluidtool.transpile(digits, ["release-memory"], measure=True)
    assert plain.after.seconds is None and plain.after.activation_bytes_live is None
    assert measured.after.seconds and measured.after.activation_bytes_live


def test_a_training_program_is_verified_with_what_its_startup_program_makes(digits_training: Path) -> None:
    main, startup = digits_training / "main.pb", digits_training / "startup.pb"
    inputs = fluidtool.Inputs(random=True, batch=4)
    result = fluidtool.transpile(main, ["memory-optimize"], verify=True, startup=startup, inputs=inputs)
    assert result.exact and result.tolerance == 0 and result.comparisons and not result.differing
    with pytest.raises(ParameterFileError, match="give startup=FILE"):
        fluidtool.transpile(main, ["memory-optimize"], verify=True, inputs=inputs)


def test_the_stages_are_told_of(digits: Path, watcher: Notebook) -> None:
    fluidtool.transpile(digits, ["fuse-batch-norm"], verify=True, measure=True, watcher=watcher)
    assert watcher.stages == ["rewriting", "comparing", "measuring"]


def test_what_is_there_is_not_replaced(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    with pytest.raises(OutputExistsError):
        fluidtool.transpile(digits, ["fuse-batch-norm"], output=tmp_path)


@pytest.mark.parametrize(
    "options", [{"passes": ["fuse-nothing"]}, {"passes": ["fuse-batch-norm"], "skip": ["nothing"]}]
)
def test_unknown_names_are_refused(digits: Path, options: Any) -> None:
    with pytest.raises(ProgramError, match="nothing"):
        fluidtool.transpile(digits, **options)


# ---------------------------------------------------------------- prune
def test_a_model_is_cut_down_to_a_variable(digits: Path, tmp_path: Path) -> None:
    result = fluidtool.prune(digits, ["conv2d_0.tmp_0"], tmp_path / "out")
    assert (result.before.parameters, result.after.parameters) == (12, 1)
    assert result.after.parameter_bytes == 16 * 3 * 3 * 4
    assert fluidtool.load(tmp_path / "out").fetches == ["conv2d_0.tmp_0"]


def test_a_cut_to_an_unknown_variable_writes_nothing(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no variable 'nothing'"):
        fluidtool.prune(digits, ["nothing"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- diff and check
def test_a_model_is_equal_to_itself(digits: Path) -> None:
    model = fluidtool.load(digits)
    found = fluidtool.diff(model, fluidtool.load(digits), params=True)
    assert found.equal and found.parameters == ()
    assert fluidtool.diff(model, model).parameters is None


def test_parameters_differ_where_programs_do_not(digits: Path, tmp_path: Path) -> None:
    other = fluidtool.load(digits)
    changed = fluidtool.transpile(digits, ["fuse-batch-norm"], output=tmp_path / "out")
    assert changed.files
    found = fluidtool.diff(other, fluidtool.load(tmp_path / "out"), params=True)
    assert not found.equal and found.parameters and found.program.blocks


def test_a_model_without_faults_has_no_findings(digits: Path, watcher: Notebook) -> None:
    assert fluidtool.check(fluidtool.load(digits), watcher=watcher) == [] and watcher.stages == ["checking"]


def test_a_missing_parameter_is_a_finding(digits: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(digits, tmp_path / "broken"))
    (broken / "conv2d_0.w_0").unlink()
    found = fluidtool.check(fluidtool.load(broken, need_parameters=False, validate=False))
    assert [finding.variable for finding in found] == ["conv2d_0.w_0"]


def test_what_a_program_could_do_and_the_memory_that_it_declares(digits: Path) -> None:
    one, many = (check_security(fluidtool.load(digits), batch) for batch in (1, 64))
    assert one.findings == [] and not one.reached
    assert one.memory.parameters == many.memory.parameters and one.memory.activations < many.memory.activations
