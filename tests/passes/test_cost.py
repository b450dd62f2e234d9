"""Multiply-adds and memory, by the formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fluidtool.ir import Program
from fluidtool.passes.cost import count, footprint, input_metas
from fluidtool.runtime.plan import Plan
from tests.cli.support import linear_program


def one_operator(
    kind: str, inputs: dict[str, tuple[str, list[int]]], output: tuple[str, list[int]], **attrs: Any
) -> Program:
    """A program of one operator; shapes by slot."""
    program = Program()
    block = program.global_block()
    for name, shape in [*inputs.values(), output]:
        block.create_var(name=name, shape=shape, dtype="float32")
    slot = (
        "Output"
        if "conv" in kind and not kind.startswith("sequence")
        else "Hidden"
        if kind in ("lstm", "gru")
        else "Out"
    )
    names = {slot_name: [name] for slot_name, (name, _) in inputs.items()}
    block.append_op(type=kind, inputs=names, outputs={slot: [output[0]]}, attrs=attrs)
    return program


CONV = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1}


@pytest.mark.parametrize(
    ("build", "multiply_adds"),
    [
        (
            partial(
                one_operator,
                "conv2d",
                {"Input": ("x", [2, 3, 8, 8]), "Filter": ("w", [16, 3, 3, 3])},
                ("y", [2, 16, 8, 8]),
                **CONV,
            ),
            2 * 16 * 64 * 27,
        ),
        (
            partial(
                one_operator,
                "depthwise_conv2d",
                {"Input": ("x", [1, 8, 4, 4]), "Filter": ("w", [8, 1, 3, 3])},
                ("y", [1, 8, 4, 4]),
                **(CONV | {"groups": 8}),
            ),
            8 * 16 * 9,
        ),
        (
            partial(
                one_operator,
                "conv2d_transpose",
                {"Input": ("x", [1, 4, 5, 5]), "Filter": ("w", [4, 6, 2, 2])},
                ("y", [1, 6, 10, 10]),
                **(CONV | {"strides": [2, 2], "paddings": [0, 0]}),
            ),
            4 * 25 * 6 * 4,
        ),
        (
            partial(
                one_operator,
                "mul",
                {"X": ("x", [2, 3, 4]), "Y": ("w", [12, 5])},
                ("y", [2, 5]),
                x_num_col_dims=1,
                y_num_col_dims=1,
            ),
            2 * 12 * 5,
        ),
        (
            partial(
                one_operator,
                "matmul",
                {"X": ("x", [7, 2, 4]), "Y": ("w", [7, 3, 4])},
                ("y", [7, 2, 3]),
                transpose_X=False,
                transpose_Y=True,
                alpha=1.0,
            ),
            7 * 2 * 3 * 4,
        ),
        (
            partial(
                one_operator,
                "matmul_v2",
                {"X": ("x", [6, 2, 4]), "Y": ("w", [4, 9])},
                ("y", [6, 2, 9]),
                trans_x=False,
                trans_y=False,
            ),
            6 * 2 * 9 * 4,
        ),
        (partial(one_operator, "bmm", {"X": ("x", [3, 2, 4]), "Y": ("w", [3, 4, 5])}, ("y", [3, 2, 5])), 3 * 2 * 4 * 5),
        (
            partial(
                one_operator,
                "lstm",
                {"Input": ("x", [10, 32]), "Weight": ("w", [8, 32]), "Bias": ("b", [1, 32])},
                ("y", [10, 8]),
            ),
            10 * 8 * 32,
        ),
        (
            partial(
                one_operator,
                "sequence_conv",
                {"X": ("x", [10, 4]), "Filter": ("w", [12, 5])},
                ("y", [10, 5]),
                contextLength=3,
            ),
            10 * 12 * 5,
        ),
        (partial(one_operator, "relu", {"X": ("x", [10, 4])}, ("y", [10, 4])), 0),
    ],
    ids=lambda value: value.args[0] if isinstance(value, partial) else "",
)
def test_multiply_adds(build: Callable[[], Program], multiply_adds: int) -> None:
    assert count(build()).multiply_adds == multiply_adds


def test_an_unknown_batch_counts_as_asked_for() -> None:
    program = linear_program()
    assert count(program).multiply_adds == 12
    assert count(program, batch=5).multiply_adds == 60
    assert count(program, input_metas(program, ["x"], shapes={"x": (7, 4)})).by_operator == {"mul": 84}


def test_what_cannot_be_counted_is_named() -> None:
    program = one_operator(
        "mul", {"X": ("x", [2, -1]), "Y": ("w", [-1, 5])}, ("y", [2, 5]), x_num_col_dims=1, y_num_col_dims=1
    )
    assert count(program).unknown == ("mul",)


def test_the_memory_of_a_plan() -> None:
    program = linear_program()
    memory = footprint(Plan(program, ("probability",), True), input_metas(program, ["x"]))
    assert memory.by_step == (16 + 12, 24, 24, 24)
    assert (memory.peak, memory.unknown) == (28, ())


def test_memory_of_unknown_size_is_named() -> None:
    program = linear_program()
    program.global_block().var("x").shape = [-1, -1]
    assert "x" in footprint(Plan(program, ("probability",), True), input_metas(program, ["x"])).unknown
