"""ONNX Runtime in a process of its own, since an assertion that fails in it ends the process: `run_apart`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MODEL, EXTERNAL, NAMES, FAULT = "model.onnx", "external.npz", "names.json", "fault.txt"


class RuntimeFault(str):
    """Why ONNX Runtime gave no value."""


def run_apart(
    message: bytes, external: Mapping[str, Any], feeds: Sequence[Mapping[str, Any]], fetches: Sequence[str]
) -> list[list[Any]] | RuntimeFault:
    """The outputs of a model for each of several feeds, or why there are none.

    external: the initializers that the message leaves out.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / MODEL).write_bytes(message)
        np.savez(folder / EXTERNAL, **_numbered(list(external.values())))
        for number, feed in enumerate(feeds):
            np.savez(folder / f"feed{number}.npz", **_numbered(list(feed.values())))
        inputs = [list(feed) for feed in feeds]
        (folder / NAMES).write_text(
            json.dumps({"external": list(external), "inputs": inputs, "outputs": list(fetches)})
        )
        command = [sys.executable, "-m", __name__, name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
        if (folder / FAULT).exists():
            return RuntimeFault((folder / FAULT).read_text())
        if done.returncode:
            return RuntimeFault(_end(done))
        return [_arrays(folder / f"found{number}.npz") for number in range(len(feeds))]


def _end(done: subprocess.CompletedProcess[str]) -> str:
    """How the process ended, with the last line that it wrote."""
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
    return f"ONNX Runtime ended its process with {how}{f': {last}' if last else ''}"


def _numbered(arrays: Sequence[Any]) -> dict[str, Any]:
    """Arrays under numbers: names may be no names of files."""
    return {str(number): np.asarray(array) for number, array in enumerate(arrays)}


def _arrays(path: Path) -> list[Any]:
    with np.load(path) as archive:
        return [archive[str(number)] for number in range(len(archive.files))]


# ---------------------------------------------------------------- within that process
def _main(folder: Path) -> None:
    import onnxruntime

    names = json.loads((folder / NAMES).read_text())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in _arrays(folder / EXTERNAL)]
        if values:
            options.add_external_initializers(names["external"], values)
        session = onnxruntime.InferenceSession(
            (folder / MODEL).read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        for number, inputs in enumerate(names["inputs"]):
            feed = dict(zip(inputs, _arrays(folder / f"feed{number}.npz"), strict=True))
            np.savez(folder / f"found{number}.npz", **_numbered(session.run(names["outputs"], feed)))
    except Exception as error:  # onnxruntime raises classes of its own, which derive from nothing but Exception
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        (folder / FAULT).write_text(str(error))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
