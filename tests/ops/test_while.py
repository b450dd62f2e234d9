"""while, conditional_block, recurrent and select: what the golden cases do not say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError, UninitializedError
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensorArray
from tests.support.blocks import BOOL, INT64, Building, check_program_gradient
from tests.support.operators import run_op

RNG = np.random.default_rng(5)


def loop(steps: int, is_test: bool = False) -> Building:
    """s = x; `steps` times s = s * x + tanh(s); loss = mean(s)."""
    b = Building()
    x = b.data("x", [3])
    i, n = b.constant("i", 0), b.constant("n", steps)
    b.op("scale", {"X": x}, {"Out": "s"}, scale=1.0)
    b.op("less_than", {"X": i, "Y": n}, {"Out": "go_on"}, dtype=BOOL)
    with b.sub_block() as body:
        b.op("elementwise_mul", {"X": "s", "Y": x}, {"Out": "p"})
        b.op("tanh", {"X": "s"}, {"Out": "t"})
        b.op("elementwise_add", {"X": "p", "Y": "t"}, {"Out": "u"})
        b.op("assign", {"X": "u"}, {"Out": "s"})
        b.next_step(i, n)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    b.op(
        "while",
        {"X": [x, "s", i, n], "Condition": "go_on"},
        {"Out": ["s", i, "go_on"], "StepScopes": "steps"},
        sub_block=b.program.block(body),
        is_test=is_test,
    )
    b.op("mean", {"X": "s"}, {"Out": "loss"})
    return b


def appended(kind: VarType) -> Building:
    """Two items appended to `items`, which is declared and nothing more."""
    b = Building()
    b.block.create_var(name="items", type=kind)
    one = b.constant("one", 1)
    for count in ("none", "one_item"):
        b.op("lod_array_length", {"X": "items"}, {"Out": count}, dtype=INT64)
        b.op("write_to_array", {"X": one, "I": count}, {"Out": "items"})
    b.op("lod_array_length", {"X": "items"}, {"Out": "two"}, dtype=INT64)
    return b


def test_an_array_that_was_never_written_has_no_items() -> None:
    counts = appended(VarType.LOD_TENSOR_ARRAY).run({}, ["none", "one_item", "two"])
    assert [count.numpy().tolist() for count in counts] == [[0], [1], [2]]


def test_a_tensor_without_a_value_has_no_length() -> None:
    with pytest.raises(UninitializedError, match=r"input X.* of operator lod_array_length.* holds no value"):
        appended(VarType.LOD_TENSOR).run({}, ["none"])


@pytest.mark.parametrize("is_test", [False, True])
def test_while_runs_as_long_as_the_condition_holds(is_test: bool) -> None:
    x = np.array([0.5, -1.0, 2.0])
    s = x
    for _ in range(3):
        s = s * x + np.tanh(s)
    np.testing.assert_allclose(loop(3, is_test).run({"x": x}, ["s"])[0].numpy(), s, rtol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_gradient_of_a_state_carried_from_step_to_step(steps: int) -> None:
    check_program_gradient(loop(steps), "loss", {"x": RNG.normal(size=3)}, ["x"])


def test_gradient_is_refused_when_the_loop_kept_no_steps() -> None:
    b = loop(2, is_test=True)
    with pytest.raises(OperatorError, match="while_grad: is_test is set, so the loop kept no steps"):
        check_program_gradient(b, "loss", {"x": np.ones(3)}, ["x"])


def test_local_variables_start_afresh_in_every_step() -> None:
    b = Building()
    i, n, zero = b.constant("i", 0), b.constant("n", 3), b.constant("zero", 0)
    b.op("less_than", {"X": i, "Y": n}, {"Out": "go_on"}, dtype=BOOL)
    b.block.create_var(name="length", dtype=INT64)
    with b.sub_block() as body:
        b.op("write_to_array", {"X": zero, "I": i}, {"Out": "local"}, kind=VarType.LOD_TENSOR_ARRAY, dtype=INT64)
        b.op("lod_array_length", {"X": "local"}, {"Out": "length"}, dtype=INT64)
        b.op("write_to_array", {"X": zero, "I": zero}, {"Out": "local"}, kind=VarType.LOD_TENSOR_ARRAY, dtype=INT64)
        b.next_step(i, n)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    b.op(
        "while",
        {"X": [i, n, zero], "Condition": "go_on"},
        {"Out": [i, "go_on", "length"], "StepScopes": "steps"},
        sub_block=b.program.block(body),
    )
    assert b.run({}, ["length"])[0].numpy().tolist() == [3]


def test_condition_must_be_one_boolean() -> None:
    b = loop(1)
    b.data("two", [2], BOOL)
    next(op for op in b.program.global_block().ops if op.type == "while").set_input("Condition", ["two"])
    with pytest.raises(OperatorError, match=r"while: Condition must hold one boolean, found shape \(2,\)"):
        b.run({"x": np.ones(3), "two": np.array([True, True])}, ["s"])


def branch() -> Building:
    """y = x * w if flag > 0; loss = mean(y)."""
    b = Building()
    x, w, flag = b.data("x", [3]), b.data("w", [3]), b.data("flag", [1])
    zero = b.constant("zero", 0, VarType.FP64)
    b.op("less_than", {"X": zero, "Y": flag}, {"Out": "yes"}, dtype=BOOL)
    b.op("assign", {"X": x}, {"Out": "y"})
    with b.sub_block() as body:
        b.op("elementwise_mul", {"X": x, "Y": w}, {"Out": "p"})
        b.op("assign", {"X": "p"}, {"Out": "y"})
    b.block.create_var(name="scope", type=VarType.STEP_SCOPES)
    b.op(
        "conditional_block",
        {"Cond": "yes", "Input": [x, w]},
        {"Out": "y", "Scope": "scope"},
        sub_block=b.program.block(body),
        is_scalar_condition=True,
    )
    b.op("mean", {"X": "y"}, {"Out": "loss"})
    return b


def test_gradient_of_a_branch_taken() -> None:
    feed = {"x": RNG.normal(size=3), "w": RNG.normal(size=3), "flag": np.array([1.0])}
    check_program_gradient(branch(), "loss", feed, ["w"])


def test_gradient_of_a_branch_not_taken_is_zero() -> None:
    feed = {"x": RNG.normal(size=3), "w": RNG.normal(size=3), "flag": np.array([-1.0])}
    check_program_gradient(branch(), "loss", feed, ["w"])


def rnn(reverse: bool, used: tuple[str, ...] = ("out",)) -> Building:
    """h[t] = tanh(x[t] * w + h[t - 1]); out[t] = h[t]; squares[t] = x[t] ** 2; loss = sum of the means of `used`."""
    b = Building()
    x, w, h0 = b.data("x", [4, 2]), b.data("w", [2]), b.data("h0", [2])
    for name in ("out", "squares"):
        b.block.create_var(name=name, dtype=VarType.FP64, shape=[4, 2], stop_gradient=False)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    with b.sub_block() as body:
        for name in (x, "previous", "out", "squares"):
            b.block.create_var(name=name, dtype=VarType.FP64, shape=[2], stop_gradient=False)
        b.op("elementwise_mul", {"X": x, "Y": w}, {"Out": "p"})
        b.op("elementwise_add", {"X": "p", "Y": "previous"}, {"Out": "q"})
        b.op("tanh", {"X": "q"}, {"Out": "h"})
        b.op("rnn_memory_helper", {"X": "h"}, {"Out": "state"})
        b.op("rnn_memory_helper", {"X": "h"}, {"Out": "out"})
        b.op("square", {"X": x}, {"Out": "square"})
        b.op("rnn_memory_helper", {"X": "square"}, {"Out": "squares"})
    b.op(
        "recurrent",
        {"inputs": [x], "initial_states": [h0], "parameters": [w]},
        {"outputs": ["out", "squares"], "step_scopes": "steps"},
        sub_block=b.program.block(body),
        has_states=True,
        ex_states=["previous"],
        states=["state"],
        reverse=reverse,
    )
    for name in used:
        b.op("mean", {"X": name}, {"Out": "mean_" + name})
    b.op("sum", {"X": ["mean_" + name for name in used]}, {"Out": "loss"})
    return b


def rnn_feed() -> dict[str, Any]:
    return {"x": RNG.normal(size=(4, 2)), "w": RNG.normal(size=2), "h0": RNG.normal(size=2)}


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_runs_the_block_over_the_steps(reverse: bool) -> None:
    feed = rnn_feed()
    h, expected = feed["h0"], {}
    for t in reversed(range(4)) if reverse else range(4):
        expected[t] = h = np.tanh(feed["x"][t] * feed["w"] + h)
    got = rnn(reverse).run(feed, ["out"])[0].numpy()
    np.testing.assert_allclose(got, np.stack([expected[t] for t in range(4)]), rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("used", [("out",), ("out", "squares"), ("squares",)])
def test_gradient_of_recurrent(reverse: bool, used: tuple[str, ...]) -> None:
    wrt = ["x", "w", "h0"] if "out" in used else ["x"]
    check_program_gradient(rnn(reverse, used), "loss", rnn_feed(), wrt)


def test_recurrent_names_inputs_of_different_lengths() -> None:
    b = rnn(False)
    b.data("longer", [5, 2])
    next(op for op in b.program.global_block().ops if op.type == "recurrent").set_input("inputs", ["x", "longer"])
    with pytest.raises(OperatorError, match=r"the same number of steps, found shapes \(4, 2\), \(5, 2\)"):
        b.run({**rnn_feed(), "longer": np.ones((5, 2))}, ["out"])


def test_select_input_copies_the_variable_of_the_mask() -> None:
    xs = [np.zeros(2), np.ones(3)]
    assert run_op("select_input", {"X": xs, "Mask": np.array([1], np.int32)})["Out"].numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("mask", [2, -1])
def test_select_input_names_a_mask_out_of_range(mask: int) -> None:
    with pytest.raises(OperatorError, match=f"select_input: Mask is {mask}, but there are 2 inputs X"):
        run_op("select_input", {"X": [np.zeros(2), np.ones(3)], "Mask": np.array([mask], np.int32)})


def test_select_output_writes_one_of_its_outputs() -> None:
    got = run_op("select_output", {"X": np.ones(2), "Mask": np.array([1], np.int32)}, outputs={"Out": 2}, fetch=[])
    assert got == {}


def test_arrays_pass_through_select_input() -> None:
    array = LoDTensorArray()
    array.append(np.ones(2))
    got = run_op("select_input", {"X": [array], "Mask": np.array([0], np.int32)})["Out"]
    assert isinstance(got, LoDTensorArray) and got is not array and got[0].numpy().tolist() == [1, 1]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_gradients_of_an_embedding_add_up_over_the_steps(is_sparse: bool) -> None:
    b = Building()
    table, ids = b.data("table", [4, 2]), b.data("ids", [3, 1], INT64)
    i, n = b.constant("i", 0), b.constant("n", 3)
    b.op("less_than", {"X": i, "Y": n}, {"Out": "go_on"}, dtype=BOOL)
    b.op("lookup_table", {"W": table, "Ids": ids}, {"Out": "s"}, is_sparse=is_sparse)
    with b.sub_block() as body:
        b.op("lookup_table", {"W": table, "Ids": ids}, {"Out": "e"}, is_sparse=is_sparse)
        b.op("elementwise_mul", {"X": "s", "Y": "e"}, {"Out": "p"})
        b.op("assign", {"X": "p"}, {"Out": "s"})
        b.next_step(i, n)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    b.op(
        "while",
        {"X": [table, ids, "s", i, n], "Condition": "go_on"},
        {"Out": ["s", i, "go_on"], "StepScopes": "steps"},
        sub_block=b.program.block(body),
    )
    b.op("mean", {"X": "s"}, {"Out": "loss"})
    feed = {"table": RNG.normal(size=(4, 2)), "ids": np.array([[1], [3], [1]])}
    check_program_gradient(b, "loss", feed, ["table"])


@pytest.mark.parametrize(("flag", "expected"), [(1.0, [2.0, 6.0]), (-1.0, [1.0, 2.0])])
def test_conditional_block_of_fluid_before_1_0_has_slots_x_and_params(flag: float, expected: list[float]) -> None:
    b = branch()
    op = next(op for op in b.program.global_block().ops if op.type == "conditional_block")
    op.inputs.clear()
    op.set_input("X", ["yes"])
    op.set_input("Params", ["x", "w"])
    feed = {"x": np.array([1.0, 2.0, 0.0]), "w": np.array([2.0, 3.0, 0.0]), "flag": np.array([flag])}
    assert b.run(feed, ["y"])[0].numpy().tolist()[:2] == expected
