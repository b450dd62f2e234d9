"""What two programs do not have in common: nothing for equal ones, the same from both sides, and no more than differs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluidtool.ir import Program
from fluidtool.ir.alignment import ALIKE, SAME, align
from fluidtool.ir.difference import BlockDifference, Change, ProgramDifference, difference
from fluidtool.proto.enums import AttrType
from tests.cli.support import linear_program

KEYS = st.lists(st.tuples(st.sampled_from("ab"), st.tuples(st.sampled_from("xyz"))), max_size=8)


# ---------------------------------------------------------------- alignment
@settings(deadline=None)
@given(KEYS, KEYS)
def test_an_alignment_keeps_the_order_and_weighs_most(left: list, right: list) -> None:
    pairs = align(left, right)
    assert [i for i, _ in pairs if i is not None] == list(range(len(left)))
    assert [j for _, j in pairs if j is not None] == list(range(len(right)))
    together = [(left[i], right[j]) for i, j in pairs if i is not None and j is not None]
    assert all(a[0] == b[0] for a, b in together)

    @cache
    def most(i: int, j: int) -> int:
        if i == len(left) or j == len(right):
            return 0
        weight = SAME if left[i] == right[j] else ALIKE if left[i][0] == right[j][0] else 0
        return max(most(i + 1, j), most(i, j + 1), most(i + 1, j + 1) + weight if weight else 0)

    assert sum(SAME if a == b else ALIKE for a, b in together) == most(0, 0)


@settings(deadline=None)
@given(KEYS, KEYS)
def test_an_alignment_is_the_same_from_both_sides(left: list, right: list) -> None:
    assert align(left, right) == [(i, j) for j, i in align(right, left)]


def test_what_was_inserted_shifts_nothing() -> None:
    left = [("conv", ("a",)), ("relu", ("b",)), ("relu", ("c",))]
    right = [left[0], ("scale", ("s",)), *left[1:]]
    assert align(left, right) == [(0, 0), (None, 1), (1, 2), (2, 3)]


# ---------------------------------------------------------------- programs
def changed(change: Callable[[Program], object]) -> ProgramDifference:
    """The difference between the linear program and one that was changed."""
    other = linear_program()
    change(other)
    return difference(linear_program(), other)


def exchanged(found: ProgramDifference) -> ProgramDifference:
    """The same with left and right exchanged."""

    def swap(item: object) -> object:
        if isinstance(item, tuple):
            return tuple(swap(part) for part in item)
        if not hasattr(item, "__dataclass_fields__"):
            return item
        fields = {name: swap(getattr(item, name)) for name in item.__dataclass_fields__}
        for name in [name for name in fields if name.startswith("left")]:
            twin = name.replace("left", "right")
            fields[name], fields[twin] = fields[twin], fields[name]
        return type(item)(**fields)

    return swap(found)  # type: ignore[return-value]


def only_block(found: ProgramDifference) -> BlockDifference:
    assert found.changes == ()
    (block,) = found.blocks
    return block


def test_equal_programs_do_not_differ() -> None:
    found = difference(linear_program(), linear_program())
    assert found.equal and found == ProgramDifference()


def test_an_attribute_is_shown_with_both_values() -> None:
    block = only_block(changed(lambda program: program.global_block().ops[4].set_attr("axis", 1)))
    (op,) = block.operators
    assert (op.type, op.left, op.right) == ("softmax", 4, 4)
    assert op.changes == (Change("axis", -1, 1),)


def test_an_attribute_that_one_side_lacks_is_none_there() -> None:
    block = only_block(changed(lambda program: program.global_block().ops[4].remove_attr("axis")))
    assert block.operators[0].changes == (Change("axis", -1, None),)


def test_an_attribute_of_another_type_differs() -> None:
    block = only_block(changed(lambda program: program.global_block().ops[4].set_attr("axis", -1, AttrType.LONG)))
    assert block.operators[0].changes == (Change("axis", "-1 (INT)", "-1 (LONG)"),)


@pytest.mark.parametrize(("value", "equal"), [(0.1, True), (0.10000000149011612, True), (0.2, False)])
def test_floats_are_compared_as_files_keep_them(value: float, equal: bool) -> None:
    left, right = linear_program(), linear_program()
    left.global_block().ops[3].set_attr("threshold", 0.1)
    right.global_block().ops[3].set_attr("threshold", value)
    assert difference(left, right).equal is equal


def test_not_a_number_equals_itself() -> None:
    left, right = linear_program(), linear_program()
    for program in (left, right):
        program.global_block().ops[3].set_attr("threshold", float("nan"))
    assert difference(left, right).equal


def test_call_stacks_differ_only_when_asked_for() -> None:
    left, right = linear_program(), linear_program()
    right.global_block().ops[3].set_attr("op_callstack", ["File a"])
    assert difference(left, right).equal
    (op,) = only_block(difference(left, right, callstack=True)).operators
    assert op.changes == (Change("op_callstack", None, ["File a"]),)


def test_an_operator_that_went_is_all_that_differs() -> None:
    def without_relu(program: Program) -> None:
        block = program.global_block()
        block.ops[4].set_input("X", ["sum"])
        del block.ops[3]

    relu, softmax = only_block(changed(without_relu)).operators
    assert (relu.type, relu.left, relu.right, relu.left_names) == ("relu", 3, None, ("positive",))
    assert (softmax.left, softmax.right) == (4, 3)
    assert softmax.changes == (Change("input X", ["positive"], ["sum"]),)


def test_a_renamed_output_is_one_operator_and_not_two() -> None:
    def renamed(program: Program) -> None:
        block = program.global_block()
        block.ops[3].set_output("Out", ["sum"])
        block.ops[4].set_input("X", ["sum"])

    relu, softmax = only_block(changed(renamed)).operators
    assert relu.changes == (Change("output Out", ["positive"], ["sum"]),)
    assert softmax.changes == (Change("input X", ["positive"], ["sum"]),)


@pytest.mark.parametrize(
    ("field", "value", "change"),
    [
        ("shape", [-1, 5], Change("shape", [-1, 3], [-1, 5])),
        ("dtype", "float64", Change("dtype", "float32", "float64")),
        ("lod_level", 2, Change("lod_level", 0, 2)),
        ("persistable", True, Change("persistable", False, True)),
        ("need_check_feed", True, Change("need_check_feed", False, True)),
    ],
)
def test_what_a_variable_declares(field: str, value: object, change: Change) -> None:
    block = only_block(changed(lambda program: setattr(program.global_block().var("sum"), field, value)))
    assert block.operators == ()
    assert [(var.name, var.changes) for var in block.variables] == [("sum", (change,))]


def test_a_variable_that_one_side_lacks() -> None:
    block = only_block(changed(lambda p: p.global_block().create_var(name="more", shape=[2], dtype="int64")))
    assert [(var.name, var.left, var.right) for var in block.variables] == [("more", "", "int64 (2,)")]


def test_the_version_is_a_field_of_the_program() -> None:
    found = changed(lambda program: setattr(program, "version", 2_006_002))
    assert found.changes == (Change("version", 1_008_005, 2_006_002),) and not found.blocks


def test_slots_without_variables_and_the_order_of_variables_say_nothing() -> None:
    def rearranged(program: Program) -> None:
        block = program.global_block()
        block.ops[3].set_input("Unused", [])
        block.vars = dict(reversed(block.vars.items()))

    assert changed(rearranged).equal


# ---------------------------------------------------------------- sub-blocks
def with_branches(*scales: float) -> Program:
    """A branch for each scale: `conditional_block` around a `scale`."""
    program = Program()
    block = program.global_block()
    for name in ("x", "y", "choice", "scope"):
        block.create_var(name=name, shape=[1], dtype="float32")
    for number, scale in enumerate(scales):
        inner = program.create_block(0)
        inner.append_op(type="scale", inputs={"X": ["x"]}, outputs={"Out": ["y"]}, attrs={"scale": scale})
        program.rollback()
        block.append_op(
            type="conditional_block",
            inputs={"Cond": ["choice"], "Input": ["x"]},
            outputs={"Out": [f"y{number}"], "Scope": ["scope"]},
            attrs={"sub_block": inner},
        )
    return program


def test_sub_blocks_are_compared_with_those_of_the_same_operator() -> None:
    found = difference(with_branches(1.0, 2.0), with_branches(1.0, 3.0))
    block = only_block(found)
    assert (block.left, block.right) == (2, 2)
    assert block.operators[0].changes == (Change("scale", 2.0, 3.0),)


def test_a_branch_more_leaves_the_others_the_same() -> None:
    left, right = with_branches(1.0, 2.0), with_branches(9.0, 1.0, 2.0)
    for number, op in enumerate(right.global_block().ops):
        op.set_output("Out", [f"y{number - 1}"])
    inserted, lacking = difference(left, right).blocks
    assert [(op.left, op.right) for op in inserted.operators] == [(None, 0)]
    assert (lacking.left, lacking.right) == (None, 1)


# ---------------------------------------------------------------- any two programs
@st.composite
def edited(draw: st.DrawFn) -> Program:
    """The linear program after a few edits."""
    program = with_branches(*draw(st.lists(st.sampled_from([1.0, 2.0]), max_size=2)))
    for op in linear_program().global_block().ops:
        program.global_block().append_op(type=op.type, inputs=op.inputs, outputs=op.outputs, attrs=op.all_attrs())
    block = program.global_block()
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(block.ops) - 1))
        match draw(st.sampled_from(["drop", "twice", "attribute", "output", "variable", "version"])):
            case "drop" if len(block.ops) > 1:
                del block.ops[position]
            case "twice":
                block.ops.insert(position, block.ops[draw(st.integers(0, len(block.ops) - 1))])
            case "attribute":
                block.ops[position].set_attr("op_device", draw(st.sampled_from(["", "gpu"])))
            case "output":
                block.ops[position].set_output("Out", [draw(st.sampled_from(["sum", "other"]))])
            case "variable":
                name = f"v{draw(st.integers(1, 2))}"
                block.vars.pop(name, None)
                block.create_var(name=name, shape=[draw(st.integers(1, 2))], dtype="float32")
            case _:
                program.version = draw(st.sampled_from([None, 0, 1_008_005]))
    return Program.parse_from_string(program.serialize_to_string())


@settings(max_examples=60, deadline=None)
@given(edited())
def test_a_program_does_not_differ_from_itself(program: Program) -> None:
    assert difference(program, program, callstack=True).equal
    assert difference(program, Program.parse_from_string(program.serialize_to_string()), callstack=True).equal


@settings(max_examples=100, deadline=None)
@given(edited(), edited())
def test_a_difference_is_the_same_from_both_sides(left: Program, right: Program) -> None:
    mine, other = exchanged(difference(left, right)), difference(right, left)
    assert mine.changes == other.changes
    assert sorted(mine.blocks, key=repr) == sorted(other.blocks, key=repr)


@settings(max_examples=100, deadline=None)
@given(edited(), edited())
def test_only_equal_programs_are_without_difference(left: Program, right: Program) -> None:
    equal = difference(left, right).equal
    for program in (left, right):
        block = program.global_block()
        block.vars = dict(sorted(block.vars.items()))  # their order says nothing
    assert equal is (left.serialize_to_string() == right.serialize_to_string())
