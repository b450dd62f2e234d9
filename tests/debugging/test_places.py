"""Where values are computed, and where the computation of those that are gone went."""

from __future__ import annotations

from fluidtool.debugging.places import nearest, places
from fluidtool.ir import Program
from fluidtool.model import load
from tests.cli.support import linear_program
from tests.support.checkout import ROOT


def test_places_are_in_program_order_without_parameters() -> None:
    found = places(linear_program())
    assert list(found) == ["product", "sum", "positive", "probability"]
    assert (found["sum"].block, found["sum"].operator, found["sum"].op.type) == (0, 2, "elementwise_add")


def test_what_only_a_gradient_reads_is_no_value() -> None:
    program = load(ROOT / "samples/digits").program
    written = {name for op in program.global_block().ops for name in op.output_arg_names}
    assert "batch_norm_0.tmp_0" in written and "batch_norm_0.tmp_0" not in places(program)


def test_a_value_that_is_gone_went_into_the_first_that_is_there() -> None:
    gone = nearest(linear_program(), {"positive": 1, "probability": 1})
    assert (gone["product"], gone["sum"]) == ("positive", "positive")


def test_what_a_block_writes_is_placed_within_it() -> None:
    program = Program()
    block = program.global_block()
    for name in ("x", "y"):
        block.create_var(name=name, shape=[1], dtype="float32")
    block.create_var(name="go", shape=[1], dtype="bool")
    inner = program.create_block()
    inner.append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["y"]})
    program.rollback()
    block.append_op(
        type="conditional_block",
        inputs={"Cond": ["go"], "Input": ["x"]},
        outputs={"Out": ["y"], "Scope": []},
        attrs={"sub_block": inner, "is_scalar_condition": True},
    )
    assert (places(program)["y"].block, places(program)["y"].op.type) == (1, "relu")
