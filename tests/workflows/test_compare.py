"""`fluidtool.compare`: pairs, the first value that differs, and the smallest part that shows it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import FeedError, OutputExistsError, UnreadableError, UsageError
from fluidtool.io.inference import inference_program
from fluidtool.io.parameters import write_combined, write_separate
from fluidtool.ir import Program
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.compare import CompareResult, compare
from fluidtool.workflows.inputs import Inputs
from tests.cli.support import BIAS, DIGITS, TOPICS, WEIGHT, call, copy_of, linear_model, linear_program, write_model
from tests.support.golden import corpus

FEED = DIGITS / "x.npy"
DIGITS_FEED = Inputs(feeds=[str(FEED)])
TOPICS_FEED = Inputs(feeds=[str(TOPICS / "feed.npz")], lods=[str(TOPICS / "lod.json")])


def load(path: Path, engine: str = "numpy", **kwargs: Any) -> fluidtool.Model:
    return fluidtool.load(path, engine=engine, **kwargs)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """samples/digits with one wrong weight in its second convolution."""
    folder = copy_of(DIGITS, tmp_path / "wrong")
    weight = load(folder).files.parameters["conv2d_1.w_0"].numpy().copy()
    weight.flat[3] += 0.5
    write_separate(folder, {"conv2d_1.w_0": LoDTensor(weight)})
    return folder


def by_name(result: CompareResult) -> dict[str, Any]:
    return {each.name: each for each in result.pairs.values}


# ---------------------------------------------------------------- what is paired
def test_a_model_equals_itself_in_every_value() -> None:
    result = compare(load(DIGITS), load(DIGITS), DIGITS_FEED)
    assert result.equal and not result.pairs.unpaired
    assert list(by_name(result))[:3] == ["conv2d_0.tmp_0", "batch_norm_0.tmp_2", "batch_norm_0.tmp_3"]
    assert all(each.comparison.largest_error == 0 for each in result.pairs.values)


@pytest.mark.parametrize(("path", "inputs"), [(DIGITS, DIGITS_FEED), (TOPICS, TOPICS_FEED)])
def test_the_native_engine_agrees_with_numpy(native: object, path: Path, inputs: Inputs) -> None:
    result = compare(load(path), load(path, "native"), inputs)
    assert result.equal and result.left == "numpy" and result.right == "native"
    assert len(result.pairs.values) > 5 and result.pairs.unpaired
    assert max(each.relative for each in result.pairs.values) < 1e-5


def test_values_that_an_engine_computes_at_once_are_listed(native: object) -> None:
    result = compare(load(DIGITS), load(DIGITS, "native"), DIGITS_FEED)
    lost = {each.name: each.reason for each in result.pairs.unpaired}
    assert lost["conv2d_0.tmp_0"] == "part of batch_norm_0.tmp_3 (relu)"
    assert by_name(result)["batch_norm_0.tmp_3"].comparison.agrees


def test_all_values_can_be_fetched_from_an_engine(native: object) -> None:
    result = compare(load(DIGITS), load(DIGITS, "native"), DIGITS_FEED, every=True)
    assert result.equal and not result.pairs.unpaired
    assert any("every intermediate value" in note for note in result.notes)


def test_a_folded_model_pairs_with_the_original(tmp_path: Path) -> None:
    fluidtool.transpile(DIGITS, ["fuse-batch-norm"], output=tmp_path / "folded")
    result = compare(load(DIGITS), load(tmp_path / "folded"), DIGITS_FEED)
    assert result.equal and result.notes == ()
    lost = {each.name: each.reason for each in result.pairs.unpaired}
    assert lost == {f"conv2d_{n}.tmp_0": f"part of batch_norm_{n}.tmp_2 (elementwise_add)" for n in (0, 1)}
    assert by_name(result)["batch_norm_1.tmp_2"].relative < 1e-5


def test_variables_that_share_memory_pair_by_their_own_names(tmp_path: Path) -> None:
    fluidtool.transpile(DIGITS, ["memory-optimize"], output=tmp_path / "small")
    result = compare(load(DIGITS), load(tmp_path / "small"), DIGITS_FEED)
    assert result.equal and not result.pairs.unpaired


def test_a_name_that_a_fold_gave_another_meaning_does_not_count(tmp_path: Path) -> None:
    """As Paddle's InferenceTranspiler leaves it: the product of the scaled weight keeps the name of the product."""
    program = linear_program()
    block = program.global_block()
    block.create_parameter(name="w_scaled", shape=[4, 3], dtype="float32")
    block.create_var(name="scaled", shape=[-1, 3], dtype="float32")
    product = next(op for op in block.ops if op.type == "mul")
    product.set_input("Y", ["w_scaled"])
    add = next(op for op in block.ops if op.type == "elementwise_add")
    add.set_input("X", ["scaled"])
    block.insert_op(
        block.ops.index(add),
        type="scale",
        inputs={"X": ["product"]},
        outputs={"Out": ["scaled"]},
        attrs={"scale": 0.5, "bias": 0.0, "bias_after_scale": True},
    )
    other = write_model(tmp_path / "b", program, w=WEIGHT, w_scaled=2 * WEIGHT, b=BIAS)
    result = compare(load(linear_model(tmp_path / "a")), load(other))
    assert result.equal and by_name(result)["product"].rewritten
    assert any("product" in note for note in result.notes)


