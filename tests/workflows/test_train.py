"""`fluidtool.train` and `play_role`: programs trained on files, in one call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.distribute.launch.ports import free_endpoints
from fluidtool.errors import FeedError, OutputExistsError, PolicyError, UsageError
from fluidtool.io.parameters import open_separate, persistables
from fluidtool.training import CheckpointPlan, Step, open_programs
from fluidtool.workflows.train import Epoch
from tests.support.checkout import child_environment
from tests.workflows.conftest import Notebook


class Steps(Notebook):
    """A watcher that remembers steps and what was there when they were over."""

    def __init__(self, saved: Path) -> None:
        super().__init__()
        self.saved, self.losses, self.epochs = saved, list[float](), list[Epoch]()

    def step(self, step: Step) -> str:
        self.losses.append(step.loss)
        return ""

    def trained(self, epochs: Sequence[Epoch]) -> None:
        assert not self.saved.exists()
        self.epochs = list(epochs)


@pytest.fixture
def request_of(digits_training: Path) -> fluidtool.TrainingRequest:
    data = fluidtool.DataFiles([str(digits_training / "data.npz")])
    return fluidtool.TrainingRequest(digits_training, data)


def parameters(programs: Path, folder: Path) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    found = open_separate(folder, persistables(open_programs(programs).main))
    return {name: np.asarray(value) for name, value in found.items()}


def test_programs_are_trained_and_saved(request_of: fluidtool.TrainingRequest, tmp_path: Path) -> None:
    watcher = Steps(tmp_path / "saved")
    result = fluidtool.train(replace(request_of, epochs=2, save=tmp_path / "saved"), watcher)
    assert [(epoch.number, epoch.steps) for epoch in result.epochs] == [(0, 16), (1, 16)]
    assert result.epochs[1].mean_loss < result.epochs[0].mean_loss
    assert watcher.epochs == list(result.epochs) and watcher.losses[-1] == result.epochs[1].last_loss
    assert result.saved == len(list((tmp_path / "saved").iterdir())) and result.files == ()
    assert watcher.said == [f"{result.saved} variables saved to {tmp_path / 'saved'}"]


def test_an_inference_model_is_saved_beside(request_of: fluidtool.TrainingRequest, tmp_path: Path) -> None:
    request = replace(request_of, save_inference_model=tmp_path / "model", targets=["fc_0.tmp_2"])
    result = fluidtool.train(request)
    assert result.files and fluidtool.load(tmp_path / "model").fetches == ["fc_0.tmp_2"]


def test_a_training_that_is_resumed_gives_the_bits_of_one_that_was_not(
    request_of: fluidtool.TrainingRequest, tmp_path: Path
) -> None:
    plan = CheckpointPlan(tmp_path / "checkpoints")
    fluidtool.train(replace(request_of, epochs=1, checkpoints=plan))
    again = fluidtool.train(replace(request_of, epochs=2, checkpoints=plan, resume=True, save=tmp_path / "resumed"))
    assert [epoch.number for epoch in again.epochs] == [1]
    fluidtool.train(replace(request_of, epochs=2, save=tmp_path / "unbroken"))
    resumed, unbroken = (parameters(request_of.folder, tmp_path / name) for name in ("resumed", "unbroken"))
    assert all(np.array_equal(resumed[name], value) for name, value in unbroken.items())


def test_the_log_has_a_line_for_every_so_many_steps(request_of: fluidtool.TrainingRequest, tmp_path: Path) -> None:
    fluidtool.train(replace(request_of, log=tmp_path / "log", log_every=5))
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 5, 10, 15]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resume": True}, "checkpoints="),
        ({"targets": ["fc_0.tmp_2"]}, "save_inference_model=DIR"),
        ({"save": Path("same"), "log": Path("same")}, "different paths"),
    ],
)
def test_what_cannot_work_is_refused(
    request_of: fluidtool.TrainingRequest, change: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        fluidtool.train(replace(request_of, **change))  # type: ignore[arg-type]


def test_checkpoints_of_another_training_are_not_mixed_in(
    request_of: fluidtool.TrainingRequest, tmp_path: Path
) -> None:
    request = replace(request_of, checkpoints=CheckpointPlan(tmp_path / "checkpoints"))
    fluidtool.train(request)
    with pytest.raises(OutputExistsError, match="already has checkpoints"):
        fluidtool.train(request)


def test_data_for_no_input_are_refused(request_of: fluidtool.TrainingRequest, digits: Path) -> None:
    data = fluidtool.DataFiles([f"picture={digits / 'x.npy'}"])
    with pytest.raises(FeedError, match="no input 'picture'"):
        fluidtool.train(replace(request_of, data=data))


# ---------------------------------------------------------------- roles
def trainer(
    request: fluidtool.TrainingRequest, server: str, job: Path, tls: bool | None = None
) -> fluidtool.TrainingRequest:
    """The first of two trainers with this server."""
    programs = request.folder / "main.pb", request.folder / "startup.pb"
    fluidtool.make_job(*programs, job, fluidtool.JobRequest(pservers=server, trainers="2", tls=tls), environment={})
    return replace(request, folder=job / "trainer_0")


def test_other_machines_are_for_those_whose_policy_allows_them(
    request_of: fluidtool.TrainingRequest, tmp_path: Path
) -> None:
    far = trainer(request_of, "203.0.113.1:6174", tmp_path / "job")
    with pytest.raises(PolicyError, match=r"203\.0\.113\.1:6174, which is not this machine"):
        fluidtool.play_role(far, environment={})


def test_programs_of_no_job_play_no_role(request_of: fluidtool.TrainingRequest) -> None:
    with pytest.raises(UsageError, match="no programs of a distributed job"):
        fluidtool.play_role(request_of, environment={})


def test_a_trainer_takes_data_and_a_server_none(request_of: fluidtool.TrainingRequest, tmp_path: Path) -> None:
    near = trainer(request_of, "127.0.0.1:6174", tmp_path / "job")
    with pytest.raises(UsageError, match="give it examples"):
        fluidtool.play_role(replace(near, data=fluidtool.DataFiles([])), environment={})
    with pytest.raises(UsageError, match="takes no data"):
        fluidtool.play_role(replace(near, folder=tmp_path / "job" / "pserver_0"), environment={})


def test_certificates_of_a_role_are_for_its_time_alone(request_of: fluidtool.TrainingRequest, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
    near = trainer(request_of, "127.0.0.1:6174", tmp_path / "job", tls=True)
    assert (near.folder / "tls").is_dir()
    before = dict(os.environ)
    with pytest.raises(UsageError, match="give it examples"):
        fluidtool.play_role(replace(near, data=fluidtool.DataFiles([])), environment={})
    assert dict(os.environ) == before


SERVE = """
import pathlib, sys, fluidtool
request = fluidtool.TrainingRequest(pathlib.Path(sys.argv[1]), fluidtool.DataFiles([]))
assert fluidtool.play_role(request, environment={}) is None
"""


@pytest.mark.slow
def test_a_trainer_with_a_server_learns_what_training_alone_does(
    request_of: fluidtool.TrainingRequest, tmp_path: Path
) -> None:
    programs = request_of.folder / "main.pb", request_of.folder / "startup.pb"
    asked = fluidtool.JobRequest(pservers=free_endpoints(1)[0], trainers="1")
    fluidtool.make_job(*programs, tmp_path / "job", asked, environment={})
    server = subprocess.Popen([sys.executable, "-c", SERVE, tmp_path / "job/pserver_0"], env=child_environment())
    role = replace(request_of, folder=tmp_path / "job" / "trainer_0")
    together, alone = fluidtool.play_role(role, environment={}), fluidtool.train(request_of)
    assert server.wait(timeout=60) == 0
    assert together is not None
    assert together.epochs[0].last_loss == pytest.approx(alone.epochs[0].last_loss, rel=1e-4)
