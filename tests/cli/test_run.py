"""`fluidtool run`: each option, on the samples (numbers by real Paddle) and on a model of four operators."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fluidtool.ir import Program
from tests.cli.support import (
    BIAS,
    DIGITS,
    PAIR,
    TOPICS,
    WEIGHT,
    call,
    call_json,
    combined_model,
    error_of,
    everything_below,
    feed_file,
    linear_model,
    linear_program,
    on_terminal,
    write_model,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


@pytest.fixture
def x(tmp_path: Path) -> Path:
    return feed_file(tmp_path / "x.npy")


def values(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def table_rows(text: str) -> dict[str, list[str]]:
    """The rows of the table of outputs by name."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:] if line.strip()}


# ---------------------------------------------------------------- the samples, against real Paddle
@pytest.mark.parametrize(
    "args",
    [
        [DIGITS, "--feed", DIGITS / "x.npy", "--expect", DIGITS / "expected.npz"],
        [PAIR, "--feed", PAIR.parent / "x.npy", "--expect", PAIR.parent / "expected.npz"],
        [TOPICS, "--feed", TOPICS / "feed.npz", "--lod", TOPICS / "lod.json", "--expect", TOPICS / "expected.npz"],
    ],
    ids=["digits", "digits_v2", "topics"],
)
def test_samples_give_what_paddle_gave(args: list[object]) -> None:
    result = call("run", *args)
    assert result.exit_code == 0, result.stderr
    assert "1 output as in" in result.stderr


# ---------------------------------------------------------------- what is shown
def test_the_table_of_outputs(model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x)
    header, row = result.stdout.splitlines()
    assert header.split() == ["output", "type", "shape", "min", "mean", "max", "NaN", "Inf", "values"]
    assert row.startswith("probability  float32  (2, 3)")
    assert row.split()[5] == "0.3333"
    assert result.stderr == ""


def test_json_has_the_values(model: Path, x: Path) -> None:
    (output,) = call_json("run", model, "--feed", x)["outputs"]
    assert (output["name"], output["data_type"], output["shape"]) == ("probability", "float32", [2, 3])
    assert np.allclose(np.sum(output["values"], axis=1), 1, atol=1e-6)
    assert output["nan"] == output["inf"] == 0


def test_json_leaves_large_values_to_files(model: Path, tmp_path: Path) -> None:
    (output,) = call_json("run", model, "--random", "--batch", 400)["outputs"]
    assert output["shape"] == [400, 3] and output["values"] is None


# ---------------------------------------------------------------- feeds
def test_a_feed_by_name(model: Path, x: Path) -> None:
    assert call("run", model, "--feed", f"x={x}").exit_code == 0


def test_a_feed_finds_the_input_called_like_its_file(tmp_path: Path) -> None:
    program = linear_program(feeds=["x", "b"])
    folder = write_model(tmp_path / "model", program, w=WEIGHT, b=BIAS)
    np.save(tmp_path / "b.npy", BIAS)
    result = call("run", folder, "--feed", tmp_path / "b.npy", "--feed", feed_file(tmp_path / "x.npy"))
    assert result.exit_code == 0, result.stderr


def test_an_archive_feeds_by_name(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((1, 4), "float32"))
    assert call("run", model, "--feed", tmp_path / "all.npz").exit_code == 0


def test_an_archive_without_names_feeds_in_order(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", np.ones((1, 4), "float32"))
    assert call("run", model, "--feed", tmp_path / "all.npz").exit_code == 0


@pytest.mark.parametrize("spec", ["-", "x=-"])
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_standard_input_is_a_feed(model: Path, spec: str, kind: str) -> None:
    file = io.BytesIO()
    array = np.ones((3, 4), "float32")
    np.save(file, array) if kind == "npy" else np.savez(file, x=array)
    result = call("run", model, "--feed", spec, input=file.getvalue())
    assert result.exit_code == 0, result.stderr
    assert "(3, 3)" in result.stdout


def test_an_intermediate_can_be_fed_instead_of_computed(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "sum.npy", np.zeros((1, 3), "float32"))
    result = call("run", model, "--feed", f"sum={tmp_path / 'sum.npy'}", "--random", "--fetch", "w")
    assert result.exit_code == 0, result.stderr


def test_an_input_that_the_fetches_do_not_need_may_be_missing(tmp_path: Path) -> None:
    program = linear_program(feeds=["x", "b"])
    folder = write_model(tmp_path / "model", program, w=WEIGHT, b=BIAS)
    result = call("run", folder, "--feed", feed_file(tmp_path / "x.npy"), "--fetch", "product")
    assert result.exit_code == 0, result.stderr


def test_big_endian_files_are_read(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 4), ">f4"))
    assert call("run", model, "--feed", tmp_path / "x.npy").exit_code == 0


