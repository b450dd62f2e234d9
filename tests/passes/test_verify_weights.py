"""Findings about the values of parameters; samples without any are in test_verify.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.io.layout import open_model
from fluidtool.ir import Program
from fluidtool.passes.findings import Finding
from fluidtool.passes.verify import verify_model
from fluidtool.tensor.statistics import not_finite
from tests.cli.support import BIAS, WEIGHT, linear_program, write_model

INFINITY = float("inf")


def found(folder: Path, program: Program | None = None, **changes: Any) -> list[Finding]:
    values = {"w": WEIGHT, "b": BIAS, **{name: np.asarray(value, "float32") for name, value in changes.items()}}
    return verify_model(open_model(write_model(folder, program or linear_program(), **values)))


def summary(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.code, each.variable) for each in findings]


def transposed_program() -> Program:
    """x times w transposed: its rows are output channels."""
    program = linear_program()
    multiply = next(op for op in program.global_block().ops if op.type == "mul")
    multiply.type = "matmul"
    for name in ("x_num_col_dims", "y_num_col_dims"):
        multiply.remove_attr(name)
    multiply.set_attr("transpose_Y", True)
    program.global_block().vars["w"].shape = [3, 4]
    return program


def convolution_program(kind: str, shape: list[int]) -> Program:
    """A convolution of x with the filter f."""
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[-1, 2, 8, 8], dtype="float32")
    block.create_parameter(name="f", shape=shape, dtype="float32")
    block.create_var(name="y", shape=[-1, -1, -1, -1], dtype="float32")
    block.append_op(type=kind, inputs={"Input": ["x"], "Filter": ["f"]}, outputs={"Output": ["y"]}, attrs={})
    return program


# ---------------------------------------------------------------- NaN and infinity
def test_nan_and_infinity_are_counted_separately(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[0, 0], weight[1] = np.nan, [INFINITY, -INFINITY, 1]
    assert [(each.code, each.message) for each in found(tmp_path, w=weight)] == [
        ("FC305", "w contains NaN in 1 of 12 elements"),
        ("FC306", "w contains infinity in 2 of 12 elements"),
    ]


def test_a_mask_may_contain_infinity(tmp_path: Path) -> None:
    assert found(tmp_path, b=[0, -INFINITY, 0]) == []


@pytest.mark.parametrize("bias", [[0, 1, INFINITY], [0, -INFINITY, INFINITY]])
def test_what_is_not_a_mask_may_not(tmp_path: Path, bias: list[float]) -> None:
    assert summary(found(tmp_path, b=bias)) == [("FC306", "b")]


def test_counting_covers_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluidtool.tensor.statistics.CHUNK", 2)
    assert not_finite(np.array([1, np.nan, INFINITY, 0, np.nan])) == (2, 1)
    assert not_finite(np.array([1, 2], "int64")) == (0, 0)


# ---------------------------------------------------------------- weights without information
def test_a_constant_weight_is_found(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, w=np.full((4, 3), 0.5))
    assert (finding.code, finding.variable) == ("FC307", "w")
    assert finding.message == "all 12 elements of w are 0.5; operator mul takes it as its weight"


def test_a_constant_bias_is_not_a_finding(tmp_path: Path) -> None:
    assert found(tmp_path, b=np.zeros(3)) == []


def test_dead_columns_of_a_matrix_are_counted(tmp_path: Path) -> None:
    weight = WEIGHT - 5
    weight[:, 1] = 0
    (finding,) = found(tmp_path, w=weight)
    assert (finding.code, finding.variable) == ("FC308", "w")
    assert finding.message.startswith("1 of 3 output channels of w are zero throughout")


def test_a_matrix_without_a_negative_number_is_a_mask(tmp_path: Path) -> None:
    mask = np.abs(WEIGHT)
    mask[:, 1] = 0
    assert found(tmp_path, w=mask) == []


def test_a_row_of_zeros_is_an_input_that_does_not_count(tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[1] = 0
    assert found(tmp_path, w=weight) == []


def test_rows_of_a_transposed_matrix_are_its_channels(tmp_path: Path) -> None:
    weight = (WEIGHT - 5).T.copy()
    weight[1] = 0
    assert summary(found(tmp_path / "rows", transposed_program(), w=weight)) == [("FC308", "w")]
    weight = (WEIGHT - 5).T.copy()
    weight[:, 1] = 0
    assert found(tmp_path / "columns", transposed_program(), w=weight) == []


@pytest.mark.parametrize(("kind", "axis"), [("conv2d", 0), ("conv2d_transpose", 1)])
def test_channels_of_a_convolution(tmp_path: Path, kind: str, axis: int) -> None:
    shape = [2, 2, 3, 3]
    for dead in (0, 1):
        filters = np.arange(1, 37, dtype="float32").reshape(shape)
        filters[(slice(None),) * dead + (1,)] = 0
        folder = write_model(tmp_path / str(dead), convolution_program(kind, shape), f=filters)
        codes = [each.code for each in verify_model(open_model(folder))]
        assert codes == (["FC308"] if dead == axis else [])


# ---------------------------------------------------------------- unused parameters
def with_unused_parameter() -> Program:
    program = linear_program()
    program.global_block().create_parameter(name="spare", shape=[3], dtype="float32")
    return program


def test_a_parameter_that_no_operator_uses(tmp_path: Path) -> None:
    assert summary(found(tmp_path, with_unused_parameter(), spare=BIAS)) == [("FC309", "spare")]


def test_without_fetch_operators_any_parameter_may_be_fetched(tmp_path: Path) -> None:
    program = with_unused_parameter()
    program.global_block().ops = program.global_block().ops[:-1]
    assert found(tmp_path, program, spare=BIAS) == []


def test_the_program_alone(tmp_path: Path) -> None:
    program = with_unused_parameter()
    files = open_model(write_model(tmp_path, program, w=WEIGHT * np.nan), need_parameters=False)
    assert [each.code for each in verify_model(files)][-1] == "FC309"
    assert verify_model(files, parameters=False) == []
