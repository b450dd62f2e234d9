"""The verifier: each finding where it belongs, and none where a program that Paddle saves is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.io.layout import open_model
from fluidtool.ir import Program
from fluidtool.passes.findings import Finding
from fluidtool.passes.verify import verify, verify_model
from fluidtool.proto.enums import AttrType, VarType
from tests.cli.support import BIAS, SAMPLES, WEIGHT, combined_model, linear_model, linear_program, write_model


def codes(program: Program) -> list[str]:
    return [finding.code for finding in verify(program)]


def only(program: Program) -> Finding:
    """The one finding of a program."""
    found = verify(program)
    assert len(found) == 1, found
    return found[0]


# ---------------------------------------------------------------- nothing to find
@pytest.mark.parametrize("in_place", [False, True])
def test_a_right_program_has_no_findings(in_place: bool) -> None:
    assert verify(linear_program(in_place=in_place)) == []


@pytest.mark.parametrize("sample", ["digits", "topics", "digits_v2"])
def test_the_samples_have_no_findings(sample: str) -> None:
    assert verify_model(open_model(SAMPLES / sample)) == []


def test_a_program_without_feeds_may_read_what_nobody_writes() -> None:
    program = linear_program()
    block = program.global_block()
    block.ops = block.ops[1:-1]
    assert verify(program) == []


def test_a_program_without_feeds_may_write_over_its_input() -> None:
    program = linear_program()
    block = program.global_block()
    block.ops = block.ops[1:-1]
    block.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["x"]}, attrs={"scale": 2.0})
    assert verify(program) == []


# ---------------------------------------------------------------- data flow
def test_reading_before_writing() -> None:
    program = linear_program()
    ops = program.global_block().ops
    ops[1], ops[2] = ops[2], ops[1]
    finding = only(program)
    assert (finding.code, finding.operator, finding.type, finding.variable) == (
        "FC101",
        1,
        "elementwise_add",
        "product",
    )
    assert finding.message == "reads product before any operator writes it; it is neither fed nor a parameter"


def test_reading_what_nothing_writes() -> None:
    program = linear_program()
    del program.global_block().ops[1]
    finding = only(program)
    assert finding.code == "FC101" and "which no operator writes" in finding.message


def test_one_finding_for_each_name() -> None:
    program = linear_program()
    block = program.global_block()
    del block.ops[1]
    block.insert_op(2, type="scale", inputs={"X": ["product"]}, outputs={"Out": ["product"]}, attrs={"scale": 1.0})
    assert codes(program) == ["FC101"]


def test_an_undeclared_variable() -> None:
    program = linear_program()
    del program.global_block().vars["sum"]
    assert only(program).code == "FC102"


def test_a_queue_that_python_keeps_need_not_be_declared() -> None:
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        reader = fluid.layers.py_reader(2, [[-1, 3]], ["float32"])
        fluid.layers.read_file(reader)
    assert "FC102" not in {finding.code for made in (program, startup) for finding in verify(made)}
    (creation,) = (op for op in startup.global_block().ops if op.type == "create_py_reader")
    creation._rename_output(creation.output_arg_names[0], "nosuch")
    assert "FC102" in {finding.code for finding in verify(startup)}


def test_the_empty_name_is_no_variable() -> None:
    program = linear_program()
    op = program.global_block().ops[3]
    op.set_output("Extra", ["@EMPTY@", ""])
    assert codes(program) == []


def test_an_operator_for_nothing() -> None:
    program = linear_program()
    block = program.global_block()
    block.create_var(name="idle", shape=[-1, 3], dtype="float32")
    block.insert_op(5, type="relu", inputs={"X": ["sum"]}, outputs={"Out": ["idle"]})
    finding = only(program)
    assert (finding.code, finding.operator, finding.variable) == ("FC103", 5, "idle")


def test_what_persists_is_not_for_nothing() -> None:
    program = linear_program()
    block = program.global_block()
    block.create_var(name="kept", shape=[-1, 3], dtype="float32", persistable=True)
    block.insert_op(5, type="relu", inputs={"X": ["sum"]}, outputs={"Out": ["kept"]})
    assert codes(program) == []


def loop_program(*, initialized: bool = True) -> Program:
    """i counts from 0 to a limit in a while loop; the sum of the rounds is fetched."""
    program = Program()
    block = program.global_block()
    for name, dtype in (("i", "int64"), ("limit", "int64"), ("total", "float32"), ("go", "bool")):
        block.create_var(name=name, shape=[1], dtype=dtype)
    block.create_var(name="scopes", type=VarType.STEP_SCOPES)
    constants = [("i", 0.0, VarType.INT64), ("limit", 3.0, VarType.INT64), ("total", 0.0, VarType.FP32)]
    for name, value, dtype in constants:
        if name == "total" and not initialized:
            continue
        attrs = {"shape": [1], "value": value, "dtype": int(dtype), "force_cpu": False}
        block.append_op(type="fill_constant", outputs={"Out": [name]}, attrs=attrs)
    compare = {"axis": -1, "force_cpu": False}
    block.append_op(type="less_than", inputs={"X": ["i"], "Y": ["limit"]}, outputs={"Out": ["go"]}, attrs=compare)
    inner = program.create_block(0)
    inner.create_var(name="step", shape=[1], dtype="float32")
    attrs = {"in_dtype": int(VarType.INT64), "out_dtype": int(VarType.FP32)}
    inner.append_op(type="cast", inputs={"X": ["i"]}, outputs={"Out": ["step"]}, attrs=attrs)
    inner.append_op(
        type="elementwise_add", inputs={"X": ["total"], "Y": ["step"]}, outputs={"Out": ["total"]}, attrs={"axis": -1}
    )
    inner.append_op(type="increment", inputs={"X": ["i"]}, outputs={"Out": ["i"]}, attrs={"step": 1.0})
    inner.append_op(type="less_than", inputs={"X": ["i"], "Y": ["limit"]}, outputs={"Out": ["go"]}, attrs=compare)
    program.rollback()
    block.append_op(
        type="while",
        inputs={"X": ["i", "limit", "total"], "Condition": ["go"]},
        outputs={"Out": ["i", "total", "go"], "StepScopes": ["scopes"]},
    )
    block.ops[-1].set_attr("sub_block", inner, AttrType.BLOCK)
    block.ops[-1].set_attr("is_test", True, AttrType.BOOLEAN)
    from fluidtool.io.inference import add_feed_fetch

    block.create_var(name="unused", shape=[1], dtype="float32")
    add_feed_fetch(program, ["unused"], ["total"])
    return program


def test_a_loop_reads_what_its_last_round_wrote() -> None:
    assert verify(loop_program()) == []


def test_a_loop_whose_first_round_reads_nothing() -> None:
    found = verify(loop_program(initialized=False))
    assert {(finding.code, finding.variable) for finding in found} == {("FC101", "total")}


@pytest.mark.parametrize("writes", [True, False])
def test_a_loop_may_begin_with_an_empty_array_that_it_fills(writes: bool) -> None:
    program = loop_program()
    block = program.global_block()
    block.create_var(name="rows", shape=[1], dtype="float32", type=VarType.LOD_TENSOR_ARRAY)
    program.block(1).append_op(type="write_to_array", inputs={"X": ["step"], "I": ["i"]}, outputs={"Out": ["rows"]})
    loop = next(op for op in block.ops if op.type == "while")
    loop.set_input("X", [*loop.input("X"), "rows"])
    if writes:
        loop.set_output("Out", [*loop.output("Out"), "rows"])
    assert codes(program) == ([] if writes else ["FC101"])


def test_a_variable_of_a_round_is_new_in_each_round() -> None:
    program = loop_program()
    inner = program.block(1)
    inner.ops[0], inner.ops[1] = inner.ops[1], inner.ops[0]
    finding = only(program)
    assert (finding.code, finding.block, finding.variable) == ("FC101", 1, "step")


@pytest.mark.parametrize(("columns", "positions"), [((0, 0), [0, 1]), ((0, 2), [0]), ((1, 0), [])])
def test_columns_of_feeds(columns: tuple[int, int], positions: list[int]) -> None:
    program = linear_program(feeds=["x", "b"])
    for op, column in zip(program.global_block().ops, columns, strict=False):
        op.set_attr("col", column)
    found = verify(program)
    assert {finding.code for finding in found} <= {"FC104"}
    if columns == (0, 2):
        assert [finding.operator for finding in found] == [1]
    else:
        assert [finding.operator for finding in found] == positions


# ---------------------------------------------------------------- shapes
def test_shapes_that_cannot_work() -> None:
    program = linear_program()
    program.global_block().var("w").shape = [5, 3]
    found = verify(program)
    assert found[0].code == "FC201" and found[0].type == "mul"


def test_a_declared_shape_that_cannot_be() -> None:
    program = linear_program()
    program.global_block().var("product").shape = [-1, 7]
    found = verify(program)
    assert (found[0].code, found[0].variable) == ("FC202", "product")
    assert found[0].message == "computes product with the shape (-1, 3), but it is declared (-1, 7)"


def test_a_declared_data_type_that_cannot_be() -> None:
    program = linear_program()
    program.global_block().var("probability").dtype = "float64"
    assert only(program).code == "FC203"


@pytest.mark.parametrize(
    ("op_type", "source", "target", "attrs"),
    [
        ("fill_zeros_like", "X", "Out", {}),
        ("ctc_align", "Input", "Output", {"blank": 0}),
        ("flip", "X", "Out", {"axis": [0]}),  # which Paddle 1.8.5 calls dims
    ],
)
def test_what_paddle_2_declares_is_right(op_type: str, source: str, target: str, attrs: dict[str, Any]) -> None:
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[4, 5], dtype="int64")
    block.create_var(name="y", shape=[4, 5], dtype="float32")  # as Paddle has it where nobody declares a data type
    block.append_op(type=op_type, inputs={source: ["x"]}, outputs={target: ["y"]}, attrs=attrs)
    assert codes(program) == []


@pytest.mark.parametrize(
    ("op_type", "outputs", "attrs"),
    [
        ("slogdeterminant", {"Out": ([4, 4], "float32")}, {}),
        ("lu", {"Out": ([4, 4], "float32"), "Pivots": ([4], "int32"), "Infos": ([0], "int32")}, {}),
    ],
)
def test_shapes_that_paddle_2_declares_wrongly_are_no_findings(
    op_type: str, outputs: dict[str, Any], attrs: dict[str, Any]
) -> None:
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[4, 4], dtype="float32")
    for slot, (shape, data_type) in outputs.items():
        block.create_var(name=slot, shape=shape, dtype=data_type)
    slot = "Input" if op_type == "slogdeterminant" else "X"
    block.append_op(type=op_type, inputs={slot: ["x"]}, outputs={slot: [slot] for slot in outputs}, attrs=attrs)
    assert codes(program) == []


@pytest.mark.parametrize(("version", "found"), [(2_006_002, []), (1_008_005, ["FC203"])])
def test_sums_of_truths_are_whole_numbers_since_paddle_2_3(version: int, found: list[str]) -> None:
    program = Program()
    program.version = version
    block = program.global_block()
    block.create_var(name="x", shape=[4], dtype="bool")
    block.create_var(name="sum", shape=[1], dtype="int64")
    block.append_op(type="reduce_sum", inputs={"X": ["x"]}, outputs={"Out": ["sum"]}, attrs={"reduce_all": True})
    assert codes(program) == found


def test_the_masks_of_recurrent_layers_may_be_declared_in_any_shape() -> None:
    program = Program()
    block = program.global_block()
    shapes = {"x": [5, 2, 4], "h": [1, 2, 8], "out": [5, 2, 8], "state": [1, 2, 8], "mask": [3, 3, 3]}
    for name, shape in shapes.items():
        block.create_var(name=name, shape=shape, dtype="float32")
    inputs = {"Input": ["x"], "PreState": ["h"], "WeightList": []}
    outputs = {"Out": ["out"], "State": ["state"], "DropoutState": ["mask"]}
    block.append_op(type="rnn", inputs=inputs, outputs=outputs, attrs={"mode": "GRU", "hidden_size": 8})
    assert codes(program) == []
    block.var("out").shape = [5, 2, 7]
    assert codes(program) == ["FC202"]


@pytest.mark.parametrize("shape", [[-1, -1], [5, 3], [], [0, 0]])
def test_sizes_that_may_be(shape: list[int]) -> None:
    program = linear_program()
    program.global_block().var("probability").shape = shape
    assert codes(program) == []


@pytest.mark.parametrize(
    ("shape", "found"), [([-1, 3, 1], []), ([-1, 1, 3], []), ([-1, 2, 2], ["FC202"]), ([-1, -1, 3], ["FC202"])]
)
def test_a_reshape_that_was_pruned_may_have_changed_a_declaration(shape: list[int], found: list[str]) -> None:
    program = linear_program()
    program.global_block().var("probability").shape = shape
    assert codes(program) == found


def test_the_declaration_of_a_name_with_several_values_says_nothing() -> None:
    program = linear_program()
    block = program.global_block()
    for position, (source, target) in enumerate([("x", "again"), ("sum", "again")]):
        if not block.has_var(target):
            block.create_var(name=target, shape=[-1, 99], dtype="float32")
        block.insert_op(4 + position, type="relu", inputs={"X": [source]}, outputs={"Out": [target]})
    block.ops[-2].set_input("X", ["again"])
    assert "FC202" not in codes(program)


# ---------------------------------------------------------------- operators
def test_an_unknown_operator() -> None:
    program = linear_program()
    program.global_block().ops[3].type = "strange"
    assert (only(program).code, only(program).type) == ("FC401", "strange")


def test_a_missing_attribute() -> None:
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[1], dtype="int64")
    block.create_var(name="y", shape=[1], dtype="float32")
    block.append_op(type="cast", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs={"in_dtype": int(VarType.INT64)})
    assert [(finding.code, finding.type) for finding in verify(program) if finding.code == "FC402"] == [
        ("FC402", "cast")
    ]


def test_a_missing_input() -> None:
    program = linear_program()
    program.global_block().ops[2].set_input("Y", [])
    assert [finding.code for finding in verify(program)] == ["FC403"]


# ---------------------------------------------------------------- parameters
def parameters_at_fault(folder: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.variable) for finding in verify_model(open_model(folder, need_parameters=False))]


def test_missing_parameters(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "m")
    (folder / "b").unlink()
    assert parameters_at_fault(folder) == [("FC301", "b")]
    (folder / "w").unlink()
    assert parameters_at_fault(folder) == [("FC301", "")]  # all of them: one finding


def test_every_parameter_is_looked_at(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", linear_program(), w=WEIGHT.T, b=BIAS.astype("float64"))
    assert parameters_at_fault(folder) == [("FC303", "b"), ("FC302", "w")]


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data + b"123", lambda data: b"\1" + data[1:]])
@pytest.mark.parametrize("make", [linear_model, combined_model])
def test_damaged_files(tmp_path: Path, damage: Callable[[bytes], bytes], make: Callable[[Path], Path]) -> None:
    folder = make(tmp_path / "m")
    path = folder / ("w" if make is linear_model else "__params__")
    path.write_bytes(damage(path.read_bytes()))
    assert [code for code, _ in parameters_at_fault(folder)] == ["FC304"]


def test_a_combined_file_that_ends_early(tmp_path: Path) -> None:
    folder = combined_model(tmp_path / "m")
    data = (folder / "__params__").read_bytes()
    (folder / "__params__").write_bytes(data[: len(data) - 48 - 30])
    codes_found = [code for code, _ in parameters_at_fault(folder)]
    assert codes_found and set(codes_found) <= {"FC301", "FC304"}


def test_what_is_stored_for_an_xshape_tells_nothing(tmp_path: Path) -> None:
    program = linear_program()
    program.global_block().create_var(name="x_shape", shape=[0, 2, 6], dtype="float32", persistable=True)
    folder = write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS, x_shape=np.zeros((2, 6)))
    assert parameters_at_fault(folder) == []


def counting_program() -> Program:
    """A program whose auc counts in two variables of [1, 8], as Paddle declares them without a window."""
    program = Program()
    block = program.global_block()
    for name, dtype in (("p", "float32"), ("label", "int64")):
        block.create_var(name=name, shape=[-1, 2 if name == "p" else 1], dtype=dtype)
    for name in ("positive", "negative"):
        block.create_var(name=name, shape=[1, 8], dtype="int64", persistable=True)
    block.create_var(name="area", shape=[1], dtype="float64")
    block.append_op(
        type="auc",
        inputs={"Predict": ["p"], "Label": ["label"], "StatPos": ["positive"], "StatNeg": ["negative"]},
        outputs={"AUC": ["area"], "StatPosOut": ["positive"], "StatNegOut": ["negative"]},
        attrs={"num_thresholds": 7, "slide_steps": 0},
    )
    return program


def test_counts_of_an_operator_may_outgrow_their_declaration(tmp_path: Path) -> None:
    counts = np.zeros(9, "int64")
    folder = write_model(tmp_path / "m", counting_program(), positive=counts, negative=counts)
    assert parameters_at_fault(folder) == []


def test_whole_numbers_that_no_operator_counts_in_have_the_declared_shape(tmp_path: Path) -> None:
    program = counting_program()
    program.global_block().create_var(name="table", shape=[1, 8], dtype="int64", persistable=True)
    counts = np.zeros((1, 8), "int64")
    folder = write_model(tmp_path / "m", program, positive=counts, negative=counts, table=np.zeros(9, "int64"))
    assert parameters_at_fault(folder) == [("FC302", "table")]


def startup_program() -> Program:
    """A program that makes w, and reads the persistable b."""
    program = Program()
    block = program.global_block()
    for name in ("w", "b", "c"):
        block.create_var(name=name, shape=[2], dtype="float32", persistable=True)
    block.append_op(type="fill_constant", outputs={"Out": ["w"]}, attrs={"shape": [2], "dtype": int(VarType.FP32)})
    block.append_op(type="scale", inputs={"X": ["b"]}, outputs={"Out": ["c"]}, attrs={"scale": 2.0})
    return program


def test_what_a_startup_program_makes_needs_no_file(tmp_path: Path) -> None:
    path = tmp_path / "startup.pb"
    path.write_bytes(startup_program().serialize_to_string())
    assert parameters_at_fault(path) == [("FC301", "b")]


def test_what_an_inference_program_makes_needs_a_file_if_it_is_persistable(tmp_path: Path) -> None:
    program = startup_program()
    fluid.io.append_fetch_ops(program, ["c"])
    path = tmp_path / "startup.pb"
    path.write_bytes(program.serialize_to_string())
    assert parameters_at_fault(path) == [("FC301", "")]


def test_parameters_as_half_precision_are_right(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", linear_program(), w=WEIGHT.astype(np.float16), b=BIAS)
    assert parameters_at_fault(folder) == []
