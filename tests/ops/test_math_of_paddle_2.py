"""Functions, losses and activations of Paddle 2 programs: numbers of Paddle 2.6.2, gradients, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import OperatorError
from tests.support.arrays import f32, i32, i64
from tests.support.later import run_later
from tests.support.operators import check_gradient, run_op

X = f32([[-2, 0, 0.5], [1, 3, 10]])
WIDE = np.random.default_rng(7).uniform(0.3, 2.5, (2, 3))
Case = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]
LOWEST = float(np.finfo("float32").min)

CASES: list[Case] = [
    ("i0", {"x": X}, {}, {"out": [[2.2795851, 1, 1.0634835], [1.266066, 4.8807926, 2815.7163]]}),
    ("i0e", {"x": X}, {}, {"out": [[0.3085083, 1, 0.6450353], [0.4657596, 0.2430004, 0.1278333]]}),
    ("i1", {"x": X}, {}, {"out": [[-1.5906368, 0, 0.2578943], [0.5651591, 3.9533704, 2670.988]]}),
    ("i1e", {"x": X}, {}, {"out": [[-0.2152693, 0, 0.1564208], [0.2079104, 0.1968267, 0.1212626]]}),
    (
        "polygamma",
        {"x": X + 2.5},
        {"n": 1},
        {"out": [[4.9348021, 0.4903577, 0.3949341], [0.3303577, 0.1993424, 0.0832852]]},
    ),
    (
        "polygamma",
        {"x": X + 2.5},
        {"n": 2},
        {"out": [[-16.8287945, -0.236204, -0.1541138], [-0.1082041, -0.0396089, -0.0069324]]},
    ),
    (
        "polygamma",
        {"x": X + 2.5},
        {"n": 3},
        {"out": [[97.4091034, 0.2239059, 0.1189394], [0.0703058, 0.0156906, 0.0011534]]},
    ),
    ("logcumsumexp", {"X": X}, {"axis": 0}, {"Out": [[-2, 0, 0.5], [1.0485873, 3.0485873, 10.0000744]]}),
    (
        "logcumsumexp",
        {"X": X},
        {"flatten": True},
        {"Out": [-2, 0.126928, 1.0239091, 1.7051733, 3.2421186, 10.0011606]},
    ),
    (
        "logcumsumexp",
        {"X": X},
        {"axis": 1, "reverse": True},
        {"Out": [[1.0239091, 0.974077, 0.5], [10.0010347, 10.0009117, 10]]},
    ),
    (
        "logcumsumexp",
        {"X": X},
        {"axis": 1, "exclusive": True},
        {"Out": [[LOWEST, -2, 0.126928], [LOWEST, 1, 3.126928]]},
    ),
    (
        "nextafter",
        {"x": X, "y": X + 1},
        {},
        {"out": [[-1.9999999, 1e-45, 0.50000006], [1.0000001, 3.0000002, 10.000001]]},
    ),
    (
        "renorm",
        {"X": X},
        {"p": 2.0, "axis": 0, "max_norm": 3.0},
        {"Out": [[-2, 0, 0.5], [0.2860388, 0.8581164, 2.8603878]]},
    ),
    (
        "renorm",
        {"X": X},
        {"p": 1.0, "axis": 1, "max_norm": 2.0},
        {"Out": [[-1.3333334, 0, 0.0952381], [0.6666667, 2, 1.9047619]]},
    ),
    (
        "nanmedian",
        {"X": f32([[1, np.nan, 3, 2], [np.nan] * 4])},
        {"axis": [1], "keepdim": True},
        {"Out": [[2], [np.nan]], "MedianIndex": [[[3, 3]], [[-1, -1]]]},
    ),
    (
        "nanmedian",
        {"X": X},
        {"axis": [0], "keepdim": False},
        {"Out": [-0.5, 1.5, 5.25], "MedianIndex": [[0, 1]] * 3},
    ),
    ("nanmedian", {"X": X}, {"axis": [0, 1], "keepdim": False}, {"Out": 0.75, "MedianIndex": [2, 3]}),
    ("identity_loss", {"X": X}, {"reduction": 0}, {"Out": 12.5}),
    ("identity_loss", {"X": X}, {"reduction": 1}, {"Out": 2.0833333}),
    ("identity_loss", {"X": X}, {"reduction": 2}, {"Out": X}),
    ("nll_loss", {"X": X, "Label": i64([1, 2])}, {"reduction": "mean"}, {"Out": -5, "Total_weight": 2}),
    (
        "rrelu",
        {"X": f32([-1, 2])},
        {"lower": 0.1, "upper": 0.3, "is_test": True},
        {"Out": [-0.2, 2], "Noise": [0.2, 1]},
    ),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_numbers_of_paddle(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = run_later(op_type, inputs, attrs)
    for slot, numbers in expected.items():
        assert found[slot].shape == np.shape(numbers)
        np.testing.assert_allclose(found[slot], numbers, rtol=1e-6, atol=6e-8, err_msg=slot)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradient_of_running_logarithms_without_their_own_number(reverse: bool) -> None:
    """Central differences of all but the place that has nothing before it, which is the lowest number."""
    attrs, weight = {"axis": 1, "exclusive": True, "reverse": reverse}, np.array([[0.5, -1, 2], [3, 1, -2]])
    counted = slice(0, 2) if reverse else slice(1, 3)

    def loss(x: Any) -> float:
        return float((run_op("logcumsumexp", {"X": x}, attrs)["Out"].numpy()[:, counted] * weight[:, counted]).sum())

    out = run_op("logcumsumexp", {"X": WIDE}, attrs)["Out"].numpy()
    grad = run_op("logcumsumexp_grad", {"X": WIDE, "Out": out, "Out@GRAD": weight}, attrs)["X@GRAD"].numpy()
    for at in np.ndindex(WIDE.shape):
        step = np.zeros_like(WIDE)
        step[at] = 1e-6
        np.testing.assert_allclose(grad[at], (loss(WIDE + step) - loss(WIDE - step)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_the_gradient_of_running_logarithms_does_not_overflow() -> None:
    x = f32([-1000, 1000])
    out = run_op("logcumsumexp", {"X": x})["Out"].numpy()
    grad = run_op("logcumsumexp_grad", {"X": x, "Out": out, "Out@GRAD": f32([1, 1])})["X@GRAD"].numpy()
    assert grad.tolist() == [1, 1]


def test_gradients_are_unscaled_until_one_is_infinite() -> None:
    x, infinite = f32([1, 2]), f32([np.inf, 4])
    inputs = {"X": [x, infinite, x], "Scale": f32([4])}
    with np.errstate(invalid="ignore"):
        found = run_op("check_finite_and_unscale", inputs, outputs={"Out": 3})
    np.testing.assert_array_equal([out.numpy() for out in found["Out"]], [[0.25, 0.5], [np.nan, 0], [0, 0]])
    assert found["FoundInfinite"].numpy().tolist() == [True]


@pytest.mark.parametrize(
    ("infinite", "scale", "steps", "expected"),
    [
        (False, 8.0, (0, 1), (8, 1, 0)),
        (False, 8.0, (1, 0), (16, 0, 0)),
        (True, 8.0, (1, 0), (4, 0, 0)),
        (True, 1.5, (1, 0), (1, 0, 0)),
        (False, 3e38, (1, 0), (3e38, 0, 0)),
    ],
)
def test_the_scale_of_a_loss_follows_what_was_infinite(
    infinite: bool, scale: float, steps: tuple[int, int], expected: tuple[float, int, int]
) -> None:
    inputs = {
        "X": [f32([1, 2])],
        "FoundInfinite": np.array([infinite]),
        "PrevLossScaling": f32([scale]),
        "InGoodSteps": i32(steps[:1]),
        "InBadSteps": i32(steps[1:]),
    }
    attrs = {"incr_every_n_steps": 2, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}
    with np.errstate(over="ignore"):
        found = run_op("update_loss_scaling", inputs, attrs, outputs={"Out": 1})
    slots = ("LossScaling", "OutGoodSteps", "OutBadSteps")
    np.testing.assert_allclose([found[slot].numpy()[0] for slot in slots], expected, rtol=1e-7)
    assert found["Out"].numpy().tolist() == ([0, 0] if infinite else [1, 2])


def test_a_masked_softmax() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    mask = f32([0, -1e4, 0, 0]).reshape(1, 1, 2, 2)
    half = 1 / (1 + math.exp(-1))
    rows = [[1, 0], [1 - half, half]]
    np.testing.assert_allclose(
        run_op("fused_softmax_mask", {"X": x, "Mask": mask})["Out"].numpy()[0], [rows] * 2, rtol=1e-6
    )
    np.testing.assert_allclose(
        run_op("fused_softmax_mask_upper_triangle", {"X": x})["Out"].numpy()[0], [rows] * 2, rtol=1e-6
    )


def test_noise_chooses_classes_by_their_probability() -> None:
    x = np.log(np.tile(f32([0.7, 0.2, 0.1]), (4000, 1)))
    drawn = run_op("gumbel_softmax", {"X": x}, {"hard": True, "axis": 1})["Out"].numpy()
    assert set(drawn.sum(axis=1).tolist()) == {1.0}
    np.testing.assert_allclose(drawn.mean(axis=0), [0.7, 0.2, 0.1], atol=0.03)


def test_soft_choices_add_up_to_one() -> None:
    drawn = run_op("gumbel_softmax", {"X": X}, {"temperature": 0.5})["Out"].numpy()
    np.testing.assert_allclose(drawn.sum(axis=1), [1, 1], rtol=1e-6)


def test_draws_of_dirichlet_have_the_mean_of_their_concentrations() -> None:
    drawn = run_op("dirichlet", {"Alpha": np.tile(f32([1, 3]), (4000, 1))})["Out"].numpy()
    np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(drawn.mean(axis=0), [0.25, 0.75], atol=0.02)


def test_slopes_are_drawn_where_numbers_are_negative() -> None:
    x = f32([-1] * 4000 + [2])
    found = run_op("rrelu", {"X": x}, {"lower": 0.2, "upper": 0.4})
    out, noise = found["Out"].numpy(), found["Noise"].numpy()
    assert noise[:-1].min() >= 0.2 and noise[:-1].max() <= 0.4 and noise[-1] == 1
    np.testing.assert_allclose(out, x * noise)
    np.testing.assert_allclose(noise[:-1].mean(), 0.3, atol=0.01)


GRADIENTS: list[tuple[str, dict[str, Any], list[str], dict[str, Any]]] = [
    *((name, {"x": np.where(WIDE > 1, WIDE, -WIDE)}, ["x"], {}) for name in ("i0", "i0e", "i1", "i1e")),
    *(("polygamma", {"x": WIDE}, ["x"], {"n": n}) for n in (0, 1, 2)),
    *(
        ("logcumsumexp", {"X": WIDE}, ["X"], {"axis": axis, "reverse": reverse})
        for axis, reverse in ((0, False), (1, True))
    ),
    ("logcumsumexp", {"X": WIDE}, ["X"], {"flatten": True}),
    ("renorm", {"X": WIDE}, ["X"], {"p": 2.0, "axis": 0, "max_norm": 2.0}),
    ("renorm", {"X": WIDE}, ["X"], {"p": 3.0, "axis": 1, "max_norm": 1.5}),
    *(("identity_loss", {"X": WIDE}, ["X"], {"reduction": reduction}) for reduction in (0, 1, 2)),
    ("rrelu", {"X": WIDE - 1}, ["X"], {"is_test": True}),
    ("fused_softmax_mask", {"X": WIDE.reshape(1, 3, 1, 2), "Mask": WIDE[:1, :2].reshape(1, 1, 1, 2)}, ["X"], {}),
    ("fused_softmax_mask_upper_triangle", {"X": np.tile(WIDE[:, :2], (1, 2, 1, 1))}, ["X"], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "wrt", "attrs"), GRADIENTS)
def test_gradients(op_type: str, inputs: dict[str, Any], wrt: list[str], attrs: dict[str, Any]) -> None:
    check_gradient(op_type, inputs, wrt, attrs)


REFUSALS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("i0", {"x": i64([1])}, {}, "x must be floating point, found int64"),
    ("polygamma", {"x": X}, {"n": -1}, "n must not be negative, found -1"),
    ("logcumsumexp", {"X": X}, {"axis": 2}, "axis 2 is out of range"),
    ("logcumsumexp", {"X": i64([1])}, {}, "X must be floating point"),
    ("renorm", {"X": X}, {"p": 2.0, "axis": 5, "max_norm": 1.0}, "axis 5 is out of range"),
    ("nanmedian", {"X": X}, {"axis": [4]}, "axis"),
    ("identity_loss", {"X": X}, {"reduction": 7}, "reduction must be 0 .sum., 1 .mean. or 2 .none., found 7"),
    ("check_finite_and_unscale", {"X": [X], "Scale": X[0]}, {}, "Scale must hold one number"),
    ("fused_softmax_mask", {"X": X, "Mask": X}, {}, "Mask .N, 1, m, n."),
    ("fused_softmax_mask_upper_triangle", {"X": X}, {}, "X must be .N, heads, n, n."),
    ("gumbel_softmax", {"X": X}, {"temperature": 0.0}, "temperature must be positive, found 0"),
    ("gumbel_softmax", {"X": X}, {"axis": 3}, "axis 3 is out of range"),
    ("dirichlet", {"Alpha": -X}, {}, "Alpha must hold rows of positive numbers"),
    ("rrelu", {"X": X}, {"lower": 0.5, "upper": 0.1}, "found 0.5 and 0.1"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), REFUSALS)
def test_refusals(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"{op_type}: .*{message}"):
        run_op(op_type, inputs, attrs)
