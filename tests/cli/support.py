"""Calling the command line in this process, and small models to call it on."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from fluidtool.cli.app import app, requests_json
from fluidtool.io.inference import inference_program
from fluidtool.io.parameters import write_separate
from fluidtool.io.saving import Layout, save_model
from fluidtool.ir import Program
from fluidtool.tensor import LoDTensor
from tests.support.checkout import ROOT, child_environment
from tests.support.schemas import check_documents

SAMPLES = ROOT / "samples"
DIGITS, TOPICS, PAIR = SAMPLES / "digits", SAMPLES / "topics", SAMPLES / "digits_v2" / "model"
WEIGHT = np.arange(12, dtype="float32").reshape(4, 3) / 10
BIAS = np.array([0.5, -2.0, 0.25], dtype="float32")


def call(*args: Any, input: bytes | None = None, env: Mapping[str, str | None] | None = None) -> Result:
    """Run `fluidtool` with these arguments; what it writes as JSON matches its schema."""
    words, main = [str(arg) for arg in args], sys.modules["__main__"]
    result = CliRunner().invoke(app, words, input=input, env=env)
    sys.modules["__main__"] = main  # a script stays it until the process ends, and new processes would run it, too
    if requests_json(words):
        check_documents(result.stdout)
    return result


def on_terminal(*args: Any, columns: int = 80, **environment: str) -> str:
    """What `fluidtool` writes to a terminal of this width, errors too."""
    import fcntl
    import pty
    import termios

    terminal, inside = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = {**child_environment(), "TERM": "xterm-256color", **environment}
    variables.pop("COLUMNS", None)
    command = [sys.executable, "-m", "fluidtool", *map(str, args)]
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=variables):
        os.close(inside)
        written = b""
        with suppress(OSError):  # Linux says so when the other side is closed
            while part := os.read(terminal, 1 << 16):
                written += part
    os.close(terminal)
    return written.decode().replace("\r\n", "\n")


def call_json(*args: Any) -> Any:
    """The document that `fluidtool … --json` writes; the call must succeed."""
    result = call(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def process(*args: Any, env: Mapping[str, str] | None = None, **kwargs: Any) -> subprocess.CompletedProcess[Any]:
    """Run `python -m fluidtool` with these arguments."""
    command = [sys.executable, "-m", "fluidtool", *map(str, args)]
    environment = child_environment(**(env or {}))
    return subprocess.run(command, capture_output=True, check=False, timeout=120, env=environment, **kwargs)


def error_of(result: Result) -> str:
    """The one paragraph that a failing command leaves on stderr; stdout has no data, and nothing a traceback."""
    lines = result.stderr.splitlines()
    assert result.stdout == "" or json.loads(result.stdout)["schema"] == "fluidtool.error/1"
    assert lines and lines[-1].startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr
    return lines[-1].removeprefix("error: ")


def linear_program(
    *, in_place: bool = False, feeds: Sequence[str] = ("x",), fetches: Sequence[str] = ("probability",)
) -> Program:
    """x [-1, 4] times w [4, 3] plus b, relu (in place if asked for), softmax."""
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 4], dtype="float32")
    block.create_parameter(name="w", shape=[4, 3], dtype="float32")
    block.create_parameter(name="b", shape=[3], dtype="float32")
    positive = "sum" if in_place else "positive"
    for name in ("product", "sum", positive, "probability"):
        block.create_var(name=name, shape=[-1, 3], dtype="float32")
    block.append_op(
        type="mul",
        inputs={"X": ["x"], "Y": ["w"]},
        outputs={"Out": ["product"]},
        attrs={"x_num_col_dims": 1, "y_num_col_dims": 1},
    )
    block.append_op(
        type="elementwise_add", inputs={"X": ["product"], "Y": ["b"]}, outputs={"Out": ["sum"]}, attrs={"axis": 1}
    )
    block.append_op(type="relu", inputs={"X": ["sum"]}, outputs={"Out": [positive]})
    block.append_op(type="softmax", inputs={"X": [positive]}, outputs={"Out": ["probability"]}, attrs={"axis": -1})
    return inference_program(program, list(feeds), list(fetches))


def write_model(folder: Path, program: Program, **values: Any) -> Path:
    """A folder with `__model__` and a file for each value."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__model__").write_bytes(program.serialize_to_string())
    write_separate(folder, {name: LoDTensor(np.asarray(value)) for name, value in values.items()})
    return folder


def linear_model(folder: Path, **kwargs: Any) -> Path:
    """The model of `linear_program` with WEIGHT and BIAS."""
    return write_model(folder, linear_program(**kwargs), w=WEIGHT, b=BIAS)


def combined_model(folder: Path) -> Path:
    """The same with one combined parameter file, `__params__`."""
    values = {"w": LoDTensor(WEIGHT), "b": LoDTensor(BIAS)}
    save_model(linear_program(), values, Layout(folder, "__model__", "__params__"))
    return folder


def feed_file(path: Path, rows: int = 2) -> Path:
    """x for `linear_model`."""
    np.save(path, np.linspace(-1, 1, 4 * rows, dtype="float32").reshape(rows, 4))
    return path


def copy_of(sample: Path, target: Path) -> Path:
    """A copy of a sample's folder, to be damaged."""
    return Path(shutil.copytree(sample, target))


def stream_head(shape: Sequence[int]) -> bytes:
    """What stands before the data of a float32 parameter of this shape (see fluidtool/tensor/streams.py)."""

    def varint(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])

    message = b"\x08\x05" + b"".join(b"\x10" + varint(size) for size in shape)
    return struct.pack("<IQIi", 0, 0, 0, len(message)) + message


def everything_below(folder: Path) -> set[str]:
    """Every path below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
