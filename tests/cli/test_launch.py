"""`fluidtool launch`: scripts as roles, views, exit codes, and every way to use it wrongly."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fluidtool.cli.views.launch import LiveView, cells, status_text, view
from fluidtool.distribute.launch.progress import Report
from fluidtool.distribute.launch.status import RoleStatus
from tests.cli.support import call, error_of, process
from tests.support.schemas import check_documents

WRITES = """
import os, sys
print(os.environ["TRAINING_ROLE"], os.environ["PADDLE_TRAINER_ID"], *sys.argv[1:])
"""


def script(tmp_path: Path, code: str = WRITES) -> Path:
    path = tmp_path / "script.py"
    path.write_text(code)
    return path


def launch(*args: Any) -> subprocess.CompletedProcess[str]:
    return process("launch", "--any-ports", *args, text=True)


def test_every_role_runs_the_script_and_its_lines_have_its_name(tmp_path: Path) -> None:
    done = launch("--trainers", "2", script(tmp_path), "--epochs", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines[:3]) == [
        "pserver_0 | PSERVER 0 --epochs 3",
        "trainer_0 | TRAINER 0 --epochs 3",
        "trainer_1 | TRAINER 1 --epochs 3",
    ]
    assert [line.split()[:2] for line in lines[3:]] == [
        ["role", "state"],
        ["pserver_0", "done"],
        ["trainer_0", "done"],
        ["trainer_1", "done"],
    ]
    assert "started pserver_0, trainer_0, trainer_1" in done.stderr


def test_json_is_a_line_for_each_event(tmp_path: Path) -> None:
    done = launch("--mode", "collective", "--json", script(tmp_path))
    check_documents(done.stdout)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["start", "done", "end"]
    assert (lines[-1]["exit_code"], lines[-1]["restarts"]) == (0, 0)
    assert lines[-1]["roles"][0]["state"] == "done"
    assert "trainer_0 | TRAINER 0" in done.stderr


def test_the_exit_code_is_the_role_s(tmp_path: Path) -> None:
    done = launch("--mode", "collective", script(tmp_path, "raise SystemExit(7)"))
    assert done.returncode == 7
    assert "trainer_0 failed with exit code 7; no restarts are allowed (--restarts N)" in done.stderr


def test_an_error_of_a_script_is_told_as_exec_does(tmp_path: Path) -> None:
    done = launch("--mode", "collective", script(tmp_path, "import paddle.fluid as fluid\nfluid.layers.fc(1, 2)"))
    assert done.returncode != 0 and "trainer_0 | error: " in done.stderr and "Traceback" not in done.stderr


def test_restarts_go_on_until_the_script_succeeds(tmp_path: Path) -> None:
    code = f"import pathlib; p = pathlib.Path({str(tmp_path / 'seen')!r})\nif not p.exists(): p.touch(); raise SystemExit(3)"
    done = launch("--mode", "collective", "--restarts", "1", script(tmp_path, code))
    assert done.returncode == 0 and "trainer_0 failed with exit code 3; restart 1 of 1" in done.stderr


# ---------------------------------------------------------------- refusals
def refused(*args: Any) -> str:
    result = call("launch", *args)
    assert result.exit_code in (2, 3)
    return error_of(result)


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"127.0.0.1:{port} is taken" in refused("--port", port, script(tmp_path))


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    path = script(tmp_path)
    assert "there is no engine 'cloud' to launch with; expected one of local, ray, mpi" in refused(
        "--engine", "cloud", path
    )
    assert "give --engine ray" in refused("--ray-address", "auto", path)
    assert "resuming needs checkpoints; name their folder with --checkpoint DIR" in refused("--resume", path)
    assert "is not a job" in refused(tmp_path / "nowhere")
    assert "not the manifest of a job" in refused(tmp_path)


def test_checkpoints_of_another_run_are_not_mixed_up(tmp_path: Path) -> None:
    (tmp_path / "kept" / "trainer_0" / "step_5").mkdir(parents=True)
    text = refused("--checkpoint", tmp_path / "kept", "--any-ports", script(tmp_path))
    assert "already has checkpoints of trainer_0; resume from them with --resume" in text


# ---------------------------------------------------------------- views
class Terminal(io.StringIO):
    """A terminal that keeps what is drawn."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_lines_and_a_table_below_them(status: RoleStatus, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    with view(["trainer_0"], False) as shown:
        assert isinstance(shown, LiveView)
        shown.line("trainer_0", "a line\x1b[2J", False)
        shown.event("trainer_0 is done")
        shown.status([status])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "trainer_0 | a line\\x1b[2J" in text and "trainer_0 is done" in text
    assert re.search(r"role +state +starts +step +steps/s +loss +sent +received", text)
    assert re.search(r"trainer_0 +running +1 +30 +10 +0.25 +4.0 KiB +1.0 KiB", text)


@pytest.fixture
def status() -> RoleStatus:
    found = RoleStatus("trainer_0", "trainer", state="running", starts=1)
    found.take(Report(10, 0.5, 2048, 1024), 1.0)
    found.take(Report(30, 0.25, 4096, 1024), 3.0)
    return found


def test_the_table_has_rate_loss_and_bytes(status: RoleStatus) -> None:
    assert cells(status) == ("trainer_0", "running", "1", "30", "10", "0.25", "4.0 KiB", "1.0 KiB")


def test_a_line_says_how_things_stand(status: RoleStatus) -> None:
    assert status_text([status]) == "trainer_0 step 30, 10.0 steps/s, loss 0.25"
    assert status_text([RoleStatus("trainer_0", "trainer")]) == "1 role, none has reported yet"
