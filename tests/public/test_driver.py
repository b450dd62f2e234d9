"""The driver of public scripts, on a repository that is made here."""

from __future__ import annotations

import argparse
import math
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.public import comparison, examples, made, names, repository, runs
from tests.public.__main__ import MOVES, Driver, main

TRAINS = """
import paddle, numpy
import paddle.fluid as fluid
x = fluid.data("x", [None, 13], "float32")
loss = fluid.layers.mean(fluid.layers.fc(x, 1))
exe = fluid.Executor(fluid.CUDAPlace(0))
exe.run(fluid.default_startup_program())
for batch in paddle.batch(paddle.dataset.uci_housing.train(), 2)():
    print(exe.run(feed={"x": numpy.array([features for features, _ in batch], "float32")}, fetch_list=[loss]))
"""


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A repository with a script that runs, one that fails, and one that is no matter of ours."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINS)
    (folder / "infer.py").write_text("import paddle.fluid as fluid\nfluid.layers.nosuch\n")
    (folder / "other.py").write_text("print('nothing')\n")

    def git(*arguments: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "scripts")
    return folder / ".git"


def test_a_table_says_how_each_script_ran(public: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(public), "--reference", "main", "--samples", "6", "--seconds", "60"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert repository.commit_of(public, "main") in lines[0]
    assert lines[4] == "| train.py |  | completed, 4 runs |  |  |  |"
    assert lines[5].startswith("| infer.py |  | error: infer.py, line 2: fluid.layers.nosuch:")
    assert lines[-1] == "1 of 2 scripts that Paddle runs (2 in all)"


def test_scripts_keep_names_that_git_quotes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "回归").mkdir(parents=True)
    (work / "回归" / "训练 1.py").write_text(TRAINS)
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-b", "main"], ["add", "."], ["commit", "-m", "scripts"]):
        subprocess.run(["git", *names, *arguments], cwd=work, check=True, capture_output=True)
    repository.check_out(work / ".git", "main", tmp_path / "out")
    assert repository.scripts_of(tmp_path / "out") == [Path("回归/训练 1.py")]


def test_only_scripts_that_are_named(public: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(public), "--samples", "2", "--only", "train"]) == 0
    assert "infer.py" not in capsys.readouterr().out


def test_commands_run_in_the_repositorys_folder(
    public: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, runs = tmp_path / "data" / "tools", tmp_path / "runs.txt"
    data.mkdir(parents=True)
    (data / "show.py").write_text("import sys; sys.exit(' '.join([open('train.py').readline(), *sys.argv]))")
    (data.parent / "train.py").write_text("first line")
    (data / "train.py").write_text("another")
    runs.write_text("# a comment\ntools/show.py --steps 'a b'\ntools/ show.py 1\n")
    assert main([str(public), "--runs", str(runs), "--data", str(data.parent)]) == 1
    rows = capsys.readouterr().out.splitlines()[4:6]
    assert rows[0] == "| tools/show.py --steps a b |  | first line tools/show.py --steps a b |  |  |  |"
    assert rows[1] == "| tools/show.py 1 |  | another show.py 1 |  |  |  |"


VALUE = ([1], "float32", [2.0])


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([[], [VALUE]], [[VALUE]], [0.0]),
        ([[([1], "float32", [2.5])]], [[VALUE]], [0.25]),
        ([[([1], "float32", [math.nan])]], [[VALUE]], [math.inf]),
        ([[([1, 1], "float32", [2.0])]], [[VALUE]], [math.inf]),
        ([[VALUE, VALUE]], [[VALUE]], [math.inf]),
        ([[VALUE]] * 9, [[VALUE]] * 7, [0.0] * 5),
        ([], [[VALUE]], []),
    ],
)
def test_how_far_values_are_apart(ours: list, theirs: list, expected: list[float]) -> None:
    assert comparison.differences(ours, theirs) == expected