# ---------------------------------------------------------------- sequences
def test_sequence_lengths_as_an_option() -> None:
    lengths = json.loads((TOPICS / "lod.json").read_text())["words"]
    for option in (f"words={json.dumps(lengths)}", json.dumps(lengths)):
        result = call("run", TOPICS, "--feed", TOPICS / "feed.npz", "--lod", option)
        assert result.exit_code == 0, result.stderr
        assert "(6, 4)" in result.stdout


def test_outputs_with_sequences_show_their_lengths() -> None:
    result = call("run", TOPICS, "--random", "--batch", 3, "--fetch", "lstm_0.tmp_0")
    assert "LoD" in result.stdout.splitlines()[0]
    assert "[4, 5, 6]" in result.stdout.splitlines()[1]


def test_saved_sequences_can_be_fed_again(tmp_path: Path) -> None:
    assert call("run", TOPICS, "--random", "--batch", 2, "--fetch", "words", "-o", tmp_path / "f.npz").exit_code == 0
    assert str(values(tmp_path / "f.npz")["words.lod"]) == "[[4, 5]]"
    result = call("run", TOPICS, "--feed", tmp_path / "f.npz")
    assert result.exit_code == 0, result.stderr
    assert "(2, 4)" in result.stdout


# ---------------------------------------------------------------- random inputs
def test_random_inputs_are_the_same_for_the_same_seed(model: Path) -> None:
    one, again, other = (call("run", model, "--random", "--seed", seed).stdout for seed in (7, 7, 8))
    assert one == again != other


def test_random_inputs_are_announced(model: Path) -> None:
    assert call("run", model, "--random", "--batch", 5).stderr == "random input x: float32 (5, 4)\n"


@pytest.mark.parametrize("option", ["x=2,4", "2,4", "[2, 4]"])
def test_the_shape_of_a_random_input(model: Path, option: str) -> None:
    assert "(2, 3)" in call("run", model, "--random", "--shape", option).stdout


def test_random_sequences_take_lengths() -> None:
    result = call("run", TOPICS, "--random", "--lod", "words=[[2,3]]")
    assert "random input words: int64 (5, 1), sequence lengths [[2, 3]]" in result.stderr
    assert result.exit_code == 0


# ---------------------------------------------------------------- fetches
@pytest.mark.parametrize(
    ("fetch", "names"),
    [
        (["--fetch", "product"], ["product"]),
        (["--fetch", "probability", "product"], ["probability", "product"]),
        (["--fetch", "probability", "--fetch", "product"], ["probability", "product"]),
        (["--fetch", "p*"], ["product", "positive", "probability"]),
        (["--fetch", "product", "p*"], ["product", "positive", "probability"]),
        (["--fetch-all"], ["product", "sum", "positive", "probability"]),
        (["--fetch", "x"], ["x"]),
        (["--fetch", "w"], ["w"]),
    ],
)
def test_fetches(model: Path, x: Path, fetch: list[str], names: list[str]) -> None:
    result = call("run", model, "--feed", x, *fetch)
    assert result.exit_code == 0, result.stderr
    assert list(table_rows(result.stdout)) == names


def test_what_a_pattern_matches_may_have_no_value() -> None:
    """dropout leaves its Mask without a value at test time."""
    result = call("run", TOPICS, "--random", "--fetch", "dropout_0.*")
    assert list(table_rows(result.stdout)) == ["dropout_0.tmp_0"]
    named = call("run", TOPICS, "--random", "--fetch", "dropout_0.tmp_1")
    assert named.exit_code == 2 and "no value in this run" in error_of(named)


# ---------------------------------------------------------------- output
def test_an_archive_has_the_outputs_by_name(model: Path, x: Path, tmp_path: Path) -> None:
    result = call("run", model, "--feed", x, "--fetch", "sum", "probability", "--output", tmp_path / "o.npz")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"2 outputs saved to {tmp_path / 'o.npz'}\n"
    saved = values(tmp_path / "o.npz")
    assert np.allclose(saved["sum"], np.load(x) @ WEIGHT + BIAS, atol=1e-6)
    assert list(saved) == ["sum", "probability"]


