"""What the command line says about engines, and how one is chosen: run --engine and --threads, version, inspect --plan.

Tests of what the native engine does need it built (`python -m fluidtool.runtime.engines.native.build`); what is said where
it is not there is tested everywhere.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fluidtool
import fluidtool.fluid as fluid
from fluidtool.errors import DeviceError, UsageError
from fluidtool.ops.schema import TensorMeta
from fluidtool.proto.enums import VarType
from fluidtool.runtime.engines import threads
from fluidtool.runtime.engines.native import library as native
from fluidtool.runtime.engines.native.preview import short_sequences, stand_in
from fluidtool.runtime.graph.importers import IMPORTERS
from fluidtool.runtime.graph.importers.registry import FOR_GPUS
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.tensor import CUDAPlace
from tests.cli.support import DIGITS, ROOT, TOPICS, call, call_json, error_of, feed_file, linear_model, process
from tests.support.checkout import child_environment

WAY_OUT = "python -m fluidtool.runtime.engines.native.build"
built = pytest.mark.usefixtures("native")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


@pytest.fixture
def x(tmp_path: Path) -> Path:
    return feed_file(tmp_path / "x.npy")


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if FLUIDTOOL_NATIVE said no."""
    monkeypatch.setenv("FLUIDTOOL_NATIVE", "0")


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a clone in which nothing was built."""
    monkeypatch.delenv("FLUIDTOOL_NATIVE", raising=False)
    monkeypatch.setattr(native, "library_path", lambda: None)
    monkeypatch.setattr(native, "attempt", native.attempt.__wrapped__)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native engine, whatever the environment says."""
    monkeypatch.delenv("FLUIDTOOL_NATIVE", raising=False)


