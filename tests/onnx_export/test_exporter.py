"""The graph as a whole: names, sizes, data types, constants, and the list of all that keeps a program from being exported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import ProgramError
from fluidtool.ir import Program
from fluidtool.onnx_export.exporter import Exported, export
from fluidtool.onnx_export.messages import write_model
from fluidtool.onnx_export.registry import renderings
from fluidtool.ops.registry import find_op
from fluidtool.tensor import LoDTensor
from tests.onnx_export.support import OneOperator, needs_onnx, run_onnx

BATCH_NORM = {slot: 1 for slot in ("Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance")}
W = np.arange(12, dtype="float32").reshape(4, 3) / 10


def program(*ops: tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], **shapes: list[int]) -> Program:
    """Operators on variables; those of `shapes` are declared, the others are not."""
    made = Program()
    block = made.global_block()
    for name, shape in shapes.items():
        block.create_var(name=name, shape=shape, dtype="float32", persistable=name == "w")
    for type, inputs, outputs, attrs in ops:
        for name in (name for names in outputs.values() for name in names):
            if name not in block.vars:
                block.create_var(name=name)
        block.append_op(type=type, inputs=inputs, outputs=outputs, attrs=attrs)
    return made


def linear(name: str = "x") -> Program:
    return program(
        ("mul", {"X": [name], "Y": ["w"]}, {"Out": ["h"]}, {}),
        ("relu", {"X": ["h"]}, {"Out": ["h"]}, {}),
        ("scale", {"X": ["h"]}, {"Out": ["y"]}, {"scale": 2.0}),
        **{name: [-1, 4], "w": [4, 3]},
    )


def exported(made: Program, feeds: list[str], fetches: list[str], **options: Any) -> Exported:
    return export(made, feeds, fetches, {"w": LoDTensor(W)}, **options)


def model_of(found: Exported) -> Any:
    import onnx

    return onnx.load_from_string(write_model(found.graph, name="main").message)


# ---------------------------------------------------------------- names and sizes
@needs_onnx
def test_inputs_outputs_and_parameters_keep_their_names() -> None:
    graph = model_of(exported(linear(), ["x"], ["y", "h"])).graph
    assert [each.name for each in graph.input] == ["x"]
    assert [each.name for each in graph.output] == ["y", "h"]
    assert "w" in {each.name for each in graph.initializer}


@needs_onnx
def test_a_name_that_is_written_again_is_fetched_as_it_ends() -> None:
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    (found,) = run_onnx(exported(linear(), ["x"], ["h"]), {"x": x}, ["h"])
    np.testing.assert_allclose(found, np.maximum(x @ W, 0), rtol=1e-6)


@needs_onnx
def test_the_batch_is_a_named_dimension() -> None:
    (given,) = model_of(exported(linear(), ["x"], ["y"])).graph.input
    first, second = given.type.tensor_type.shape.dim
    assert (first.dim_param, second.dim_value) == ("batch", 4)


@needs_onnx
def test_batches_of_several_inputs_have_names_of_their_own() -> None:
    """A name shared by sizes that differ would let a runtime reuse memory."""
    made = program(("elementwise_add", {"X": ["a"], "Y": ["b"]}, {"Out": ["y"]}, {}), a=[-1, 4], b=[-1, 4])
    names = [
        each.type.tensor_type.shape.dim[0].dim_param for each in model_of(exported(made, ["a", "b"], ["y"])).graph.input
    ]
    assert names == ["a.batch", "b.batch"]


@needs_onnx
def test_what_the_outputs_do_not_need_is_left_out() -> None:
    made = linear()
    made.global_block().create_var(name="unused")
    made.global_block().append_op(
        type="beam_search_decode",
        inputs={"Ids": ["y"], "Scores": ["y"]},
        outputs={"SentenceIds": ["unused"], "SentenceScores": ["unused"]},
        attrs={"beam_size": 1, "end_id": 0},
    )
    assert exported(made, ["x"], ["y"]).blockers == ()


@needs_onnx
def test_an_input_that_is_fetched() -> None:
    x = np.ones((2, 4), "float32")
    found = run_onnx(exported(linear(), ["x"], ["x", "y"]), {"x": x}, ["x", "y"])
    assert np.array_equal(found[0], x)


@needs_onnx
def test_a_parameter_that_is_fetched() -> None:
    found = run_onnx(exported(linear(), ["x"], ["w", "y"]), {"x": np.ones((2, 4), "float32")}, ["w", "y"])
    assert np.array_equal(found[0], W)


@needs_onnx
@pytest.mark.parametrize(
    "name", ["x/y:0", "<script>alert(1)</script>", "a b\n", "\x1b[31m", "\u202ex", "n" * 10_000, "h.MatMul"]
)
def test_names_are_written_as_they_are(name: str) -> None:
    x = np.ones((2, 4), "float32")
    found = exported(linear(name), [name], ["y"])
    assert [each.name for each in model_of(found).graph.input] == [name]
    np.testing.assert_allclose(run_onnx(found, {name: x}, ["y"])[0], np.maximum(x @ W, 0) * 2, rtol=1e-6)


@needs_onnx
def test_names_beside_those_of_the_export() -> None:
    """A variable may have the name that a new value would get."""
    made = program(
        ("relu", {"X": ["x"]}, {"Out": ["y.Relu"]}, {}),
        ("gelu", {"X": ["y.Relu"]}, {"Out": ["y"]}, {}),
        ("scale", {"X": ["y"]}, {"Out": ["y.constant"]}, {"scale": 3.0}),
        x=[2],
    )
    x = np.array([-1.0, 1.0], "float32")
    one, two = run_onnx(exported(made, ["x"], ["y", "y.constant"]), {"x": x}, ["y", "y.constant"])
    np.testing.assert_allclose(two, one * 3, rtol=1e-6)


# ---------------------------------------------------------------- data types
@needs_onnx
@pytest.mark.parametrize(("version", "shape"), [(1_008_005, (1,)), (2_006_002, ())])
def test_a_single_number_has_the_dimensions_of_its_version(version: int, shape: tuple[int, ...]) -> None:
    one = OneOperator("reduce_sum", {"X": np.ones((2, 3), "float32")}, {"reduce_all": True}, version=version)
    (found,) = run_onnx(one.export(), one.feed, one.fetches)
    assert found.shape == shape == one.own()[0].shape


@needs_onnx
def test_indices_are_int64() -> None:
    one = OneOperator("top_k_v2", {"X": np.ones((2, 3), "float32")}, {"k": 1}, {"Out": 1, "Indices": 1})
    assert [each.dtype.name for each in run_onnx(one.export(), one.feed, one.fetches)] == ["float32", "int64"]


def test_operators_on_constants_are_computed_once() -> None:
    made = program(
        ("scale", {"X": ["w"]}, {"Out": ["twice"]}, {"scale": 2.0}),
        ("mul", {"X": ["x"], "Y": ["twice"]}, {"Out": ["y"]}, {}),
        x=[-1, 4], w=[4, 3],
    )  # fmt: skip
    assert [node.kind for node in exported(made, ["x"], ["y"]).graph.nodes] == ["MatMul"]


# ---------------------------------------------------------------- versions of ONNX
@pytest.mark.parametrize("opset", [12, 24, 0])
def test_other_opsets_are_refused(opset: int) -> None:
    with pytest.raises(ProgramError, match=f"the opset must be 13 to 23, found {opset}"):
        exported(linear(), ["x"], ["y"], opset=opset)


@needs_onnx
@pytest.mark.parametrize("opset", range(13, 24))
def test_the_model_is_of_the_version_asked_for(opset: int) -> None:
    model = model_of(exported(linear(), ["x"], ["y"], opset=opset))
    assert [(each.domain, each.version) for each in model.opset_import] == [("", opset)]


def test_what_a_later_opset_has_is_a_blocker_before() -> None:
    one = OneOperator(
        "grid_sampler", {"X": np.ones((1, 1, 2, 2), "f4"), "Grid": np.ones((1, 2, 2, 2), "f4")}, {"mode": "bicubic"}
    )
    (blocker,) = one.export(13).blockers
    assert blocker.reason == "the mode bicubic needs opset 16"
    assert one.export(16).blockers == ()


# ---------------------------------------------------------------- blockers
def test_every_blocker_is_listed_with_its_place() -> None:
    made = program(
        (
            "sampling_id",
            {"X": ["x"]},
            {"Out": ["a"]},
            {},
        ),
        ("relu", {"X": ["a"]}, {"Out": ["b"]}, {}),
        ("relu", {"X": ["b"]}, {"Out": ["c"]}, {}),
        ("relu", {"X": ["x"]}, {"Out": ["d"]}, {}),
        ("elementwise_add", {"X": ["d"], "Y": ["c"]}, {"Out": ["y"]}, {"axis": 0}),
        x=[2, 3],
    )
    made.global_block().ops[2]._type = "fused_unknown"
    found = exported(made, ["x"], ["y"]).blockers
    assert [(each.block, each.operator, each.type, each.output) for each in found] == [
        (0, 0, "sampling_id", "a"),
        (0, 2, "fused_unknown", "c"),
    ]
    assert found[0].reason == "ONNX export has no rendering of this operator"
    assert "unknown to this version of fluidtool" in found[1].reason


def test_training_is_a_blocker() -> None:
    inputs = {"X": np.ones((2, 3, 4, 4), "f4")} | {n: np.ones(3, "f4") for n in ("Scale", "Bias", "Mean", "Variance")}
    (blocker,) = OneOperator("batch_norm", inputs, {"is_test": False}, BATCH_NORM).export().blockers
    assert "statistics of the batch" in blocker.reason


def test_attributes_that_do_not_fit_are_blockers() -> None:
    made = program(("transpose", {"X": ["x"]}, {"Out": ["y"]}, {"axis": [0, 1]}), x=[2, 3])
    made.global_block().ops[0]._attrs["axis"] = [0, 5]
    (blocker,) = exported(made, ["x"], ["y"]).blockers
    assert blocker.type == "transpose"


def test_the_lengths_of_sequences_inside_of_one_are_an_input() -> None:
    made = program(("relu", {"X": ["x"]}, {"Out": ["y"]}, {}), x=[-1, 3])
    made.global_block().vars["x"].lod_level = 2
    found = exported(made, ["x"], ["y"])
    assert [value.name for value in found.graph.inputs] == ["x", "x.lengths"]
    assert found.single_sequence and found.lengths == {"x": ["x.lengths"]}


def test_an_output_that_is_not_computed_is_a_blocker() -> None:
    made = linear()
    made.global_block().create_var(name="nowhere")
    (blocker,) = exported(made, ["x"], ["nowhere"]).blockers
    assert (blocker.type, blocker.reason) == ("fetch", "nowhere has no value at this point")


@pytest.mark.parametrize("name", ["missing", ""])
def test_names_that_the_program_lacks_are_refused(name: str) -> None:
    with pytest.raises(ProgramError, match=f"no variable '{name}'"):
        exported(linear(), ["x"], [name])


# ---------------------------------------------------------------- large constants
@needs_onnx
def test_large_constants_go_to_a_second_file() -> None:
    made = program(("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["y"]}, {}), x=[-1, 64], w=[64, 8])
    weights = np.random.default_rng(0).random((64, 8)).astype("float32")
    found = export(made, ["x"], ["y"], {"w": LoDTensor(weights)})
    written = write_model(found.graph, name="main", external="m.onnx.data")
    assert b"".join(bytes(part) for part in written.external_parts()) == weights.tobytes()
    assert len(written.message) < 1000 and written.external["w"][0] == 0


@needs_onnx
def test_the_same_program_gives_the_same_bytes() -> None:
    one, two = (write_model(exported(linear(), ["x"], ["y"]).graph, name="main").message for _ in range(2))
    assert one == two


# ---------------------------------------------------------------- the registry
def test_every_rendering_is_of_an_operator_that_is_known() -> None:
    assert [type for type in renderings() if find_op(type) is None] == []


def test_nothing_of_onnx_comes_in_before_something_is_written() -> None:
    import subprocess
    import sys

    from tests.support.checkout import child_environment

    code = (
        "import sys; from fluidtool.onnx_export.registry import renderings; renderings(); print('onnx' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert done.stdout == "False\n"


def test_a_fixed_number_of_rows_beside_one_sequence_is_a_blocker() -> None:
    made = program(
        ("relu", {"X": ["x"]}, {"Out": ["y"]}, {}),
        ("relu", {"X": ["state"]}, {"Out": ["z"]}, {}),
        x=[-1, 3],
        state=[2, 3],
    )
    made.global_block().vars["x"].lod_level = 1
    (blocker,) = export(made, ["x", "state"], ["y", "z"], {}).blockers
    assert (blocker.type, blocker.output) == ("feed", "state")
    assert blocker.reason.startswith("it has 2 rows in every run")
    assert export(made, ["x", "state"], ["y", "z"], {}, several=True).blockers == ()
