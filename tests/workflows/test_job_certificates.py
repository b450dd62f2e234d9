"""Certificates of the jobs that `make_job` writes: who gets them, who may read them, and who does without."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

import fluidtool
from fluidtool.distribute.launch.jobs import move_job, read_job
from fluidtool.errors import UsageError
from fluidtool.workflows import job as jobs
from tests.cli.support import call

pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
HERE, THERE = "127.0.0.1:6170", "10.0.0.2:6170"
FILES = ["authorities.pem", "certificate.pem", "key.pem"]


def make(digits_training: Path, output: Path, environment: dict[str, str] | None = None, **asked: Any) -> Any:
    programs = digits_training / "main.pb", digits_training / "startup.pb"
    return fluidtool.make_job(*programs, output, fluidtool.JobRequest(**asked), environment=environment or {})


def certificates(job: Path) -> dict[str, list[str]]:
    return {folder.parent.name: sorted(file.name for file in folder.iterdir()) for folder in sorted(job.glob("*/tls"))}


def test_every_role_of_a_job_on_other_machines_gets_its_own(digits_training: Path, tmp_path: Path) -> None:
    made = make(digits_training, tmp_path / "job", pservers=f"{HERE},{THERE}", trainers="2")
    assert made.certificates
    assert certificates(tmp_path / "job") == dict.fromkeys(["pserver_0", "pserver_1", "trainer_0", "trainer_1"], FILES)
    keys = {(tmp_path / "job" / role / "tls" / "key.pem").read_bytes() for role in certificates(tmp_path / "job")}
    assert len(keys) == 4


def test_only_their_owner_may_read_them(digits_training: Path, tmp_path: Path) -> None:
    make(digits_training, tmp_path / "job", pservers=THERE, trainers="1")
    for folder in (tmp_path / "job").glob("*/tls"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_trainers_without_servers_get_them_too(digits_training: Path, tmp_path: Path) -> None:
    make(digits_training, tmp_path / "job", mode="collective", trainers=f"{HERE},{THERE}")
    assert list(certificates(tmp_path / "job")) == ["trainer_0", "trainer_1"]


def test_on_this_machine_there_are_none_unless_asked_for(digits_training: Path, tmp_path: Path) -> None:
    made = make(digits_training, tmp_path / "job", pservers=HERE, trainers="1")
    assert (certificates(tmp_path / "job"), made.open_to_others) == ({}, "")
    make(digits_training, tmp_path / "asked", pservers=HERE, trainers="1", tls=True)
    assert list(certificates(tmp_path / "asked")) == ["pserver_0", "trainer_0"]


def test_paddle_s_own_roles_need_a_job_without(digits_training: Path, tmp_path: Path) -> None:
    made = make(digits_training, tmp_path / "job", pservers=THERE, trainers="1", tls=False)
    assert (certificates(tmp_path / "job"), made.open_to_others) == ({}, "TLS is off")


def test_one_role_alone_gets_none(digits_training: Path, tmp_path: Path) -> None:
    made = make(digits_training, tmp_path / "job", pservers=THERE, trainers="2", trainer_id=1)
    assert certificates(tmp_path / "job") == {} and "for all roles at once" in made.open_to_others
    with pytest.raises(UsageError, match="for all roles of a job at once"):
        make(digits_training, tmp_path / "asked", pservers=THERE, trainers="2", trainer_id=1, tls=True)
    assert not (tmp_path / "asked").exists()


def test_without_cryptography_the_job_is_made_and_says_so(
    digits_training: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "can_make_certificates", lambda: False)
    made = make(digits_training, tmp_path / "job", pservers=THERE, trainers="1")
    assert certificates(tmp_path / "job") == {} and "fluidtool[dist]" in made.open_to_others


def test_the_command_line_says_what_was_made(digits_training: Path, tmp_path: Path) -> None:
    words = ["transpile", digits_training / "main.pb", "--startup", digits_training / "startup.pb", "--distribute"]
    words += ["--trainers", "1", "--pservers", THERE, "-o"]
    assert "each role has a certificate" in call(*words, tmp_path / "job").stderr
    assert "no certificates were made: TLS is off" in call(*words, tmp_path / "bare", "--no-tls").stderr


def test_they_stay_with_a_job_that_moves_to_other_machines(digits_training: Path, tmp_path: Path) -> None:
    make(digits_training, tmp_path / "job", pservers=THERE, trainers="1")
    job = read_job(tmp_path / "job")
    move_job(job, ("10.0.0.9:7000",), tmp_path / "moved")
    assert certificates(tmp_path / "moved") == certificates(tmp_path / "job")
    move_job(job, (HERE,), tmp_path / "here")
    assert certificates(tmp_path / "here") == {}