# ---------------------------------------------------------------- run --engine
def test_an_unknown_engine_is_a_usage_error(model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--engine", "tpu")
    assert result.exit_code == 2
    assert (
        error_of(result)
        == "there is no engine 'tpu'; expected one of auto, native, numpy, onnxruntime, openvino [FT200]"
    )


def test_the_native_engine_where_it_is_not_built(not_built: None, model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--engine", "native")
    assert result.exit_code == 2
    assert error_of(result).startswith("the native engine is not available; not built: ") and WAY_OUT in error_of(
        result
    )


def test_auto_is_numpy_where_nothing_is_built(not_built: None, model: Path, x: Path) -> None:
    data = call_json("run", model, "--feed", x, "--repeat", 2)
    assert data["engine"] == {"name": "numpy", "operators": 4}


def test_an_engine_of_the_cpu_for_a_gpu_is_refused(model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--engine", "numpy", "--device", "gpu")
    assert result.exit_code == 2 and "the engine numpy computes on the CPU, but the device is a GPU" in error_of(result)


def test_the_times_of_numpy_name_it(model: Path, x: Path) -> None:
    assert call("run", model, "--feed", x, "--engine", "numpy", "--repeat", 3).stderr == "3 runs by numpy\n"


@built
def test_the_times_of_the_native_engine_name_instructions_and_calls(on: None, model: Path, x: Path) -> None:
    stderr = call("run", model, "--feed", x, "--engine", "native", "--repeat", 3).stderr
    assert re.fullmatch(r"3 runs by native \(\w+, \d+ threads?\), 4 of 4 operators in 1 region\n", stderr)


@built
def test_the_engine_in_json(on: None, model: Path, x: Path) -> None:
    engine = call_json("run", model, "--feed", x, "--repeat", 2)["engine"]
    assert (engine["name"], engine["operators_in_regions"], engine["regions"]) == ("native", 4, 1)
    assert engine["instructions"] in ("amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "portable")


@built
def test_both_engines_give_the_same(on: None, tmp_path: Path) -> None:
    for engine in ("numpy", "native"):
        assert call("run", DIGITS, "--random", "--engine", engine, "-o", tmp_path / f"{engine}.npz").exit_code == 0
    with np.load(tmp_path / "numpy.npz") as want, np.load(tmp_path / "native.npz") as found:
        assert list(found) == list(want)
        for name in want:
            np.testing.assert_allclose(found[name], want[name], atol=1e-6)


@built
def test_an_engine_asked_for_that_had_nothing_to_do_says_why(on: None, model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--engine", "native", "--check-nan")
    assert result.exit_code == 0
    assert result.stderr == "note: numpy computed everything: the check for NaN runs every operator separately\n"


@built
def test_the_native_engine_asked_for_by_name_runs_although_it_is_switched_off(off: None, model: Path, x: Path) -> None:
    assert "by native" in call("run", model, "--feed", x, "--engine", "native", "--repeat", 2).stderr
    assert "by numpy" in call("run", model, "--feed", x, "--repeat", 2).stderr


# ---------------------------------------------------------------- --precision
@pytest.mark.parametrize("command", [("run",), ("profile",), ("inspect", "--plan")])
def test_an_unknown_precision_is_a_usage_error(command: tuple[str, ...], model: Path) -> None:
    result = call(*command, model, "--precision", "half")
    assert result.exit_code == 2
    assert error_of(result) == "there is no precision 'half'; expected one of float32, bf16 [FT200]"


def test_numpy_does_not_round(model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--engine", "numpy", "--precision", "bf16")
    assert result.exit_code == 2
    assert error_of(result).startswith("the precision bf16 needs the native engine, found the engine numpy")


def test_bf16_where_nothing_is_built(not_built: None, model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--precision", "bf16")
    assert result.exit_code == 2 and WAY_OUT in error_of(result)


@built
def test_weights_of_16_bits(on: None, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "unit.npy", np.eye(4, dtype=np.float32))
    weights = call_json("run", model, "--feed", tmp_path / "unit.npy", "--precision", "bf16", "--repeat", 2)["engine"]
    assert (weights["name"], weights["precision"]) == ("native", "bf16")
    said = call("run", model, "--feed", tmp_path / "unit.npy", "--precision", "bf16", "--repeat", 2).stderr
    assert re.fullmatch(
        r"2 runs by native \(\w+, \d+ threads?, bf16 (weights|pairs)\), 4 of 4 operators in 1 region\n", said
    )


@built
def test_the_plan_and_the_profile_name_products_of_16_bits(on: None, model: Path, x: Path) -> None:
    found = []
    for precision in ("float32", "bf16"):
        (plan,) = call_json("inspect", model, "--plan", "--precision", precision)["native"]["regions"]
        steps = call_json("profile", model, "--feed", x, "--repeat", 1, "--precision", precision)["items"]
        (planned,) = (step["kernel"] for step in plan["kernel_calls"] if step["kernel"].startswith("product"))
        (product,) = (item for item in steps if item["kernel"].startswith("product"))
        found.append((planned, product["kernel"], plan["constant_bytes"], product["bytes"]))
    wide, narrow = found
    assert wide[:2] == ("product", "product")
    assert narrow[:2] in [("product bf16", "product bf16"), ("product pairs", "product pairs")]
    assert narrow[2] < wide[2] and narrow[3] < wide[3]


@built
def test_bf16_that_had_nothing_to_do_says_so(on: None, model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "--precision", "bf16", "--check-nan")
    assert result.stderr == "note: numpy computed everything: the check for NaN runs every operator separately\n"


# ---------------------------------------------------------------- run --threads
@built
def test_threads_of_the_native_engine(tmp_path: Path, model: Path, x: Path) -> None:
    done = process("run", model, "--feed", x, "--repeat", 2, "--threads", 1, env={"FLUIDTOOL_NATIVE": ""}, text=True)
    assert done.returncode == 0 and re.search(r"^2 runs by native \(\w+, 1 thread\)", done.stderr)


def test_threads_reach_the_libraries_of_numpy_before_it_is_imported(model: Path, x: Path) -> None:
    code = (
        "import os, sys\n"
        "from fluidtool.cli.app import run_command\n"
        "assert 'numpy' not in sys.modules\n"
        "run_command(sys.argv[1:])\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'], file=sys.stderr)\n"
    )
    import subprocess

    command = [sys.executable, "-c", code, "run", str(model), "--feed", str(x), "--threads", "1"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, env=child_environment(), timeout=120)
    assert done.stderr == "1 1\n"


def test_threads_where_numpy_is_imported_already_say_what_they_cannot_do(
    model: Path, x: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_THREADS", "2")  # put back after the test
    result = call("run", model, "--feed", x, "--threads", native.thread_count())
    assert result.exit_code == 0 and result.stderr.startswith("note: numpy is already imported")
    assert "OMP_NUM_THREADS" in result.stderr


@pytest.mark.parametrize("count", ["0", "-1", "257", "many"])
def test_threads_that_cannot_be(model: Path, x: Path, count: str) -> None:
    result = call("run", model, "--feed", x, "--threads", count)
    assert result.exit_code == 2 and "--threads" in error_of(result)


# ---------------------------------------------------------------- the library of Python
def test_load_takes_an_engine(model: Path) -> None:
    assert fluidtool.load(model, engine="numpy").executor.engine is None


@built
def test_load_takes_the_native_engine(model: Path) -> None:
    assert fluidtool.load(model, engine="native").executor.engine.library is native.library()  # type: ignore[union-attr]


def test_load_refuses_an_unknown_engine_before_anything_is_run(model: Path) -> None:
    with pytest.raises(UsageError, match="there is no engine 'cuda'"):
        fluidtool.load(model, engine="cuda")


def test_load_refuses_the_native_engine_where_it_is_not_built(not_built: None, model: Path) -> None:
    with pytest.raises(DeviceError, match=re.escape(WAY_OUT)):
        fluidtool.load(model, engine="native")


def test_load_refuses_the_native_engine_at_a_gpu(model: Path) -> None:
    with pytest.raises(UsageError, match="the device is a GPU"):
        fluidtool.load(model, engine="native", place=CUDAPlace(0))


# ---------------------------------------------------------------- why there is no engine
def test_a_library_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "engine.so"
    broken.write_bytes(b"no library")
    monkeypatch.setenv("FLUIDTOOL_NATIVE", str(broken))
    reason = native.attempt.__wrapped__()
    assert isinstance(reason, str) and reason.startswith(f"{broken} cannot be loaded") and WAY_OUT in reason


@built
def test_instructions_that_are_not_to_be_had_are_named(on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_INSTRUCTIONS", "mmx")
    reason = native.attempt.__wrapped__()
    assert isinstance(reason, str)
    assert re.fullmatch(
        r"FLUIDTOOL_INSTRUCTIONS=mmx is not available; for this processor .*_engine\.\w+ has \w+(, \w+)*", reason
    )


def test_more_processors_than_threads_are_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handle:
        def ft_use_threads(self, count: int) -> int:
            return count if count <= 256 else -1

    found = native.Library(Path("engine.so"), "portable", 4, 1, Handle())  # type: ignore[arg-type]
    assert found.use_threads(384) == found.threads == 256


# ---------------------------------------------------------------- version
def test_version_says_that_nothing_is_built(not_built: None) -> None:
    out = call("version", "--verbose").stdout
    assert re.search(r"^engine in use +numpy$", out, re.MULTILINE)
    assert re.search(rf"^engine native +not built: .*{re.escape(WAY_OUT)}", out, re.MULTILINE)


def test_version_says_that_the_engine_is_switched_off(off: None) -> None:
    out = call("version", "--verbose").stdout
    assert re.search(r"^engine native +switched off by FLUIDTOOL_NATIVE=0$", out, re.MULTILINE)


def test_version_in_json_says_why_not(not_built: None) -> None:
    engines = call_json("version", "--verbose")["engines"]
    assert engines["in_use"] == "numpy" and engines["native"]["in_use"] is False
    assert engines["native"]["library"] is None and WAY_OUT in engines["native"]["why_not"]


@built
def test_version_names_instructions_threads_and_library(on: None) -> None:
    out = call("version", "--verbose").stdout
    assert re.search(r"^engine in use +native$", out, re.MULTILINE)
    line = r"^engine native +\w+, \d+ floats in a vector, \d+ threads?; .*_engine.*$"
    assert re.search(line, out, re.MULTILINE)
    data = call_json("version", "--verbose")["engines"]["native"]
    assert data["in_use"] is True and data["vector_width"] in (4, 8, 16) and Path(data["library"]).is_file()


# ---------------------------------------------------------------- inspect --plan
def test_a_plan_without_the_engine_says_why(not_built: None, model: Path) -> None:
    out = call("inspect", model, "--plan").stdout
    assert re.search(r"^native engine +not built: ", out, re.MULTILINE) and "Region 1" not in out
    data = call_json("inspect", model, "--plan")
    assert data["native"]["regions"] == [] and {step["engine"] for step in data["steps"]} == {"numpy"}


@built
def test_a_plan_shows_calls_and_their_steps(on: None) -> None:
    out = call("inspect", DIGITS, "--plan").stdout
    assert re.search(r"^native engine +11 of 11 operators in 1 region \(\w+\)$", out, re.MULTILINE)
    assert re.search(r"^ 0 +conv2d +native +region 1 +image ", out, re.MULTILINE)
    assert re.search(r"^Region 1: 11 operators in \d+ kernel calls$", out, re.MULTILINE)
    assert re.search(r"^arena +\S+ KiB; no arrangement needs less than \S+ KiB$", out, re.MULTILINE)
    assert re.search(r"^\d+ +convolution +conv \+ relu +blocks of \d+ +\(1, 16, 8, 8\) +\d+$", out, re.MULTILINE)


def test_explain_tells_what_rewrites_did_and_why_not(on: None) -> None:
    out = call("inspect", DIGITS, "--plan", "--explain").stdout
    assert re.search(r"^Region 1: rewrites$", out, re.MULTILINE)
    assert re.search(r"^fold affine +2 +A scale and shift by channel is folded into the weights", out, re.MULTILINE)
    assert "mix channels" not in out  # which found nothing that is fit
    (region,) = call_json("inspect", DIGITS, "--plan", "--explain")["native"]["regions"]
    done = {rewrite["name"]: rewrite["done"] for rewrite in region["rewrites"]}
    assert (done["fold affine"], done["fold activation"], done["mix channels"]) == (2, 2, 0)


def test_explain_needs_a_plan() -> None:
    result = call("inspect", DIGITS, "--explain")
    assert result.exit_code == 2 and "--explain shows what the rewrites" in error_of(result)


def test_parameters_of_one_shape_do_not_count_as_equal(tmp_path: Path, on: None) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [16])
        out = fluid.layers.concat([fluid.layers.fc(x, 8, bias_attr=False) for _ in range(2)], axis=1)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor, main)
    (region,) = call_json("inspect", tmp_path, "--plan", "--explain")["native"]["regions"]
    assert {rewrite["name"]: rewrite["done"] for rewrite in region["rewrites"]}["merge products"] == 0


@built
def test_a_plan_in_json_has_the_compiled_steps(on: None) -> None:
    data = call_json("inspect", DIGITS, "--plan", "--batch", 3)
    (found,) = data["native"]["regions"]
    assert found["operators"] == 11 and found["reason"] is None
    assert 0 < found["lower_bound_bytes"] <= found["arena_bytes"]
    assert found["kernel_calls"][-1]["kernel"] == "softmax" and found["kernel_calls"][-1]["shape"] == [3, 10]
    assert all((step["engine"], step["region"]) == ("native", 1) for step in data["steps"])


@built
def test_a_plan_is_compiled_without_parameters(on: None, model: Path) -> None:
    want = call_json("inspect", model, "--plan")["native"]["regions"]
    for name in ("w", "b"):
        (model / name).unlink()
    assert call_json("inspect", model, "--plan")["native"]["regions"] == want


@built
def test_the_previewed_steps_are_those_of_a_run(on: None) -> None:
    model = fluidtool.load(DIGITS, engine="native")
    model.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
    (region,) = model.executor.plan(model.program, model.fetches, True).block(0).work
    (specialization,) = region.specializations.kept.values()  # type: ignore[union-attr]
    (found,) = call_json("inspect", DIGITS, "--plan")["native"]["regions"]
    kernels = [kernel_call.kind.name.lower().replace("_", " ") for kernel_call in specialization.kernel_calls]
    assert [step["kernel"] for step in found["kernel_calls"]] == kernels
    assert found["arena_bytes"] == specialization.frames[0].arena.nbytes


@built
def test_a_plan_says_what_was_left_to_numpy_and_why(on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(IMPORTERS, "sequence_pool")  # as if there were no kernel
    out = call("inspect", TOPICS, "--plan").stdout
    assert re.search(r"^sequence_pool +no native kernel$", out, re.MULTILINE)


CLICKS = """
import sys
from fluidtool import fluid
words, price = fluid.data("words", [None, 1], "int64", lod_level=1), fluid.data("price", [None, 2])
rows = fluid.layers.sequence_pool(fluid.layers.embedding(words, [50, 6]), "sum")
out = fluid.layers.fc(fluid.layers.concat([rows, price], axis=1), 4, act="softmax")
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
fluid.io.save_inference_model(sys.argv[1], ["words", "price"], [out], executor)
"""


@built
def test_sequences_count_as_of_one_row_each(on: None, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLICKS, tmp_path], env=child_environment(), check=True)
    shown = call("inspect", tmp_path, "--plan", "--batch", "3").stdout
    assert re.search(r"^native engine +(\d+) of \1 operators in 1 region", shown, re.MULTILINE)
    assert re.search(r"gather pool +gather pool +rows +\(3, 6\)", shown)


def test_sequences_that_an_operator_makes_are_a_reason() -> None:
    block = fluidtool.load(TOPICS).program.global_block()
    name = next(op for op in block.ops if op.type == "lookup_table").output("Out")[0]
    with pytest.raises(UnsupportedError, match=f"the lengths of the sequences of {name} are known only at run time"):
        short_sequences(name, block, np.zeros((3, 1)))


def test_a_shape_that_only_a_run_can_tell_is_a_reason() -> None:
    block = fluidtool.load(DIGITS).program.global_block()
    with pytest.raises(UnsupportedError, match=r"the shape of image \(1, -1, 8\) is known only at run time"):
        stand_in("image", block, TensorMeta((1, -1, 8), VarType.FP32))


# ---------------------------------------------------------------- docs
def test_the_page_lists_every_operator_that_the_engine_reads() -> None:
    page = (ROOT / "docs" / "native.md").read_text()
    table = page.split("## What it computes", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and line.count(" | ") == 2]  # those of regions
    listed = {name for row in rows for name in re.findall(r"`([a-z0-9_]+)`", row.split("|")[2])}
    assert listed == set(IMPORTERS) - FOR_GPUS


def test_json_of_version_is_one_document(off: None) -> None:
    assert json.loads(call("version", "--json").stdout) == {
        "schema": "fluidtool.version/1",
        "fluidtool": fluidtool.__version__,
    }


# ---------------------------------------------------------------- threads
@pytest.mark.parametrize("text", ["0", "000", "abc", "-1", "2.5", "1e3", "٣", "1 2"])
def test_a_number_of_threads_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_THREADS", text)
    with pytest.raises(UsageError, match=r"FLUIDTOOL_THREADS must be at least 1, .* found"):
        threads.thread_count()


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("2", 2), (" 3 ", 3), ("0000000002", 2), ("1000", 4), ("9" * 5000, 4), ("", 4)]
)
def test_no_more_threads_than_processors(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "processors", lambda: 4)
    monkeypatch.setenv("FLUIDTOOL_THREADS", text)
    assert threads.thread_count() == count


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("99", 4), ("0", 4), ("all", 4)])
def test_what_paddle_calls_cpu_num_is_a_hint(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "processors", lambda: 4)
    monkeypatch.delenv("FLUIDTOOL_THREADS", raising=False)
    monkeypatch.setenv("CPU_NUM", text)
    assert threads.thread_count() == count


def test_threads_of_a_run_are_no_more_than_processors(model: Path, x: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_THREADS", "1")  # put back after the test
    monkeypatch.setattr("fluidtool.cli.threads.processors", lambda: 1)
    assert call("run", model, "--feed", x, "--threads", 200).exit_code == 0
    assert os.environ["FLUIDTOOL_THREADS"] == "1"


@built
def test_a_command_says_which_variable_is_wrong(model: Path, x: Path) -> None:
    wrong = {"FLUIDTOOL_NATIVE": "", "FLUIDTOOL_THREADS": "abc"}
    done = process("run", model, "--feed", x, "--engine", "native", env=wrong, text=True)
    assert done.returncode == 2 and "FLUIDTOOL_THREADS must be at least 1" in done.stderr
