"""Loops, branches, recurrent blocks and decoders compute what real Paddle 1.8.5 computes, gradients included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from tests.fluid import control_flow_networks


def floats(values: Any) -> Any:
    return np.array(values, "float32")


def integers(values: Any) -> Any:
    return np.array(values, "int64")


def sequences(values: Any, lengths: list[int]) -> Any:
    return fluid.create_lod_tensor(values, [lengths], fluid.CPUPlace())


X = floats([[0.5, -1.0], [0.25, 0.75], [1.0, -0.5], [-0.25, 0.5], [0.75, -0.75], [1.5, 0.0]])
START = floats([[0.5, -1], [1, 0.25]])
# network, feed, what real Paddle 1.8.5 gave (six decimals)
CASES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("squares_by_while", {}, [[0, 1, 4, 9, 16], [5]]),
    ("powers_by_while_loop", {"x": floats([10])}, [[3], [12.0]]),
    ("powers_by_while_loop", {"x": floats([1])}, [[0], [1.5]]),
    (
        "trained_loop",
        {"x": floats([[0.5, -1, 0.25], [1, 0.5, -0.75]])},
        [
            [[-0.008992, -0.013463, -0.017934], [-0.095662, -0.085527, -0.075375]],
            [[-0.161089, -0.00021, 0.160669], [-0.118123, 0.002772, 0.123668]],
            [[0.902578, 0.40647, -0.098845], [0.38374, -0.092482, -0.576641], [0.263836, -0.201756, -0.674648]],
        ],
    ),
    ("branches", {"x": floats([1, 2]), "index": integers([1])}, [[2.0, 3.0], [4.0, 8.0], [0.5, 1.0]]),
    ("branches", {"x": floats([-1, -2]), "index": integers([3])}, [[-2.0, -3.0], [-2.0, -4.0], [-0.25, -0.5]]),
    ("branches", {"x": floats([6, 8]), "index": integers([7])}, [[7.0, 9.0], [18.0, 24.0], [6.0, 8.0]]),
    ("trained_branch", {"x": floats([1, 2, 3])}, [[-0.8, -2.4, -3.6]]),
    ("trained_branch", {"x": floats([-1, -2, 1])}, [[-1.0, -2.0, 1.0]]),
    ("switched_rate", {"step": floats([3])}, [[0.5]]),
    ("switched_rate", {"step": floats([10])}, [[0.25]]),
    ("switched_rate", {"step": floats([50])}, [[0.125]]),
    (
        "rows_by_if_else",
        {"x": floats([[1], [-2], [3], [-4]])},
        [[[2.0], [2.0], [6.0], [4.0]], [[2.0], [-1.0], [2.0], [-1.0]]],
    ),
    ("rows_by_if_else", {"x": floats([[1], [2]])}, [[[2.0], [4.0]], [[2.0], [2.0]]]),
    (
        "static_rnn",
        {"x": X.reshape(3, 2, 2)},
        [
            [
                [[0.099668, 0.148885], [-0.148885, 0.049958]],
                [[-0.263832, -0.192919], [0.009991, 0.025094]],
                [[-0.18638, -0.230066], [-0.533469, -0.414864]],
            ],
            [[3.388789, 4.231204], [-0.987377, -1.098112], [0.815139, 1.305042], [1.159805, 1.731206]],
        ],
    ),
    (
        "dynamic_rnn",
        {"x": sequences(X, [2, 3, 1]), "context": floats([[0.5], [-0.5], [1.0]])},
        [
            [[-0.049958], [-0.349618], [-0.291313], [0.058197], [-0.036623], [-0.664037]],
            [
                [-0.328956, -0.246717],
                [-0.351107, -0.26333],
                [-0.307665, -0.230749],
                [-0.319023, -0.239267],
                [-0.399464, -0.299598],
                [-0.223622, -0.167717],
            ],
            [[-0.170016], [-0.256538], [-0.055906]],
            [[2.787986], [-0.89886], [0.857231], [0.126444]],
        ],
    ),
    (
        "cells",
        {"x": X.reshape(2, 3, 2), "length": integers([2, 3])},
        [
            [
                [[0.127267, 0.127267], [0.225336, 0.225336], [0.107231, 0.107231]],
                [[0.197131, 0.197131], [0.172462, 0.172462], [0.183123, 0.183123]],
            ],
            [[0.127267, 0.127267], [0.197131, 0.197131]],
            [
                [[-0.011871, -0.011871], [0.119928, 0.119928], [0.190529, 0.190529]],
                [[0.051048, 0.051048], [0.074278, 0.074278], [0.277294, 0.277294]],
            ],
            [[0.119928, 0.119928], [0.277294, 0.277294]],
            [[0.203663, 0.203663], [0.46027, 0.46027]],
        ],
    ),
    ("beams", {"start": START}, [[[[1, 0, 0], [1, 0, 1]], [[1, 0, 0], [1, 0, 1]]], [[2, 1, 2], [2, 1, 2]]]),
    (
        "greedy",
        {"start": START, "tokens": integers([2, 4])},
        [[[4, 4, 4, 4], [4, 4, 4, 4]], [[-0.08102, -0.071526], [-0.078411, -0.084724]]],
    ),
    (
        "teacher",
        {"start": START, "x": X.reshape(2, 3, 2), "length": integers([3, 1])},
        [
            [
                [
                    [-0.067488, -0.053494, -0.039501, -0.025508, -0.011515],
                    [-0.066009, -0.005164, 0.055681, 0.116526, 0.17737],
                    [0.006756, 0.055142, 0.103528, 0.151914, 0.200299],
                ],
                [
                    [-0.342707, -0.273054, -0.203401, -0.133748, -0.064095],
                    [-0.054651, 0.002165, 0.058981, 0.115797, 0.172613],
                    [-0.019118, 4.8e-05, 0.019213, 0.038379, 0.057545],
                ],
            ],
            [3, 1],
            [[0.009365, 0.095876], [0.532995, -0.587577]],
        ],
    ),
]


@pytest.mark.parametrize(("name", "feed", "expected"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_network_gives_the_numbers_of_real_paddle(name: str, feed: dict[str, Any], expected: list[Any]) -> None:
    found = run(name, feed)
    assert len(found) == len(expected)
    for value, wanted in zip(found, expected, strict=True):
        assert value.shape == np.array(wanted).shape
        np.testing.assert_allclose(value, wanted, rtol=2e-6, atol=2e-6)


def run(name: str, feed: dict[str, Any]) -> list[Any]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetched = getattr(control_flow_networks, name)(fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        return [np.array(value) for value in executor.run(main, feed=feed, fetch_list=fetched, return_numpy=False)]


def test_dynamic_rnn_keeps_the_lod_of_its_input() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out = control_flow_networks.dynamic_rnn(fluid)[0]
    executor = fluid.Executor(fluid.CPUPlace())
    feed = {"x": sequences(X, [2, 3, 1]), "context": floats([[0.5], [-0.5], [1.0]])}
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        found = executor.run(main, feed=feed, fetch_list=[out], return_numpy=False)[0]
    assert found.recursive_sequence_lengths() == [[2, 3, 1]]


def test_print_passes_its_input_on_and_says_what_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [2], append_batch_size=False)
        out = fluid.layers.Print(x, message="here it is")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": floats([1, 2])}, fetch_list=[out])
    assert found.tolist() == [1, 2]
    assert "here it is" in "".join(capfd.readouterr())
