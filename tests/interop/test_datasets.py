"""A script that trains from text files writes the same in real Paddle and here.

FLUIDTOOL_PADDLE_PYTHON names the interpreter of a Paddle 1.8.5; without it this test is reported as not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkout import child_environment, paddle_environment

SCRIPT = Path(__file__).parent / "dataset_script.py"
PADDLES_ATTEMPTS = 3  # on a busy machine its readers take the files in another order now and then
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


def written(command: list[str], folder: Path) -> str:
    folder.mkdir()
    environment = child_environment() if command[0] == sys.executable else paddle_environment()
    done = subprocess.run(
        [*command, str(SCRIPT)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_writes_what_it_writes_under_real_paddle(tmp_path: Path) -> None:
    interpreter = os.environ.get("FLUIDTOOL_PADDLE_PYTHON")
    if not interpreter:
        pytest.skip("not run: FLUIDTOOL_PADDLE_PYTHON does not name the interpreter of a real Paddle")
    ours = written([sys.executable, "-m", "fluidtool", "exec"], tmp_path / "ours")
    for attempt in range(PADDLES_ATTEMPTS):
        paddles = written([interpreter], tmp_path / f"paddle{attempt}")
        if NUMBER.sub("N", ours) == NUMBER.sub("N", paddles):
            break
    assert NUMBER.sub("N", ours) == NUMBER.sub("N", paddles)
    found, expected = ([float(number) for number in NUMBER.findall(text)] for text in (ours, paddles))
    assert len(found) > 1000
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # six digits are written
