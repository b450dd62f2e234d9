"""ONNX Runtime in a process of its own: its outputs, its errors, and its end."""

from __future__ import annotations

import signal
import subprocess

import numpy as np
import pytest

from fluidtool.workflows import onnx_session
from fluidtool.workflows.onnx_session import RuntimeFault, run_apart


def test_what_is_no_model_is_said_by_the_runtime() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; fluidtool[onnxruntime] brings it")
    found = run_apart(b"no model", {}, [{"x": np.zeros(2, "float32")}], ["y"])
    assert isinstance(found, RuntimeFault) and "INVALID_PROTOBUF" in found


def test_a_process_that_is_killed_is_a_fault_and_no_end_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, -signal.SIGABRT, "", "loading\nassertion failed: std > 0\n")

    monkeypatch.setattr(onnx_session.subprocess, "run", killed)
    found = run_apart(b"", {}, [], [])
    assert found == "ONNX Runtime ended its process with SIGABRT: assertion failed: std > 0"
