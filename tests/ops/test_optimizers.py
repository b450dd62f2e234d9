"""Optimizers: sparse gradients, updates in place, forms of Paddle 2.x, and refusals. Numbers are real Paddle's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError, UnsupportedOperatorError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.support.later import run_later
from tests.support.operators import OneOp, run_op


def array(*rows: Any) -> np.ndarray[Any, Any]:
    return np.array(rows, np.float32)


PARAM = array([1, 2], [3, 4], [5, 6])
STATE = array([0.1, 0.2], [0.3, 0.4], [0.5, 0.6])
RATE = array(0.1)
SPARSE = SelectedRows([2, 0, 2], 3, array([1, 2], [3, 4], [5, 6]))
DENSE = array([3, 4], [0, 0], [6, 8])
NOTHING = SelectedRows([], 3, np.zeros((0, 2), np.float32))
POWERS = {"Beta1Pow": array(0.9), "Beta2Pow": array(0.999)}


def run_in_place(op: str, inputs: dict[str, Any], attrs: dict[str, Any], **in_place: str) -> dict[str, Any]:
    """Run with outputs that are the variables of inputs (`ParamOut="Param"`), as optimizers build it."""
    program, scope = Program(), Scope()
    block = program.global_block()
    for slot, value in inputs.items():
        kind = VarType.SELECTED_ROWS if isinstance(value, SelectedRows) else VarType.LOD_TENSOR
        block.create_var(name=slot, type=kind, persistable=True)
        scope.var(slot).value = value if isinstance(value, SelectedRows) else LoDTensor(value)
    outputs = {output: [source] for output, source in in_place.items()}
    block.append_op(type=op, inputs={slot: [slot] for slot in inputs}, outputs=outputs, attrs=attrs)
    names = list(in_place.values())
    return dict(zip(names, Executor().run(program, {}, names, scope), strict=True))


def adam_in_place(grad: Any, **attrs: Any) -> dict[str, Any]:
    inputs = {"Param": PARAM, "Grad": grad, "LearningRate": RATE, "Moment1": STATE, "Moment2": STATE, **POWERS}
    names = ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
    return run_in_place("adam", inputs, attrs, **{name + "Out": name for name in names})


def test_adam_with_a_sparse_gradient_uses_the_powers_of_the_next_step() -> None:
    out = adam_in_place(SPARSE)
    expected = [[0.97219008, 1.97062004], [2.98839426, 3.98659897], [4.96623564, 5.96128607]]
    np.testing.assert_allclose(out["Param"].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(out["Beta1Pow"].numpy(), [0.81], rtol=1e-6)


def test_lazy_adam_leaves_rows_without_a_gradient_as_they_are() -> None:
    out = adam_in_place(SPARSE, lazy_mode=True)
    expected = array([0.97219008, 1.97062004], [3, 4], [4.96623564, 5.96128607])
    np.testing.assert_allclose(out["Param"].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(out["Moment1"].numpy(), [[0.39, 0.58], [0.3, 0.4], [1.05, 1.34]], rtol=1e-6)


def test_adam_without_any_row_changes_nothing_not_even_the_powers() -> None:
    out = adam_in_place(NOTHING)
    np.testing.assert_array_equal(out["Param"].numpy(), PARAM)
    np.testing.assert_array_equal(out["Beta1Pow"].numpy(), POWERS["Beta1Pow"])


def test_adam_of_paddle_2_corrects_epsilon_too() -> None:
    small, state = array([1, 2], [3, 4]), array([0.1, 0.2], [0.3, 0.4])
    inputs = {"Param": small, "Grad": state, "LearningRate": RATE, "Moment1": state, "Moment2": state, **POWERS}
    out = run_op("adam", inputs, {"epsilon": 0.1, "use_global_beta_pow": False})["ParamOut"].numpy()
    expected = [[0.99009466, 1.98595166], [2.98277307, 3.98009372]]
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    merged = {slot: [value] for slot, value in inputs.items()}
    np.testing.assert_allclose(
        run_op("merged_adam", merged, {"epsilon": 0.1}, {"MasterParamOut": 0})["ParamOut"].numpy(), out
    )


def test_adamw_decays_the_parameter_first() -> None:
    inputs = {"Param": PARAM, "Grad": STATE, "LearningRate": RATE, "Moment1": STATE, "Moment2": STATE, **POWERS}
    decayed = run_op("adamw", inputs, {"coeff": 0.5, "with_decay": True}, {"MasterParamOut": 0})["ParamOut"].numpy()
    plain = run_op("adamw", inputs, {}, {"MasterParamOut": 0})["ParamOut"].numpy()
    np.testing.assert_allclose(decayed, plain - 0.1 * 0.5 * PARAM, rtol=1e-6)


def test_adadelta_in_place_steps_by_the_updated_average() -> None:
    inputs = {"Param": PARAM, "Grad": STATE, "AvgSquaredGrad": STATE, "AvgSquaredUpdate": STATE}
    names = {"ParamOut": "Param", "AvgSquaredGradOut": "AvgSquaredGrad", "AvgSquaredUpdateOut": "AvgSquaredUpdate"}
    out = run_in_place("adadelta", inputs, {}, **names)["Param"].numpy()
    expected = [[0.8999877, 1.79995656], [2.69991541, 3.59987259], [4.49983549, 5.3998127]]
    np.testing.assert_allclose(out, expected, rtol=1e-6)


SPARSE_CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sgd", {}, {}),
    ("momentum", {"Velocity": STATE}, {"mu": 0.5, "use_nesterov": True}),
    ("rmsprop", {"MeanSquare": STATE, "MeanGrad": STATE * 0.1, "Moment": STATE}, {"centered": True, "momentum": 0.5}),
    ("lamb", {"Moment1": STATE, "Moment2": STATE, **POWERS}, {"weight_decay": 0.1}),
    ("adam", {"Moment1": STATE, "Moment2": STATE, **POWERS}, {}),
]


@pytest.mark.parametrize(("op", "state", "attrs"), SPARSE_CASES)
def test_a_sparse_gradient_acts_like_the_dense_one(op: str, state: dict[str, Any], attrs: dict[str, Any]) -> None:
    inputs = {"Param": PARAM, "LearningRate": RATE, **state}
    sparse = run_op(op, inputs | {"Grad": SPARSE}, attrs)
    for slot, value in run_op(op, inputs | {"Grad": DENSE}, attrs).items():
        np.testing.assert_allclose(sparse[slot].numpy(), value.numpy(), rtol=1e-6, err_msg=slot)


@pytest.mark.parametrize(
    ("op", "state"),
    [("adagrad", {"Moment": STATE}), ("ftrl", {"SquaredAccumulator": STATE, "LinearAccumulator": STATE})],
)
def test_these_move_only_the_rows_with_a_gradient(op: str, state: dict[str, Any]) -> None:
    inputs = {"Param": PARAM, "LearningRate": RATE, **state}
    sparse = run_op(op, inputs | {"Grad": SPARSE})["ParamOut"].numpy()
    full = run_op(op, inputs | {"Grad": DENSE})["ParamOut"].numpy()
    np.testing.assert_allclose(sparse, np.where([[True], [False], [True]], full, PARAM), rtol=1e-6)


def test_momentum_finds_unsorted_rows_which_paddle_1_8_5_misses() -> None:
    unsorted, inputs = (
        SelectedRows([2, 0], 3, array([6, 8], [3, 4])),
        {"Param": PARAM, "Velocity": STATE, "LearningRate": RATE},
    )
    out, expected = (run_op("momentum", inputs | {"Grad": grad}, {"mu": 0.5})["ParamOut"] for grad in (unsorted, DENSE))
    np.testing.assert_allclose(out.numpy(), expected.numpy())


def test_sgd_updates_a_table_of_selected_rows() -> None:
    table = SelectedRows([6, 1, 3], 9, array([6], [1], [3]))
    grad = SelectedRows([3, 6, 3], 9, array([1], [2], [3]))
    out = run_op("sgd", {"Param": table, "Grad": grad, "LearningRate": RATE})["ParamOut"]
    assert out.rows() == [6, 1, 3]
    np.testing.assert_allclose(out.value, array([5.8], [1], [2.6]), rtol=1e-6)


def test_merged_momentum_is_momentum_of_each() -> None:
    lists = {"Param": [PARAM, STATE], "Grad": [STATE, PARAM], "Velocity": [STATE, PARAM], "LearningRate": [RATE]}
    attrs = {"mu": 0.9, "regularization_method": ["l2_decay", ""], "regularization_coeff": [0.5, 0.0]}
    merged = run_op("merged_momentum", lists, attrs, {"ParamOut": 2, "VelocityOut": 2, "MasterParamOut": 0})["ParamOut"]
    for i, decay in enumerate(({"regularization_method": "l2_decay", "regularization_coeff": 0.5}, {})):
        one = {slot: values[i % len(values)] for slot, values in lists.items()}
        np.testing.assert_allclose(merged[i].numpy(), run_op("momentum", one, {"mu": 0.9, **decay})["ParamOut"].numpy())


def test_lars_momentum_takes_the_plain_rate_for_a_zero_gradient() -> None:
    inputs = {"Param": PARAM, "Grad": PARAM * 0, "Velocity": PARAM * 0, "LearningRate": RATE}
    for decay in (0.5, [0.5]):  # Paddle 2.x: one for each parameter
        out = run_op("lars_momentum", inputs, {"mu": 0.9, "lars_weight_decay": decay})["ParamOut"].numpy()
        np.testing.assert_allclose(out, PARAM - 0.1 * 0.5 * PARAM, rtol=1e-6)


def test_lars_momentum_of_paddle_2_takes_several_parameters() -> None:
    lists = {
        "Param": [PARAM, STATE],
        "Grad": [STATE, PARAM],
        "Velocity": [STATE, PARAM],
        "LearningRate": [RATE, RATE * 2],
    }
    attrs = {"mu": 0.9, "lars_coeff": 0.01, "lars_weight_decay": [0.1, 0.0]}
    op = OneOp("lars_momentum", lists, attrs, {"ParamOut": 2, "VelocityOut": 2})
    operator = op.program.global_block().ops[0]
    operator.set_attr("epsilon", 0.3)
    operator.set_attr("rescale_grad", 2.0)
    first, second = (value.numpy() for value in op.run(fetch=op.outputs["ParamOut"]))
    norms = np.linalg.norm(PARAM), np.linalg.norm(2 * STATE)
    rate = 0.1 * 0.01 * norms[0] / (norms[1] + 0.1 * norms[0] + 0.3)
    np.testing.assert_allclose(first, PARAM - 0.9 * STATE - rate * (2 * STATE + 0.1 * PARAM), rtol=1e-6)
    np.testing.assert_allclose(second, STATE - 0.9 * PARAM - 0.2 * 2 * PARAM, rtol=1e-6)  # no decay: the plain rate


def test_lars_momentum_refuses_lists_of_different_lengths() -> None:
    lists = {"Param": [PARAM, STATE], "Grad": [STATE], "Velocity": [STATE, PARAM], "LearningRate": [RATE, RATE]}
    with pytest.raises(OperatorError, match="Grad must have 2 variables, as many as Param, found 1"):
        run_op("lars_momentum", lists, {"mu": 0.9}, {"ParamOut": 2, "VelocityOut": 2})


# Numbers of Paddle 2.6.2.
OF_PADDLE_2: list[tuple[str, dict[str, Any], dict[str, Any], list[float]]] = [
    ("lamb", {}, {"weight_decay": 0.1}, [0.75075305, 1.6870372]),
    ("lamb", {}, {"weight_decay": 0.0}, [0.96262783, 1.960518]),
    ("lamb", {}, {"weight_decay": 0.0, "always_adapt": True}, [0.60841066, 1.5863029]),
    ("lamb", {"SkipUpdate": np.array([True])}, {"weight_decay": 0.1}, [1, 2]),
    ("adam", {"EpsilonTensor": array(0.5)}, {"use_global_beta_pow": False}, [0.96433657, 1.9618175]),
]


@pytest.mark.parametrize(("op", "more", "attrs", "expected"), OF_PADDLE_2)
def test_inputs_and_attributes_of_paddle_2(
    op: str, more: dict[str, Any], attrs: dict[str, Any], expected: list[float]
) -> None:
    inputs = {"Param": PARAM, "Grad": DENSE, "LearningRate": RATE, "Moment1": STATE, "Moment2": STATE, **POWERS, **more}
    out = run_later(op, inputs, attrs)
    np.testing.assert_allclose(out["ParamOut"][0], expected, rtol=1e-6)
    np.testing.assert_allclose(out["Beta1PowOut"], [0.9] if "SkipUpdate" in more else [0.81], rtol=1e-6)


def test_adadelta_of_paddle_2_steps_by_the_learning_rate() -> None:
    inputs = {"Param": PARAM, "Grad": DENSE, "AvgSquaredGrad": STATE, "AvgSquaredUpdate": STATE, "LearningRate": RATE}
    out = run_later("adadelta", inputs)["ParamOut"]
    np.testing.assert_allclose(out[0], [0.87149358, 1.8202131], rtol=1e-6)  # Paddle 2.6.2's, in place too


def averaged(updates: int, accumulated: int) -> dict[str, Any]:
    sums = {f"in_sum_{i}": np.full(2, 10.0**i, np.float32) for i in (1, 2, 3)}
    counts = {"in_num_updates": updates, "in_num_accumulates": accumulated, "in_old_num_accumulates": 7}
    inputs = {"param": np.ones(2, np.float32)} | sums | {slot: np.array([count]) for slot, count in counts.items()}
    return run_op(
        "average_accumulates", inputs, {"average_window": 0.5, "min_average_window": 3, "max_average_window": 20}
    )


def test_average_accumulates_adds_until_its_window_is_full() -> None:
    out = averaged(updates=9, accumulated=3)
    assert [out[f"out_sum_{i}"].numpy()[0] for i in (1, 2, 3)] == [11, 100, 1000]
    assert [int(out[f"out_{name}"].numpy()[0]) for name in ("num_updates", "num_accumulates")] == [10, 4]


def test_average_accumulates_moves_a_full_window_to_the_third_sum() -> None:
    out = averaged(updates=9, accumulated=4)
    assert [out[f"out_sum_{i}"].numpy()[0] for i in (1, 2, 3)] == [0, 0, 111]
    assert [int(out[f"out_{name}"].numpy()[0]) for name in ("num_accumulates", "old_num_accumulates")] == [0, 5]


def test_dpsgd_adds_one_random_number_to_the_clipped_gradient() -> None:
    inputs = {"Param": np.zeros(4, np.float32), "Grad": array(3, 0, 0, 4), "LearningRate": array(1)}
    attrs = {"clip": 1.0, "batch_size": 2.0, "sigma": 4.0, "seed": 5}
    steps = [-run_op("dpsgd", inputs, attrs | {"seed": seed})["ParamOut"].numpy() for seed in range(1, 300)]
    noise = np.array([step - array(0.6, 0, 0, 0.8) for step in steps])
    assert np.ptp(noise, axis=1).max() < 1e-5
    assert noise.std() == pytest.approx(4.0 / 2.0, rel=0.15)


@pytest.mark.parametrize("in_place", [True, False])
def test_dgc_momentum_goes_on_with_the_divided_gradient_only_in_place(in_place: bool) -> None:
    inputs = {
        "current_step": array(9),
        "nranks": array(2),
        "Param": PARAM,
        "Grad": STATE,
        "Velocity": STATE,
        "LearningRate": RATE,
    }
    attrs = {"rampup_begin_step": 5.0, "mu": 0.9}
    if in_place:
        out = run_in_place("dgc_momentum", inputs, attrs, Grad_out="Grad", ParamOut="Param", VelocityOut="Velocity")[
            "Param"
        ]
    else:
        out = run_op("dgc_momentum", inputs, attrs)["ParamOut"]
    np.testing.assert_allclose(out.numpy(), PARAM - 0.1 * STATE / (2 if in_place else 1), rtol=1e-6)


SGD = {"Param": PARAM, "LearningRate": RATE}


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    [
        ("sgd", SGD | {"Grad": STATE[:2]}, {}, r"Param and Grad must have the same shape, found \(3, 2\) and \(2, 2\)"),
        ("sgd", SGD | {"Grad": STATE, "LearningRate": array(1, 2)}, {}, r"LearningRate must hold one number"),
        ("sgd", SGD | {"Grad": SelectedRows([3], 4, STATE[:1])}, {}, r"names row 3, but the table has 3 rows"),
        (
            "sgd",
            SGD | {"Grad": SelectedRows([0, -2], 4, STATE[:2])},
            {},
            r"names row -2, but the table has 3 rows, 0 to 2",
        ),
        ("sgd", SGD | {"Grad": SelectedRows([0], 3, STATE)}, {}, r"one value per row, found 1 rows"),
        ("sgd", SGD | {"Grad": SelectedRows([0], 3, array([1, 2, 3]))}, {}, r"rows of shape \(2,\) like Param"),
        ("sgd", SGD | {"Param": SPARSE, "Grad": STATE}, {}, r"Grad must hold SelectedRows too"),
        (
            "momentum",
            SGD | {"Grad": STATE, "Velocity": STATE[:1]},
            {"mu": 0.9},
            r"Param and Velocity must have the same",
        ),
        (
            "rmsprop",
            SGD | {"Grad": STATE, "MeanSquare": STATE, "Moment": STATE},
            {"centered": True},
            r"centered=True needs the input MeanGrad",
        ),
        (
            "dgc_momentum",
            SGD | {"Grad": STATE, "Velocity": STATE, "current_step": array(1), "nranks": array(1)},
            {"mu": 0.9, "rampup_begin_step": 0.0},
            r"nranks must be at least 2",
        ),
        (
            "merged_momentum",
            {slot: [value] for slot, value in SGD.items()},
            {"mu": 0.9},
            r"as many variables as Param \(1\)",
        ),
    ],
)
def test_refusals_name_the_operator_and_what_is_wrong(
    op: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=f"operator {op}: .*{message}"):
        run_op(op, inputs, attrs)


def test_master_weights_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"sgd with multi_precision=True"):
        run_op("sgd", SGD | {"Grad": STATE}, {"multi_precision": True})
