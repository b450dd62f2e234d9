"""Each sample trains in its small form to its metric, and its saved model computes the same from the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.tensor import CPUPlace, create_lod_tensor
from tests.cli.support import SAMPLES as FOLDER
from tests.cli.support import call, process
from tests.samples.pack import SAMPLES
from tests.support.checkout import child_environment

pytestmark = pytest.mark.slow


def run(script: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a script with this interpreter; on one core, as threads cost more than such small matrices."""
    command = [sys.executable, str(script), *map(str, args)]
    environment = child_environment(PYTHONSAFEPATH="", OPENBLAS_NUM_THREADS="1")  # they import what stands beside them
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


@pytest.mark.parametrize(("sample", "network"), SAMPLES, ids=[".".join(filter(None, one)) for one in SAMPLES])
def test_a_sample_reaches_its_metric_and_is_run_by_the_command_line(sample: str, network: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    trained = run(FOLDER / f"{sample}.py", "--small", "--out", out, *(["--network", network] if network else []))
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "(wanted: " in trained.stdout
    inputs = ["--feed", out / "feed.npz", "--lod", out / "lod.json"]
    again = call("run", out, *inputs, "--expect", out / "expected.npz")
    assert again.exit_code == 0, again.output
    assert "as in" in again.stderr


def test_a_saved_sample_gives_sequences_with_their_lengths(tmp_path: Path) -> None:
    assert run(FOLDER / "label_semantic_roles.py", "--epochs", 0, "--small", "--out", tmp_path).returncode == 1
    model = fluidtool.load(tmp_path)
    lengths = [[3, 1]]
    feed = {name: create_lod_tensor(np.zeros((4, 1), "int64"), lengths, CPUPlace()) for name in model.feeds}
    (path,) = model.run(feed).values()
    assert path.recursive_sequence_lengths() == lengths


def test_an_untrained_sample_is_not_good_enough(tmp_path: Path) -> None:
    done = run(FOLDER / "fit_a_line.py", "--epochs", 0, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (1, "the mean squared error is not good enough\n")


def test_a_sample_runs_as_a_script_for_paddle(tmp_path: Path) -> None:
    for name in ("common", "fit_a_line"):
        source = (FOLDER / f"{name}.py").read_text()
        (tmp_path / f"{name}.py").write_text(source.replace("fluidtool.fluid", "paddle.fluid"))
    done = process("exec", "fit_a_line.py", "--small", "--out", "line", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"mean squared error" in done.stdout and (tmp_path / "line" / "__model__").is_file()


def test_an_unknown_network_is_refused(tmp_path: Path) -> None:
    done = run(FOLDER / "recognize_digits.py", "--network", "rnn", "--out", tmp_path / "out")
    assert done.returncode == 2 and "invalid choice: 'rnn'" in done.stderr
    assert not (tmp_path / "out").exists()