def test_outputs_of_other_names_pair_in_order(tmp_path: Path) -> None:
    program = linear_program()
    for op in program.global_block().ops:
        op.rename_output("probability", "p")
        op.rename_input("probability", "p")
    program.global_block().create_var(name="p", shape=[-1, 3], dtype="float32")
    other = write_model(tmp_path / "b", program, w=WEIGHT, b=BIAS)
    result = compare(load(linear_model(tmp_path / "a")), load(other))
    assert result.equal and result.pairs.outputs[0].partner == "p"


# ---------------------------------------------------------------- the first difference
def test_a_wrong_weight_is_found_at_its_operator(wrong: Path) -> None:
    result = compare(load(DIGITS), load(wrong), DIGITS_FEED)
    assert not result.equal and result.first is not None
    first = result.first
    assert (first.value.name, first.value.place.operator, first.value.place.op.type) == ("conv2d_1.tmp_0", 4, "conv2d")
    assert first.inputs == {"batch_norm_0.tmp_3": "agrees", "conv2d_1.w_0": "parameter"}
    assert [(each.name, each.differing) for each in first.parameters] == [("conv2d_1.w_0", 1)]
    assert by_name(result)["batch_norm_0.tmp_3"].comparison.largest_error == 0


def test_a_wrong_weight_is_found_behind_a_fusion(native: object, wrong: Path) -> None:
    result = compare(load(DIGITS), load(wrong, "native"), DIGITS_FEED)
    assert result.first is not None and result.first.value.name == "batch_norm_1.tmp_3"
    assert [place.op.type for place in result.first.operators] == ["conv2d", "batch_norm", "relu"]
    assert [each.name for each in result.first.parameters] == ["conv2d_1.w_0"]


def test_a_wrong_attribute_is_found(tmp_path: Path) -> None:
    a, b = (write_model(tmp_path / name, scaled(factor)) for name, factor in (("a", 2.0), ("b", 2.5)))
    result = compare(load(a), load(b))
    assert result.first is not None and result.first.value.name == "y"
    assert [(each.field, each.left, each.right) for each in result.first.attributes] == [
        ("scale of operator 1", 2.0, 2.5)
    ]


def scaled(factor: float, shape: tuple[int, ...] = (-1, 3)) -> Program:
    program = Program()
    block = program.global_block()
    for name in ("x", "y", "z"):
        block.create_var(name=name, shape=shape, dtype="float32")
    attrs = {"scale": factor, "bias": 0.0, "bias_after_scale": True}
    block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs=attrs)
    block.append_op(type="log", inputs={"X": ["y"]}, outputs={"Out": ["z"]})
    return inference_program(program, ["x"], ["z"])


def test_the_first_value_of_an_overwritten_tensor_is_told_from_the_last(tmp_path: Path) -> None:
    a = linear_model(tmp_path / "a", in_place=True)
    b = write_model(tmp_path / "b", linear_program(in_place=True), w=WEIGHT, b=BIAS - 1)
    result = compare(load(a), load(b))
    assert result.first is not None and result.first.value.name == "sum@1"


def test_the_first_nan_is_named(tmp_path: Path) -> None:
    a, b = (write_model(tmp_path / name, scaled(factor)) for name, factor in (("a", 2.0), ("b", -2.0)))
    result = compare(load(a), load(b))
    assert result.not_finite is not None and result.not_finite.name == "z"
    assert (result.not_finite.left.nan, result.not_finite.right.nan) == (0, 3)
    assert result.first is not None and result.first.value.name == "y"


def test_nan_on_both_sides_is_named_and_no_difference(tmp_path: Path) -> None:
    a = write_model(tmp_path / "a", scaled(-2.0))
    result = compare(load(a), load(a))
    assert result.equal and result.not_finite is not None and result.not_finite.name == "z"


def test_another_shape_is_a_difference_with_its_reason(tmp_path: Path) -> None:
    program = scaled(2.0)
    log = next(op for op in program.global_block().ops if op.type == "log")
    log.type = "reduce_sum"
    log.set_attr("reduce_all", True)
    a, b = write_model(tmp_path / "a", scaled(2.0)), write_model(tmp_path / "b", program)
    result = compare(load(a), load(b))
    assert result.first is not None and result.first.value.name == "z"
    assert result.first.value.comparison.fault == "has shape (1,), expected (1, 3)"
    assert result.first.inputs == {"y": "agrees"}