def test_the_same_outputs_give_the_same_bytes(model: Path, x: Path, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        call("run", model, "--feed", x, "--output", tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_folder_has_one_file_for_each_output(x: Path, tmp_path: Path) -> None:
    result = call("run", DIGITS, "--random", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert np.load(tmp_path / "out" / "save_infer_model" / "scale_0.tmp_0.npy").shape == (1, 10)


def test_a_single_array(model: Path, x: Path, tmp_path: Path) -> None:
    assert call("run", model, "--feed", x, "-o", tmp_path / "o.npy").exit_code == 0
    assert np.load(tmp_path / "o.npy").shape == (2, 3)


def test_standard_output_takes_an_archive(model: Path, x: Path) -> None:
    result = call("run", model, "--feed", x, "-o", "-")
    assert list(np.load(io.BytesIO(result.stdout_bytes))) == ["probability"]


@pytest.mark.parametrize("name", ["out.json", "out.PKL", "out.txt"])
def test_another_format_is_refused_before_the_run(model: Path, x: Path, tmp_path: Path, name: str) -> None:
    result = call("run", model, "--feed", x, "-o", tmp_path / name)
    assert result.exit_code == 2
    assert "name a .npz (all outputs by name), a .npy (one output) or a folder" in error_of(result)
    assert not (tmp_path / name).exists()


def test_an_archive_is_not_written_to_a_terminal(model: Path, x: Path) -> None:
    shown = " ".join(on_terminal("run", model, "--feed", x, "-o", "-", columns=200, NO_COLOR="1").split())
    assert (
        shown == "error: --output - writes a .npz, which is binary, to a terminal; redirect it, or name a file [FT200]"
    )


def test_outputs_feed_the_next_model(model: Path, x: Path) -> None:
    first = call("run", model, "--feed", x, "--fetch", "x", "-o", "-")
    assert call("run", model, "--feed", "-", input=first.stdout_bytes).exit_code == 0


@pytest.mark.parametrize("name", ["o.npz", "o.npy"])
def test_nothing_is_overwritten_without_force(model: Path, x: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.write_bytes(b"precious")
    result = call("run", model, "--feed", x, "-o", target)
    assert result.exit_code == 2 and "already exists" in error_of(result)
    assert target.read_bytes() == b"precious"
    assert call("run", model, "--feed", x, "-o", target, "--force").exit_code == 0
    assert target.read_bytes() != b"precious"


def test_a_folder_is_not_overwritten_without_force(model: Path, x: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    assert call("run", model, "--feed", x, "-o", target).exit_code == 0  # an empty one is taken
    assert call("run", model, "--feed", x, "-o", target).exit_code == 2
    (target / "mine.txt").write_text("precious")
    assert call("run", model, "--feed", x, "-o", target, "--force").exit_code == 0
    assert everything_below(target) == {"probability.npy", "mine.txt"}


# ---------------------------------------------------------------- expectations
def expectation(model: Path, x: Path, path: Path, **changes: object) -> Path:
    call("run", model, "--feed", x, "--fetch", "sum", "probability", "-o", path, "--force")
    np.savez(path, **(values(path) | changes))
    return path


def test_an_expectation_that_is_met(model: Path, x: Path, tmp_path: Path) -> None:
    golden = expectation(model, x, tmp_path / "golden.npz")
    result = call("run", model, "--feed", x, "--expect", golden)
    assert result.exit_code == 0
    assert result.stderr == f"2 outputs as in {golden} (rtol 0.0001, atol 1e-05; largest difference 0)\n"
    assert list(table_rows(result.stdout)) == ["probability"]


def test_an_expectation_that_is_not_met(model: Path, x: Path, tmp_path: Path) -> None:
    wrong = np.load(x) @ WEIGHT + BIAS
    wrong[1, 2] += 0.5
    golden = expectation(model, x, tmp_path / "golden.npz", sum=wrong)
    result = call("run", model, "--feed", x, "--expect", golden)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: 1 of 2 outputs differs from {golden}")
    assert re.search(r"sum +1 of 6 +\[1, 2\] +\S+ +\S+ +0\.5\n", result.stdout)


def test_the_tolerances_of_an_expectation(model: Path, x: Path, tmp_path: Path) -> None:
    near = (np.load(x) @ WEIGHT + BIAS) * np.float32(1.001)
    golden = expectation(model, x, tmp_path / "golden.npz", sum=near)
    assert call("run", model, "--feed", x, "--expect", golden).exit_code == 1
    assert call("run", model, "--feed", x, "--expect", golden, "--rtol", "0.01").exit_code == 0
    assert call("run", model, "--feed", x, "--expect", golden, "--atol", "0.1").exit_code == 0


def test_an_expectation_of_another_shape(model: Path, x: Path, tmp_path: Path) -> None:
    golden = expectation(model, x, tmp_path / "golden.npz", sum=np.zeros((3, 2), "float32"))
    result = call("run", model, "--feed", x, "--expect", golden)
    assert result.exit_code == 1
    assert "has shape (2, 3), expected (3, 2)" in result.stdout


def test_a_comparison_in_json(model: Path, x: Path, tmp_path: Path) -> None:
    golden = expectation(model, x, tmp_path / "golden.npz", sum=np.zeros((2, 3), "float32"))
    result = call("run", model, "--feed", x, "--expect", golden, "--json")
    comparison = json.loads(result.stdout)["comparison"]
    assert result.exit_code == 1 and not comparison["agrees"]
    assert [item["differing"] for item in comparison["outputs"]] == [6, 0]


# ---------------------------------------------------------------- NaN
def logarithm_model(folder: Path) -> Path:
    """x -> log(x) -> relu."""
    program = Program()
    block = program.global_block()
    for name in ("x", "logarithm", "positive"):
        block.create_var(name=name, shape=[-1, 2], dtype="float32")
    block.append_op(type="log", inputs={"X": ["x"]}, outputs={"Out": ["logarithm"]})
    block.append_op(type="relu", inputs={"X": ["logarithm"]}, outputs={"Out": ["positive"]})
    from fluidtool.io.inference import inference_program

    return write_model(folder, inference_program(program, ["x"], ["positive"]))


def test_the_first_operator_that_makes_nan_is_named(tmp_path: Path) -> None:
    folder = logarithm_model(tmp_path / "model")
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, -1]], "float32"))
    assert call("run", folder, "--feed", tmp_path / "x.npy").exit_code == 0
    result = call("run", folder, "--feed", tmp_path / "x.npy", "--check-nan")
    assert result.exit_code == 5
    assert result.stderr == (
        "error: operator log (number 1 of block 0) made its output Out, variable logarithm, with 1 NaN of 4 elements, the "
        "first at [1, 1]; its inputs are finite [FT500]\n"
    )
    assert result.stdout == (
        "Not finite\n"
        "#  operator  variable   NaN  Inf  elements  first at  cause\n"
        "1  log       logarithm    1    0         4  [1, 1]    its inputs are finite\n"
        "\n"
        "Inputs of operator 1, log\n"
        "slot  variable  type     shape   min  mean  max  NaN  Inf\n"
        "X     x         float32  (2, 2)   -1  1.25    3    0    0\n"
    )


def test_the_operator_that_makes_nan_as_json_with_its_inputs(tmp_path: Path) -> None:
    folder = logarithm_model(tmp_path / "model")
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, -1]], "float32"))
    result = call("run", folder, "--feed", tmp_path / "x.npy", "--check-nan", "--json")
    assert result.exit_code == 5
    (found,) = json.loads(result.stdout)["not_finite"]
    assert (found["block"], found["operator"], found["type"], found["variable"]) == (0, 1, "log", "logarithm")
    assert (found["nan"], found["inf"], found["elements"], found["first"]) == (1, 0, 4, [1, 1])
    assert found["finite_inputs"] is True and found["given"] is False
    (operand,) = found["inputs"]
    assert (operand["name"], operand["min"], operand["mean"], operand["max"]) == ("x", -1, 1.25, 3)


