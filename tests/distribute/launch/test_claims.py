"""One launcher at a time for a folder of checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fluidtool.distribute.launch.claims import claimed
from fluidtool.errors import OutputExistsError
from tests.support.checkout import child_environment

pytest.importorskip("fcntl", reason="this system has no locks of files")

HOLDING = """
import sys
from pathlib import Path
from fluidtool.distribute.launch.claims import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_that_another_launcher_uses_is_refused_until_that_ends_however_it_ends(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=child_environment()) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(OutputExistsError, match=rf"process {other.pid} on \S+ launched it"), claimed(tmp_path):
            pass
        other.kill()
        other.wait()
    with claimed(tmp_path):
        pass


def test_roles_that_are_launched_one_by_one_share_it(tmp_path: Path) -> None:
    with (
        claimed(tmp_path, alone=False),
        claimed(tmp_path, alone=False),
        pytest.raises(OutputExistsError, match="belong to a job that is running"),
        claimed(tmp_path),
    ):
        pass


def test_a_job_that_runs_as_a_whole_shares_it_with_no_single_role(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(OutputExistsError), claimed(tmp_path, alone=False):
        pass


def test_without_a_folder_nothing_is_claimed() -> None:
    with claimed(None), claimed(None):
        pass


def test_a_folder_that_cannot_be_made_is_left_to_whoever_saves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with claimed(tmp_path / "file" / "folder"):
        pass