def test_the_tolerance_is_that_of_the_largest_element_by_default(tmp_path: Path) -> None:
    a = linear_model(tmp_path / "a")
    b = write_model(tmp_path / "b", linear_program(), w=WEIGHT * np.float32(1 + 2e-5), b=BIAS)
    assert compare(load(a), load(b)).equal
    assert not compare(load(a), load(b), rtol=1e-6).equal
    assert not compare(load(a), load(b), rtol=0.0, atol=1e-7).equal


# ---------------------------------------------------------------- recordings
def test_a_model_is_compared_with_recorded_values(tmp_path: Path) -> None:
    saved = call(
        "run",
        TOPICS,
        "--feed",
        TOPICS / "feed.npz",
        "--lod",
        TOPICS / "lod.json",
        "--fetch-all",
        "-o",
        tmp_path / "values",
    )
    assert saved.exit_code == 0, saved.stderr
    result = compare(load(TOPICS), None, TOPICS_FEED, recorded=tmp_path / "values")
    assert result.equal and len(result.pairs.values) > 10


def test_what_was_not_recorded_is_listed_and_a_missing_output_differs(tmp_path: Path) -> None:
    model = load(linear_model(tmp_path / "a"))
    x = np.ones((2, 4), "float32")
    found = model.run({"x": x}, ["sum"])
    np.savez(tmp_path / "some.npz", x=x, sum=found["sum"].numpy())
    result = compare(model, None, recorded=tmp_path / "some.npz")
    assert [each.name for each in result.pairs.unpaired] == ["product", "positive"]
    assert result.first is not None and result.first.value.comparison.fault == "has no value in B"
    assert by_name(result)["sum"].comparison.agrees


def test_a_folder_without_tensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableError, match=r"no \.npy or \.npz files"):
        compare(load(linear_model(tmp_path / "a")), None, recorded=tmp_path / "empty")


# ---------------------------------------------------------------- narrowing
def reproduces(result: CompareResult) -> bool:
    """Whether the printed command has exit code 1."""
    assert result.part is not None
    words = shlex.split(result.part.command)
    assert words[0] == "fluidtool"
    again = call(*words[1:])
    assert again.exit_code in (0, 1), again.stderr
    return bool(again.exit_code == 1)


def test_the_smallest_part_is_one_operator_and_its_command_shows_it(wrong: Path, tmp_path: Path) -> None:
    result = compare(load(DIGITS), load(wrong), DIGITS_FEED, bisect=tmp_path / "part")
    assert result.part is not None
    assert (result.part.name, result.part.operators, result.part.of) == ("conv2d_1.tmp_0", 1, 11)
    assert result.part.feeds == ("batch_norm_0.tmp_3",)
    assert load(tmp_path / "part/b").files.parameters.keys() == {"conv2d_1.w_0"}
    assert reproduces(result)


def test_the_smallest_part_of_a_fusion(native: object, wrong: Path, tmp_path: Path) -> None:
    result = compare(load(DIGITS), load(wrong, "native"), DIGITS_FEED, bisect=tmp_path / "part")
    assert result.part is not None and result.part.operators == 3
    assert reproduces(result)


def test_the_smallest_part_between_precisions_is_one_model(native: object, tmp_path: Path) -> None:
    narrow = load(DIGITS, "native", precision="bf16")
    result = compare(load(DIGITS, "native"), narrow, DIGITS_FEED, rtol=1e-5, bisect=tmp_path / "part")
    assert result.part is not None and result.right == "native, bf16"
    assert {path.name for path in (tmp_path / "part").iterdir()} >= {"a", "feed.npz"}
    assert reproduces(result)


def test_the_smallest_part_of_sequences_keeps_their_lengths(tmp_path: Path) -> None:
    folder = copy_of(TOPICS, tmp_path / "wrong")
    model = fluidtool.load(folder)
    store = model.files.parameters
    values = {name: LoDTensor(store[name].numpy().copy(), store[name].lod()) for name in store}
    name = next(op.input("Filter")[0] for op in model.program.global_block().ops if op.type == "sequence_conv")
    values[name].numpy()[...] *= 1.5
    write_combined(folder / "params", values)
    result = compare(load(TOPICS), load(folder), TOPICS_FEED, bisect=tmp_path / "part")
    assert result.part is not None and result.part.name == "sequence_conv_0.tmp_0" and result.part.operators == 1
    assert reproduces(result)


def test_the_smallest_part_beside_a_recording(wrong: Path, tmp_path: Path) -> None:
    found = load(wrong).run({"image": np.load(FEED)}, list(by_name(compare(load(DIGITS), load(DIGITS), DIGITS_FEED))))
    np.savez(tmp_path / "values.npz", **{name: value.numpy() for name, value in found.items()})
    result = compare(load(DIGITS), None, DIGITS_FEED, recorded=tmp_path / "values.npz", bisect=tmp_path / "part")
    assert result.part is not None and result.part.name == "conv2d_1.tmp_0"
    assert reproduces(result)


