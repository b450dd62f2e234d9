"""docs/onnx.md lists every rendering."""

from __future__ import annotations

import subprocess
import sys

from tests.support.checkout import ROOT, child_environment


def test_the_table_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/build_onnx.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env=child_environment(),
    )
    assert done.returncode == 0, f"run python docs/build_onnx.py\n{done.stderr}"
