"""`fluid.op`: one operator by itself, on the variables of a scope."""

from __future__ import annotations

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid import core
from fluidtool.fluid.op import OpDescCreationMethod, Operator, get_all_op_protos
from fluidtool.fluid.op_protos import OpProtoHolder

CPU = fluid.CPUPlace()


def test_an_operator_reads_and_writes_a_scope() -> None:
    scope = fluid.Scope()
    scope.var("a").get_tensor().set(np.array([1.0, 2.0], "float32"), CPU)
    scope.var("b").get_tensor().set(np.array([10.0, 20.0], "float32"), CPU)
    total = scope.var("c").get_tensor()
    Operator("sum", X=["a", "b"], Out="c").run(scope, CPU)
    assert np.array(total).tolist() == [11.0, 22.0]


def test_selected_rows_that_callers_hold_are_filled() -> None:
    scope = fluid.Scope()
    rows = scope.var("x").get_selected_rows()
    rows.set_rows([3, 0, 3])
    rows.set_height(5)
    rows.get_tensor().set(np.ones((3, 2), "float32"), CPU)
    merged = scope.var("out").get_selected_rows()
    held = merged.get_tensor()
    Operator("merge_selected_rows", X="x", Out="out").run(scope, CPU)
    assert (sorted(merged.rows()), merged.height()) == ([0, 3], 5)
    assert np.array(held).sum() == 6.0


def test_dimensions_without_memory_reach_the_tensor_that_callers_hold() -> None:
    for rows in (False, True):
        scope = fluid.Scope()
        held = scope.var("out").get_selected_rows().get_tensor() if rows else scope.var("out").get_tensor()
        Operator("fake_init", Out="out", shape=[4, 7]).run(scope, CPU)
        assert held.shape() == [4, 7]


def test_what_an_operator_is() -> None:
    op = Operator(type="dropout", X="x", Out="y", Mask="m", dropout_prob=0.5, nothing="ignored")
    assert (op.type(), op.input_vars(), op.output_vars(True), op.output_vars(False)) == (
        "dropout",
        ["x"],
        ["y", "m"],
        ["y"],
    )
    assert str(Operator("sum", X=["a", "b"], Out="z")) == "Op(sum), inputs:{X[a, b]}, outputs:{Out[z]}."


def test_what_operators_declare() -> None:
    assert "sum" in Operator.types()
    assert (Operator.get_op_inputs("sum"), Operator.get_op_outputs("sum")) == ([("X", True)], [("Out", False)])
    assert (Operator.get_op_input_names("scale"), Operator.get_op_output_names("scale")) == (
        ["X", "ScaleTensor"],
        ["Out"],
    )
    assert {"scale", "bias"} <= set(Operator.get_op_attr_names("scale"))


def test_operators_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="nosuch is not registered"):
        Operator("nosuch", X="a")
    with pytest.raises(ValueError, match="Input X expects only one input, but 2 are given"):
        Operator("scale", X=["a", "b"], Out="c")
    with pytest.raises(ValueError, match="keyword arguments"):
        Operator("scale", "a")


class TestDeclarations:
    def test_operators_declare_their_slots(self) -> None:
        protos = {proto.type: proto for proto in get_all_op_protos()}
        assert all(proto.IsInitialized() for proto in protos.values())
        assert [(slot.name, slot.duplicable, slot.dispensable) for slot in protos["concat"].inputs] == [
            ("X", True, False),
            ("AxisTensor", False, True),
        ]
        assert "relu_grad" not in protos

    def test_attributes_of_every_operator_are_declared(self) -> None:
        proto = OpProtoHolder.instance().get_op_proto("sum")
        assert {attr.name for attr in proto.attrs} >= OpProtoHolder.generated_op_attr_names()

    def test_defaults(self) -> None:
        defaults = core.get_op_attrs_default_value(b"dropout")
        assert (defaults["dropout_implementation"], defaults["op_role"]) == ("downgrade_in_infer", 4096)

    def test_an_unknown_type_has_none(self) -> None:
        with pytest.raises(UsageError, match='Operator "nosuch" has not been registered'):
            OpProtoHolder.instance().get_op_proto("nosuch")
        with pytest.raises(UsageError, match="The operator: nosuch is not registered"):
            core.get_op_attrs_default_value("nosuch")

    def test_a_declaration_makes_messages(self) -> None:
        desc = OpDescCreationMethod(OpProtoHolder.instance().get_op_proto("concat"))(X=["a", "b"], Out="c", axis=1)
        assert [(slot.parameter, list(slot.arguments)) for slot in desc.inputs] == [
            ("X", ["a", "b"]),
            ("AxisTensor", []),
        ]
        assert [(attr.name, attr.i) for attr in desc.attrs] == [("axis", 1)]

    def test_text_is_kept_as_bytes(self) -> None:
        proto = OpProtoHolder.instance().get_op_proto("fill_constant")
        desc = OpDescCreationMethod(proto)(Out="c", str_value="1", shape=np.array([2, 3]), op_callstack=["a"])
        found = {attr.name: attr for attr in desc.attrs}
        assert (found["str_value"].s, list(found["shape"].longs), list(found["op_callstack"].strings)) == (
            b"1",
            [2, 3],
            [b"a"],
        )

    def test_one_name_where_a_slot_takes_one(self) -> None:
        method = OpDescCreationMethod(OpProtoHolder.instance().get_op_proto("scale"))
        with pytest.raises(UsageError, match="Input X expects only one input, but 2 are given"):
            method(X=["a", "b"], Out="c")

    def test_only_keywords(self) -> None:
        with pytest.raises(UsageError, match="Only keyword arguments"):
            OpDescCreationMethod(OpProtoHolder.instance().get_op_proto("scale"))("x")

    def test_only_declarations(self) -> None:
        with pytest.raises(ArgumentTypeError, match="should be OpProto in PaddlePaddle, found str"):
            OpDescCreationMethod("scale")  # type: ignore[arg-type]