@pytest.mark.parametrize(
    ("apart", "sensitivity", "expected"),
    [
        ([1e-4, 1e-5], [], True),
        ([2e-4], [], False),
        ([1e-7, 5e-3], [1e-7, 1e-3], True),
        ([5e-3, 1e-7], [1e-7, 1e-3], False),
        ([1e-7, 5e-3, 5e-3], [1e-7, 1e-3, 1e-6], True),
        ([1e-7, 5e-3], [1e-1, 1e-1], False),
    ],
)
def test_numbers_may_differ_as_far_as_rounding_has_grown(
    apart: list[float], sensitivity: list[float], expected: bool
) -> None:
    assert comparison.within(apart, sensitivity, 1e-4) is expected


def test_numbers_far_apart_from_the_first_run_on_are_rounding_if_runs_repeat_themselves() -> None:
    assert not comparison.within([5e-1], [1e-1], 1e-4, repeats=False)
    assert comparison.within([5e-1], [1e-1], 1e-4, repeats=True)
    assert not comparison.within([5e-1], [1e-2], 1e-4, repeats=True)


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [([[VALUE]], True), ([[([1], "float32", [2.5])]], False), ([], False)],
)
def test_runs_repeat_themselves_only_with_the_very_same_values(theirs: list, expected: bool) -> None:
    assert comparison.same([[VALUE]], theirs) is expected


DRAWS = """
import numpy, paddle
import paddle.fluid as fluid
x = fluid.data("x", [-1, 1], "float32")
like = [fluid.layers.uniform_random_batch_size_like(x, [-1, 2]), fluid.layers.gaussian_random_batch_size_like(x, [-1, 2], mean=3.0)]
drawn = [fluid.layers.uniform_random([2], min=-3.0, max=1.0), fluid.layers.gaussian_random([2], mean=3.0, std=2.0)]
chosen = fluid.layers.sampling_id(fluid.layers.assign(numpy.array([[0.3, 0.3, 0.4]] * 9, "float32")))
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
for _ in range(2):
    exe.run(feed={"x": numpy.ones([1, 1], "float32")}, fetch_list=[*like, *drawn, chosen])
"""


def test_what_a_program_draws_is_the_same_in_each_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DRAWS)
    engine, command = runs.fluidtool("", "--device", "cpu"), runs.Command(Path("train.py"))
    found = runs.run(engine, tmp_path, command, tmp_path / "records", 60, 16)
    assert found.completed, found.ending
    values = [[numbers for _, _, numbers in fetched] for fetched in found.fetched if fetched]
    assert len(values) == 2
    for uniform, normal, wide, wider, chosen in values:
        assert uniform == pytest.approx([0.0] * 2, abs=1e-6)
        assert normal == [3.0] * 2
        assert wide == pytest.approx([-1.0] * 2, abs=1e-6)
        assert wider == [3.0] * 2
        assert chosen == [1.0] * 9


@dataclass(frozen=True)
class Told(Driver):
    """A driver whose scripts fetch one number each, as told for each engine, and 0 for others."""

    numbers: dict[str, float] = field(default_factory=dict)
    ran: list[tuple[str, str]] = field(default_factory=list)

    def prepare(self, engine: runs.Engine) -> None:
        pass

    def run(self, engine: runs.Engine, command: runs.Command) -> runs.Run:
        self.ran.append((engine.name, command.script.name))
        number = 1.0 + (self.numbers.get(engine.name, 0.0) if command.script.name == "last.py" else 0.0)
        return runs.Run("completed", [[([1], "float32", [number])]])


def row_of(folder: Path, **numbers: float) -> tuple[bool, list[tuple[str, str]]]:
    """Whether the second of two scripts does as Paddle does, and what ran by engine and script."""
    commands = folder / "commands.txt"
    commands.write_text("a/ first.py\na/ last.py\n")
    chosen = argparse.Namespace(
        packages="", option=[], paddle="python", paddle_packages="", runs=commands, only=[], seconds=1, samples=1
    )
    driver = Told(chosen, folder, numbers)
    first, last = driver.rows()
    assert first.passes
    return last.passes, driver.ran


