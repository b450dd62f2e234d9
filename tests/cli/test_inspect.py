"""`fluidtool inspect`: the summary and each view, as tables, text and JSON, with and without parameters."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fluidtool.ir import Program
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.proto.enums import AttrType
from tests.cli.support import (
    BIAS,
    DIGITS,
    PAIR,
    TOPICS,
    WEIGHT,
    call,
    call_json,
    combined_model,
    copy_of,
    error_of,
    linear_model,
    linear_program,
    stream_head,
    write_model,
)
from tests.support.checkout import child_environment


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


# ---------------------------------------------------------------- summary
def test_the_summary_of_a_sample() -> None:
    out = call("inspect", DIGITS).stdout
    assert "saved by    Paddle 1.8.5" in out
    assert "layout      one file per parameter" in out
    assert re.search(r"parameters  12 \(10\.1 k values of float32, 39\.4 KiB\) in ", out)
    assert "Inputs\nname   type     shape\nimage  float32  (-1, 1, 8, 8)\n" in out
    assert "save_infer_model/scale_0.tmp_0  float32  (-1, 10)" in out
    assert re.search(r"conv2d +2 +304 k\n", out)


def test_the_summary_in_json() -> None:
    data = call_json("inspect", PAIR)
    assert data["version_text"] == "2.6.2"
    assert [item["name"] for item in data["inputs"]] == ["image"]
    assert data["outputs"][0]["shape"] == [-1, 10]
    assert {"type": "softmax", "count": 1, "multiply_adds": None, "supported": True} in data["types"]
    assert data["operators"] == sum(row["count"] for row in data["types"])
    assert data["parameters"] == [{"data_type": "float32", "count": 6, "elements": 12778, "bytes": 51112}]
    assert data["fault"] is None and data["cost"]["inputs"] == [{"name": "image", "shape": [1, 1, 8, 8]}]


def test_multiply_adds_are_those_of_the_formulas() -> None:
    """Two 3x3 convolutions of 16 and 32 filters on 8x8 pixels, and 512 x 10 products."""
    first, second, last = 16 * 64 * 9, 32 * 64 * 16 * 9, 512 * 10
    assert call_json("inspect", DIGITS)["cost"]["multiply_adds"] == first + second + last
    assert call_json("inspect", DIGITS, "--batch", 3)["cost"]["multiply_adds"] == 3 * (first + second + last)
    assert call_json("inspect", DIGITS, "--shape", "2,1,8,8")["cost"]["flops"] == 4 * (first + second + last)


def test_inputs_with_sequences_say_so() -> None:
    assert re.search(r"name   type   shape    LoD levels\nwords  int64  \(-1, 1\) +1\n", call("inspect", TOPICS).stdout)


def test_operators_that_are_not_supported_are_marked(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().ops[2].type = "strange"
    out = call("inspect", write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS)).stdout
    assert re.search(r"strange +1 +not supported\n", out)
    assert not re.search(r"softmax.*not supported", out)


def test_a_program_of_before_versions(model: Path, tmp_path: Path) -> None:
    program = linear_program()
    program.version = None
    (model / "__model__").write_bytes(program.serialize_to_string())
    assert "saved by    an unrecorded version" in call("inspect", model).stdout


@pytest.mark.parametrize("make", [linear_model, combined_model], ids=["separate", "combined"])
def test_layouts(make: object, tmp_path: Path) -> None:
    folder = make(tmp_path / "m")  # type: ignore[operator]
    out = call("inspect", folder).stdout
    assert f"parameters  2 (15 values of float32, 60 B) in {folder}" in out


# ---------------------------------------------------------------- without parameters
def test_a_program_alone_is_inspected_with_a_note(model: Path) -> None:
    (model / "w").unlink()
    (model / "b").unlink()
    result = call("inspect", model)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"note: {model} has no file for 2 parameters")
    assert "--params" in result.stderr
    assert "parameters  2 (15 values of float32, 60 B) not found" in result.stdout


def test_parameters_from_elsewhere(model: Path, tmp_path: Path) -> None:
    program = tmp_path / "elsewhere" / "net.pb"
    program.parent.mkdir()
    program.write_bytes((model / "__model__").read_bytes())
    assert call("inspect", program).stderr.startswith("note: ")
    result = call("inspect", program, "--params", model)
    assert result.stderr == "" and f"in {model}" in result.stdout


@pytest.mark.parametrize("view", ["--ops", "--vars", "--plan", "--with-details"])
def test_views_need_no_parameters(model: Path, view: str) -> None:
    for name in ("w", "b"):
        (model / name).unlink()
    assert call("inspect", model, view).exit_code == 0


# ---------------------------------------------------------------- views
def test_operators(model: Path) -> None:
    out = call("inspect", model, "--ops").stdout
    assert re.search(r"^1 +mul +X=x \(-1, 4\) Y=w \(4, 3\) +Out=product \(-1, 3\)$", out, re.MULTILINE)


def test_variables(model: Path) -> None:
    out = call("inspect", model, "--vars").stdout
    assert re.search(r"^w +lod tensor +float32 +\(4, 3\) +yes$", out, re.MULTILINE)
    assert re.search(r"^x +lod tensor +float32 +\(-1, 4\)$", out, re.MULTILINE)


def test_statistics_of_parameters(model: Path) -> None:
    (b, w) = call_json("inspect", model, "--with-params")["parameters"]
    assert (b["name"], b["min"], b["max"], b["zeros"]) == ("b", -2.0, 0.5, 0)
    assert (w["shape"], w["zeros"], w["nan"]) == ([4, 3], 1, 0)
    assert w["mean"] == pytest.approx(WEIGHT.mean()) and w["std"] == pytest.approx(WEIGHT.std())


def test_nan_in_a_parameter_is_counted(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[0, 0], weight[1, 1] = np.nan, np.inf
    folder = write_model(tmp_path / "m", linear_program(), w=weight, b=BIAS)
    out = call("inspect", folder, "--with-params").stdout
    assert re.search(r"^w +float32 +\(4, 3\) +0\.1 +\S+ +1\.1 +\S+ +0 +1 +1$", out, re.MULTILINE)


def test_the_plan(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")
    data = call_json("inspect", model, "--plan", "--batch", 10)
    assert [step["type"] for step in data["steps"]] == ["mul", "elementwise_add", "relu", "softmax"]
    assert [step["release"] for step in data["steps"]] == [["x"], ["product"], ["sum"], ["positive"]]
    assert data["steps"][0]["kernel"] == "ops/math/mul" and data["steps"][0]["engine"] == "numpy"
    assert [step["alive_bytes"] for step in data["steps"]] == [160 + 120, 240, 240, 240]
    assert data["peak_activation_bytes"] == 280


def test_the_plan_as_a_table(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")
    out = call("inspect", model, "--plan").stdout
    assert re.search(r"^peak +28 B of activations$", out, re.MULTILINE)
    assert re.search(r"^2 +relu +numpy +ops/activation/\w+ +sum +24 B$", out, re.MULTILINE)


def test_the_plan_of_an_unsupported_operator(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().ops[2].type = "strange"
    result = call("inspect", write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS), "--plan")
    assert result.exit_code == 4 and "operator strange is unknown" in error_of(result)


def detailed_program() -> Program:
    program = linear_program()
    frames = ['  File "train.py", line 7, in <module>', "    y = fc(x)"]
    program.global_block().ops[1].set_attr(CALLSTACK_ATTR, frames, AttrType.STRINGS)
    return program


def test_details_have_attributes_and_call_stacks(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", detailed_program(), w=WEIGHT, b=BIAS)
    out = call("inspect", folder, "--with-details").stdout
    assert "1 mul\n  in  X" in out
    assert re.search(r"^  x_num_col_dims +1$", out, re.MULTILINE)
    assert 'made at         File "train.py", line 7, in <module> y = fc(x)' in out
    data = call_json("inspect", folder, "--with-details")
    assert data["blocks"][0]["operators"][1]["attributes"]["y_num_col_dims"] == 1


def test_details_as_protobuf_text(tmp_path: Path) -> None:
    program = detailed_program()
    folder = write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS)
    parsed = Program.parse_from_string(program.serialize_to_string())
    assert call("inspect", folder, "--with-details", "--format", "text").stdout == parsed.to_string(True, True)
    assert call("inspect", folder, "--format", "text").stdout == parsed.to_string(True)


def test_format_json_is_json(model: Path) -> None:
    assert call("inspect", model, "--format", "json").stdout == call("inspect", model, "--json").stdout


def test_one_view_at_a_time(model: Path) -> None:
    result = call("inspect", model, "--ops", "--vars")
    assert result.exit_code == 2 and "choose one" in error_of(result)


def test_sub_blocks_have_tables_of_their_own(tmp_path: Path) -> None:
    program = linear_program()
    block = program.create_block(0)
    block.create_var(name="inner", shape=[1], dtype="int64")
    (tmp_path / "p.pb").write_bytes(program.serialize_to_string())
    out = call("inspect", tmp_path / "p.pb", "--vars").stdout
    assert "Block 0\n" in out and "\nBlock 1 (within block 0)\n" in out


# ---------------------------------------------------------------- large models
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from Linux's /proc")
@pytest.mark.parametrize("combined", [False, True])
def test_a_model_of_a_gibibyte_is_inspected_without_touching_weights(tmp_path: Path, combined: bool) -> None:
    """Sixteen sparse parameters of 64 MiB; 200 MiB are enough.

    The peak is that of the command's own memory (VmHWM): ru_maxrss would count in the memory of the process that started
    it, which is that of the whole test run.
    """
    program, side = Program(), 4096
    block = program.global_block()
    block.create_var(name="h0", shape=[-1, side], dtype="float32")
    for layer in range(16):
        block.create_parameter(name=f"w{layer:02}", shape=[side, side], dtype="float32")
        block.create_var(name=f"h{layer + 1}", shape=[-1, side], dtype="float32")
        block.append_op(
            type="mul",
            inputs={"X": [f"h{layer}"], "Y": [f"w{layer:02}"]},
            outputs={"Out": [f"h{layer + 1}"]},
            attrs={"x_num_col_dims": 1, "y_num_col_dims": 1},
        )
    head = stream_head([side, side])
    (tmp_path / "__model__").write_bytes(program.serialize_to_string())
    for layer in range(16):
        with (tmp_path / ("__params__" if combined else f"w{layer:02}")).open("ab") as file:
            file.write(head)
            file.truncate(file.tell() + 4 * side * side)
            file.seek(0, os.SEEK_END)
    code = (
        "import sys; from fluidtool.cli.app import run_command; code = run_command(sys.argv[1:]);"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'));"
        "print(code, peak, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        env=child_environment(),
        check=True,
    )
    exit_code, peak = map(int, done.stderr.split())
    assert exit_code == 0 and json.loads(done.stdout)["parameters"][0]["bytes"] == 2**30
    assert peak < 200 * 1024


# ---------------------------------------------------------------- damaged models
def test_a_damaged_parameter_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    model = copy_of(DIGITS, tmp_path / "model")
    damaged = model / "fc_0.w_0"
    damaged.write_bytes(damaged.read_bytes()[:100])
    (model / "fc_0.b_0").unlink()
    result = call("inspect", model)
    assert result.exit_code == 0
    assert re.search(r"^parameters +12 \(.*\), of which 10 can be read$", result.stdout, re.MULTILINE)
    assert re.search(r"^fc_0\.b_0 +missing$", result.stdout, re.MULTILINE)
    assert re.search(r"^fc_0\.w_0 .* takes 20480 bytes, but only 73 are left", result.stdout, re.MULTILINE)


def test_statistics_of_a_damaged_model_are_those_of_what_can_be_read(tmp_path: Path) -> None:
    model = copy_of(DIGITS, tmp_path / "model")
    (model / "fc_0.b_0").unlink()
    found = call_json("inspect", model, "--with-params")
    assert len(found["parameters"]) == 11
    assert found["faults"] == [{"parameter": "fc_0.b_0", "reason": "missing"}]


def test_a_combined_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    model = combined_model(tmp_path / "model")
    file = model / "__params__"
    file.write_bytes(file.read_bytes()[:-4])
    found = call_json("inspect", model)
    assert (found["readable"], [each["parameter"] for each in found["faults"]]) == (1, ["w"])


def test_a_program_without_any_parameters_is_not_called_damaged(tmp_path: Path) -> None:
    model = linear_model(tmp_path / "model")
    for name in ("w", "b"):
        (model / name).unlink()
    out = call("inspect", model).stdout
    assert "not found" in out and "cannot be read" not in out


def test_operators_show_the_declared_shapes() -> None:
    found = call_json("inspect", DIGITS, "--ops")["blocks"][0]["operators"][8]
    assert found["type"] == "mul"
    assert found["shapes"] == {"pool2d_0.tmp_0": [-1, 32, 4, 4], "fc_0.w_0": [512, 10], "fc_0.tmp_0": [-1, 10]}