def test_every_variable_with_nan_is_listed_and_the_outputs_are_shown(tmp_path: Path) -> None:
    folder = logarithm_model(tmp_path / "model")
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, -1]], "float32"))
    result = call("run", folder, "--feed", tmp_path / "x.npy", "--check-nan-all", "--json")
    assert result.exit_code == 5
    assert "error: 2 variables with NaN or infinity, listed above [FT500]" in result.stderr
    document = json.loads(result.stdout)
    assert [output["name"] for output in document["outputs"]] == ["positive"]
    assert [(each["variable"], each["finite_inputs"]) for each in document["not_finite"]] == [
        ("logarithm", True),
        ("positive", False),
    ]


def test_the_inputs_of_an_operator_in_place_are_those_before_it(tmp_path: Path) -> None:
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 2], dtype="float32")
    block.create_var(name="y", shape=[-1, 2], dtype="float32")
    block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs={"scale": 2.0})
    block.append_op(type="log", inputs={"X": ["y"]}, outputs={"Out": ["y"]})
    from fluidtool.io.inference import inference_program

    folder = write_model(tmp_path / "model", inference_program(program, ["x"], ["y"]))
    np.save(tmp_path / "x.npy", np.array([[0, 2]], "float32"))
    found = json.loads(call("run", folder, "--feed", tmp_path / "x.npy", "--check-nan", "--json").stdout)
    (operand,) = found["not_finite"][0]["inputs"]
    assert (operand["min"], operand["max"], operand["inf"]) == (0, 4, 0)