def test_what_does_the_same_is_not_moved(tmp_path: Path) -> None:
    passes, ran = row_of(tmp_path, fluidtool=1e-5)
    assert passes
    assert {engine for engine, _ in ran} == {"paddle", "fluidtool"}


def test_parameters_are_moved_until_numbers_are_as_far_apart(tmp_path: Path) -> None:
    passes, ran = row_of(tmp_path, fluidtool=5e-4, moved1=1e-7, moved2=1e-4, moved3=1e-4)
    assert passes
    assert ran[4:] == [("moved1", "first.py"), ("moved1", "last.py"), ("moved2", "first.py"), ("moved2", "last.py")]


def test_numbers_further_apart_than_any_move_makes_them_do_not_pass(tmp_path: Path) -> None:
    passes, ran = row_of(tmp_path, fluidtool=5e-3, moved1=1e-4)
    assert not passes
    assert [engine for engine, script in ran if script == "last.py"][2:] == [f"moved{n}" for n in range(1, 1 + MOVES)]


def test_a_script_that_rounding_moves_far_runs_again_without_a_move(tmp_path: Path) -> None:
    assert row_of(tmp_path, fluidtool=0.5, moved1=0.1)[0]
    passes, ran = row_of(tmp_path, fluidtool=0.5, moved1=0.1, again=1e-3)
    assert not passes
    assert ran.count(("again", "first.py")) == ran.count(("again", "last.py")) == 1


def test_a_moved_run_starts_one_ulp_off(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    engine = runs.fluidtool("", "--device", "cpu")
    kept, moved = (
        runs.run(replace(engine, moved=moved), tmp_path, runs.Command(Path("train.py")), tmp_path / "records", 60, 16)
        for moved in (0, 1)
    )
    apart = comparison.differences(moved.fetched, kept.fetched)
    assert len(apart) == 5
    assert 0 < max(apart) < 1e-5


def test_a_folder_that_a_branch_lacks_is_said(tmp_path: Path) -> None:
    command = runs.Command(Path("nosuch/train.py"))
    found = runs.run(runs.fluidtool(""), tmp_path, command, tmp_path / "records", 1, 1)
    assert found.ending == "no such folder"


def test_names_are_followed_through_imports() -> None:
    source = "import paddle.fluid as fluid\nfrom paddle.fluid.layers import fc as dense\ndense(fluid.ParamAttr().name)\nx.y\n"
    assert names.names_used(source) == {"paddle.fluid.layers.fc", "paddle.fluid.ParamAttr"}


def test_names_that_we_lack_are_counted(public: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert names.main([str(public)]) == 0
    assert capsys.readouterr().out == "   1 paddle.fluid.layers.nosuch\n"


@pytest.mark.parametrize("make", made.MADE.values())
def test_made_files_are_the_same_every_time(make: Callable[[], Iterator[tuple[str, bytes]]]) -> None:
    files = dict(make())
    assert files == dict(make())
    assert all(files.values())


DOCUMENTED = '''
def fc():
    """A layer.

    .. code-block:: python

        import paddle.fluid as fluid

        fluid.layers.fc

    ::

        import paddle.fluid as fluid  # the same
        fluid.layers.fc
    .. code-block:: python

        from paddle.fluid.dygraph import to_variable
    """
'''


def test_examples_become_scripts_of_a_repository(tmp_path: Path) -> None:
    docs, scripts = tmp_path / "docs", tmp_path / "scripts"
    docs.mkdir()
    (docs / "nn.py").write_text(DOCUMENTED)
    (docs / "guide.md").write_text("text\n```python\nimport paddle\n```\n```python\nprint 1\n```\n")
    examples.main([str(scripts), str(docs)])
    written = {path: data.decode() for path, data in repository.contents(scripts / ".git", "HEAD")}
    assert written == {
        "0.guide.0.py": "import paddle\n",
        "0.nn.0.py": "import paddle.fluid as fluid\n\nfluid.layers.fc\n",
    }
