"""samples/ci and the pre-commit hook: their commands run here; what installs fluidtool or talks to a service does not."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.checkout import ROOT, child_environment

CI = ROOT / "samples" / "ci"
INSTALLING = "python -m pip install fluidtool"


def commands(name: str) -> list[str]:
    """The commands of a sample, without the installation."""
    data: Any = yaml.safe_load((CI / name).read_text())
    if name == "gitlab-ci.yml":
        job = data["check-models"]
        found = [*job["before_script"], *job["script"]]
    else:
        found = [step["run"] for step in data["jobs"]["check"]["steps"] if "run" in step]
    assert found[0] == INSTALLING
    return found[1:]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell of the service does, with the fluidtool that is tested."""
    script = f'fluidtool() {{ {shlex.quote(sys.executable)} -m fluidtool "$@"; }}\n{command}\n'
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder, env=child_environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a model."""
    shutil.copytree(ROOT / "samples" / "digits", tmp_path / "models" / "digits")
    return tmp_path


@pytest.fixture
def broken(project: Path) -> Path:
    """The same without one parameter."""
    (project / "models" / "digits" / "fc_0.w_0").unlink()
    return project


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_a_sound_model_passes(name: str, project: Path) -> None:
    assert [run(command, project).returncode for command in commands(name)] == [0] * len(commands(name))


def test_github_annotates_and_reports(broken: Path) -> None:
    annotate, report = (run(command, broken) for command in commands("github-actions.yml"))
    assert annotate.returncode == 1
    assert annotate.stdout.startswith("::error file=models/digits/__model__,title=FC301::fc_0.w_0: ")
    assert report.returncode == 0  # the step before has failed the job; this one has to reach the upload
    (found,) = json.loads((broken / "models.sarif").read_text())["runs"][0]["results"]
    assert found["ruleId"] == "FC301"


def test_gitlab_gets_a_report(broken: Path) -> None:
    (done,) = (run(command, broken) for command in commands("gitlab-ci.yml"))
    assert done.returncode == 1
    (case,) = ElementTree.parse(broken / "models.xml").getroot()[0]
    assert case[0].tag == "failure"


def test_the_reports_are_those_that_the_services_read() -> None:
    steps = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]["check"]["steps"]
    assert steps[-1]["with"]["sarif_file"] == "models.sarif"
    artifacts = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["check-models"]["artifacts"]
    assert artifacts == {"when": "always", "reports": {"junit": "models.xml"}}


# ---------------------------------------------------------------- pre-commit
def test_the_hook_checks_the_programs_that_a_commit_changes(broken: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    names = [path.relative_to(broken).as_posix() for path in sorted(broken.rglob("*")) if path.is_file()]
    chosen = [name for name in names if re.search(hook["files"], name)]
    assert (hook["id"], hook["language"], chosen) == ("fluidtool-check", "python", ["models/digits/__model__"])
    assert run(shlex.join([*shlex.split(hook["entry"]), *chosen]), broken).returncode == 1


@pytest.mark.parametrize(("name", "chosen"), [("net.pdmodel", True), ("a/__model__", True), ("a__model__", False)])
def test_the_hook_knows_programs_by_their_names(name: str, chosen: bool) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert bool(re.search(hook["files"], name)) == chosen