def test_rounding_that_adds_up_is_narrowed_to_as_many_operators_as_it_takes(tmp_path: Path) -> None:
    """Each of ten factors is off by less than allowed; the value that differs first takes several of them."""
    a, b = (write_model(tmp_path / name, factors(off)) for name, off in (("a", 0.0), ("b", 4e-5)))
    result = compare(load(a), load(b), bisect=tmp_path / "part")
    assert result.part is not None and 1 < result.part.operators < 10
    assert reproduces(result)


def factors(off: float) -> Program:
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 3], dtype="float32")
    for number in range(10):
        block.create_var(name=f"y{number}", shape=[-1, 3], dtype="float32")
        block.append_op(
            type="scale",
            inputs={"X": [f"y{number - 1}" if number else "x"]},
            outputs={"Out": [f"y{number}"]},
            attrs={"scale": 1.0 + off, "bias": 0.0, "bias_after_scale": True},
        )
    return inference_program(program, ["x"], ["y9"])


def test_a_difference_within_a_loop_is_narrowed_to_a_part_with_the_loop(tmp_path: Path) -> None:
    folder = corpus("models") / "seq2seq_train/separate"
    model = load(folder)
    values = {name: model.files.parameters[name].numpy() for name in model.files.parameters}
    np.savez(tmp_path / "wrong.npz", **(values | {"fc_6.w_0": values["fc_6.w_0"] * 2}))
    result = compare(model, load(folder, params=str(tmp_path / "wrong.npz")), bisect=tmp_path / "part")
    assert result.first is not None and result.first.value.place.block == 1
    assert result.part is not None and result.part.operators < result.part.of
    assert "while" in [op.type for op in load(tmp_path / "part/a").program.global_block().ops]
    assert reproduces(result)


def test_a_difference_that_does_not_leave_its_loop_is_said_to(tmp_path: Path) -> None:
    folder = corpus("models") / "seq2seq_train/separate"
    model = load(folder)
    values = {name: model.files.parameters[name].numpy() for name in model.files.parameters}
    np.savez(tmp_path / "wrong.npz", **(values | {"fc_7.b_0": values["fc_7.b_0"] + 1}))  # a softmax follows
    result = compare(model, load(folder, params=str(tmp_path / "wrong.npz")), bisect=tmp_path / "part")
    assert [each.name for each in result.differing] == ["fc_7.tmp_1"] and result.part is None
    assert any("do not leave their loop" in note for note in result.notes) and not (tmp_path / "part").exists()


def test_the_statistics_of_a_normalization_are_parameters(tmp_path: Path) -> None:
    values = {name: load(DIGITS).files.parameters[name].numpy() for name in load(DIGITS).files.parameters}
    np.savez(tmp_path / "wrong.npz", **(values | {"batch_norm_0.w_2": values["batch_norm_0.w_2"] * 2}))
    result = compare(load(DIGITS), load(DIGITS, params=str(tmp_path / "wrong.npz")), DIGITS_FEED)
    assert result.first is not None and result.first.value.name == "batch_norm_0.tmp_2"
    assert [each.name for each in result.first.parameters] == ["batch_norm_0.w_2"]


def test_nothing_is_written_if_nothing_differs(tmp_path: Path) -> None:
    assert compare(load(DIGITS), load(DIGITS), DIGITS_FEED, bisect=tmp_path / "part").part is None
    assert not (tmp_path / "part").exists()


def test_an_existing_folder_stays(wrong: Path, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/mine").write_text("mine")
    with pytest.raises(OutputExistsError):
        compare(load(DIGITS), load(wrong), DIGITS_FEED, bisect=tmp_path / "part")
    assert [path.name for path in (tmp_path / "part").iterdir()] == ["mine"]


# ---------------------------------------------------------------- refusals
def test_something_to_compare_with_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name what to compare with"):
        compare(load(DIGITS))
    with pytest.raises(UsageError, match="compared with one model"):
        compare(load(DIGITS), load(DIGITS), recorded=tmp_path)


def test_feeds_that_do_not_fit_b_are_refused(tmp_path: Path) -> None:
    b = write_model(tmp_path / "b", scaled(2.0))
    with pytest.raises(FeedError, match="B cannot take the feeds of A"):
        compare(load(linear_model(tmp_path / "a")), load(b))
    two = write_model(tmp_path / "two", linear_program(feeds=("x", "sum")), w=WEIGHT, b=BIAS)
    with pytest.raises(FeedError, match="cannot take the same feeds"):
        compare(load(DIGITS), load(two), DIGITS_FEED)
