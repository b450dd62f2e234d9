"""`fluid.Variable` as documented: its arguments and methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import Program, core

VarType = core.VarDesc.VarType


def test_the_example() -> None:
    cur_program = Program()
    cur_block = cur_program.current_block()
    new_variable = cur_block.create_var(name="X", shape=[-1, 23, 48], dtype="float32")
    assert (new_variable.name, new_variable.shape, new_variable.dtype) == ("X", (-1, 23, 48), VarType.FP32)


def test_the_defaults() -> None:
    block = Program().global_block()
    var = fluid.Variable(block)
    assert var.block is block and var.type == VarType.LOD_TENSOR
    assert (var.persistable, var.error_clip, var.stop_gradient, var.is_data) == (False, None, False, False)
    assert (var.has_shape, var.dtype, var.lod_level, var.capacity) == (False, None, 0, None)


def test_a_name_is_generated() -> None:
    block = Program().global_block()
    assert [block.create_var(name=None).name for _ in range(2)] == ["_generated_var_0", "_generated_var_1"]


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("type", VarType.SELECTED_ROWS, VarType.SELECTED_ROWS),
        ("type", VarType.LOD_TENSOR_ARRAY, VarType.LOD_TENSOR_ARRAY),
        ("name", "mine", "mine"),
        ("shape", (2, 3), (2, 3)),
        ("shape", [-1, 3], (-1, 3)),
        ("dtype", "int64", VarType.INT64),
        ("dtype", np.float64, VarType.FP64),
        ("dtype", np.dtype("uint8"), VarType.UINT8),
        ("dtype", VarType.FP16, VarType.FP16),
        ("lod_level", 2, 2),
        ("capacity", 10, 10),
        ("persistable", True, True),
        ("persistable", None, False),
        ("stop_gradient", True, True),
        ("is_data", True, True),
    ],
)
def test_an_argument(argument: str, value: Any, expected: Any) -> None:
    var = fluid.Variable(Program().global_block(), **{argument: value})
    assert getattr(var, argument) == expected


def test_the_error_clip_argument() -> None:
    clip = fluid.clip.ErrorClipByValue(max=1.0)
    assert Program().global_block().create_var(name="x", error_clip=clip).error_clip is clip


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"shape": [2, 3]}, {"shape": [3, 2]}),
        ({"dtype": "float32"}, {"dtype": "int64"}),
        ({"lod_level": 0}, {"lod_level": 1}),
        ({"type": VarType.LOD_TENSOR}, {"type": VarType.SELECTED_ROWS}),
        ({"persistable": False}, {"persistable": True}),
    ],
)
def test_a_variable_is_not_redefined_with_other_fields(first: dict[str, Any], second: dict[str, Any]) -> None:
    block = Program().global_block()
    block.create_var(name="x", **first)
    with pytest.raises(ValueError, match="Variable x has been created before"):
        block.create_var(name="x", **second)


def test_a_variable_is_found_again_with_the_same_fields() -> None:
    block = Program().global_block()
    var = block.create_var(name="x", shape=[2], dtype="float32")
    assert block.create_var(name="x", shape=[2], dtype="float32") is var


@pytest.mark.parametrize("throw_on_error", [True, False])
def test_to_string(throw_on_error: bool) -> None:
    var = Program().global_block().create_var(name="x", shape=[-1, 3], dtype="float32", stop_gradient=True)
    plain = var.to_string(throw_on_error)
    detailed = var.to_string(throw_on_error, with_details=True)
    assert 'name: "x"' in plain and "dims: 3" in plain
    assert "stop_gradient" not in plain and "stop_gradient: True" in detailed and "error_clip: None" in detailed


def test_to_string_of_a_parameter_with_details() -> None:
    text = Program().global_block().create_parameter(name="w", shape=[1], dtype="float32").to_string(True, True)
    for line in ("trainable: True", "optimize_attr: {'learning_rate': 1.0}", "regularizer: None"):
        assert line in text


def test_to_string_takes_truth_values_only() -> None:
    with pytest.raises((TypeError, AssertionError)):
        Program().global_block().create_var(name="x").to_string("yes")  # type: ignore[arg-type]


def test_set_desc_takes_the_fields_of_another_description() -> None:
    block = Program().global_block()
    var = block.create_var(name="x", shape=[1], dtype="float32")
    other = (
        Program()
        .global_block()
        .create_var(name="x", shape=[4, 5], dtype="int64", lod_level=1, persistable=True, type=VarType.SELECTED_ROWS)
    )
    assert var.set_desc(other.desc) is None
    assert (var.shape, var.dtype, var.lod_level, var.persistable) == ((4, 5), VarType.INT64, 1, True)
    assert var.type == VarType.SELECTED_ROWS


def test_set_desc_takes_descriptions_only() -> None:
    with pytest.raises(TypeError, match="set_desc takes the description of a variable, found str"):
        Program().global_block().create_var(name="x").set_desc("y")


def test_set_error_clip_bounds_the_gradient_of_the_variable() -> None:
    x = fluid.layers.data("x", [2])
    hidden = fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.scale(hidden, scale=100.0))
    assert hidden.set_error_clip(fluid.clip.ErrorClipByValue(max=0.5)) is None  # type: ignore[func-returns-value]
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.full((1, 2), 3, "float32")}
    (gradient,) = exe.run(feed=feed, fetch_list=["w@GRAD"])
    np.testing.assert_allclose(gradient, [[1.5], [1.5]])  # 0.5 instead of 100, times 3


def test_set_error_clip_takes_error_clips_only() -> None:
    with pytest.raises(TypeError, match="error_clip"):
        Program().global_block().create_var(name="x").set_error_clip(3)


@pytest.mark.parametrize("dtype", ["float64", np.float64, VarType.FP64])
def test_astype(dtype: Any) -> None:
    x = fluid.layers.data("x", [2])
    y = x.astype(dtype)
    assert y.dtype == VarType.FP64 and x.dtype == VarType.FP32
    (out,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])
    assert out.dtype == np.float64