def test_nan_that_was_fed_is_not_blamed_on_an_operator(tmp_path: Path) -> None:
    folder = logarithm_model(tmp_path / "model")
    np.save(tmp_path / "x.npy", np.array([[np.inf, 2]], "float32"))
    result = call("run", folder, "--feed", tmp_path / "x.npy", "--check-nan")
    assert result.exit_code == 5
    assert "variable x, with 1 infinite of 2 elements" in result.stderr and "it was fed" in result.stderr


def test_a_finite_run_passes_the_check(model: Path, x: Path) -> None:
    assert call("run", model, "--feed", x, "--check-nan").exit_code == 0


# ---------------------------------------------------------------- how it runs
def test_repeated_runs_show_their_times(model: Path, x: Path) -> None:
    out = call("run", model, "--feed", x, "--repeat", 5, "--warmup", 2).stdout
    assert re.search(r"^runs +5$", out, re.MULTILINE)
    assert re.search(r"^median +\S+ ms$", out, re.MULTILINE) and re.search(r"^p90 +\S+ ms$", out, re.MULTILINE)


def test_statistics_of_runs(model: Path, x: Path) -> None:
    out = call("run", model, "--feed", x, "--repeat", 4).stdout
    times = out[out.index("runs") :]
    assert [line.split()[0] for line in times.splitlines()] == ["runs", "min", "median", "p90", "max", "mean", "std"]


def test_times_in_json(model: Path, x: Path) -> None:
    seconds = call_json("run", model, "--feed", x, "--repeat", 4)["seconds"]
    assert seconds["runs"] == 4
    assert 0 < seconds["min"] <= seconds["median"] <= seconds["p90"] <= seconds["max"]


def test_a_device_that_is_not_there(model: Path, x: Path) -> None:
    try:
        import cupy  # noqa: F401
    except ImportError:
        result = call("run", model, "--feed", x, "--device", "gpu:0")
        assert result.exit_code == 2 and "cupy" in error_of(result) and "[FT700]" in error_of(result)


# ---------------------------------------------------------------- where the model is
def test_every_layout_gives_the_same(model: Path, x: Path, tmp_path: Path) -> None:
    combined = combined_model(tmp_path / "combined")
    bare = tmp_path / "bare" / "model.pb"
    bare.parent.mkdir()
    bare.write_bytes((model / "__model__").read_bytes())
    wanted = call("run", model, "--feed", x).stdout
    for args in (
        [model / "__model__"],
        [combined],
        [bare, "--params", model],
        [bare, "--params", combined / "__params__"],
        [model, "--model-file", "__model__"],
    ):
        assert call("run", *args, "--feed", x).stdout == wanted


# ---------------------------------------------------------------- policy
def saving_model(folder: Path, target: Path) -> Path:
    """A model whose program writes x to a file when it runs."""
    program = linear_program()
    block = program.global_block()
    block.insert_op(
        1,
        type="save",
        inputs={"X": ["x"]},
        outputs={},
        attrs={"file_path": str(target), "overwrite": True, "save_as_fp16": False},
    )
    return write_model(folder, program, w=WEIGHT, b=BIAS)


def test_a_program_writes_no_file_on_its_own(tmp_path: Path, x: Path) -> None:
    target = tmp_path / "allowed" / "stolen"
    target.parent.mkdir()
    folder = saving_model(tmp_path / "model", target)
    result = call("run", folder, "--feed", x)
    assert result.exit_code == 2
    assert "operator save asks for the file" in error_of(result) and "--allow-files DIR" in error_of(result)
    assert not target.exists()


def test_a_program_writes_files_where_it_is_allowed(tmp_path: Path, x: Path) -> None:
    target = tmp_path / "allowed" / "kept"
    target.parent.mkdir()
    folder = saving_model(tmp_path / "model", target)
    result = call("run", folder, "--feed", x, "--allow-files", tmp_path / "allowed")
    assert result.exit_code == 0, result.stderr
    assert target.exists()
    other = saving_model(tmp_path / "other", tmp_path / "elsewhere")
    assert call("run", other, "--feed", x, "--allow-files", tmp_path / "allowed").exit_code == 2
    assert not (tmp_path / "elsewhere").exists()
