"""Inferencer: predictions with what a Trainer saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, FluidError, UsageError
from fluidtool.fluid.inferencer import Inferencer
from fluidtool.fluid.trainer import Trainer
from fluidtool.tensor import LoDTensor

X = np.arange(12, dtype="float32").reshape(4, 3)


def predict() -> Any:
    x = fluid.layers.data(name="x", shape=[3], dtype="float32")
    return fluid.layers.fc(fluid.layers.dropout(x, 0.5, dropout_implementation="upscale_in_train"), size=2)


def train() -> Any:
    y = fluid.layers.data(name="y", shape=[2], dtype="float32")
    return fluid.layers.mean(fluid.layers.square_error_cost(predict(), y))


@pytest.fixture
def trained(tmp_path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    """(the folder of the parameters, what they make of X)."""
    trainer = Trainer(train, lambda: fluid.optimizer.SGD(learning_rate=0.1), place=fluid.CPUPlace())
    trainer.save_params(str(tmp_path))
    weight, bias = (np.array(trainer.scope.find_var(name).value) for name in ("fc_0.w_0", "fc_0.b_0"))  # type: ignore[union-attr]
    return str(tmp_path), X @ weight + bias


def test_it_predicts_with_the_trainers_parameters(trained: tuple[str, Any]) -> None:
    (found,) = Inferencer(predict, trained[0], place=fluid.CPUPlace()).infer({"x": X})
    np.testing.assert_allclose(found, trained[1], rtol=1e-6)


def test_a_second_one_finds_the_same_names(trained: tuple[str, Any]) -> None:
    Inferencer(predict, trained[0], place=fluid.CPUPlace())
    (found,) = Inferencer(predict, trained[0], place=fluid.CPUPlace()).infer({"x": X})
    np.testing.assert_allclose(found, trained[1], rtol=1e-6)


def test_without_return_numpy_it_gives_a_tensor(trained: tuple[str, Any]) -> None:
    (found,) = Inferencer(predict, trained[0], place=fluid.CPUPlace()).infer({"x": X}, return_numpy=False)
    assert isinstance(found, LoDTensor)


def test_in_parallel_the_parts_come_back_as_one_batch(
    trained: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    (found,) = Inferencer(predict, trained[0], place=fluid.CPUPlace(), parallel=True).infer({"x": X})
    np.testing.assert_allclose(found, trained[1], rtol=1e-6)


def test_it_leaves_the_global_scope_alone(trained: tuple[str, Any]) -> None:
    with fluid.scope_guard(fluid.Scope()):
        Inferencer(predict, trained[0], place=fluid.CPUPlace()).infer({"x": X})
        assert fluid.global_scope().local_var_names() == []


def test_inputs_must_be_a_map(trained: tuple[str, Any]) -> None:
    with pytest.raises(UsageError, match="inputs should be a map"):
        Inferencer(predict, trained[0], place=fluid.CPUPlace()).infer([X])  # type: ignore[arg-type]


def test_a_missing_input_is_named(trained: tuple[str, Any]) -> None:
    with pytest.raises(FluidError, match="variable x"):
        Inferencer(predict, trained[0], place=fluid.CPUPlace()).infer({})


def test_parameters_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FluidError, match=r"fc_0\.w_0"):
        Inferencer(predict, str(tmp_path / "none"), place=fluid.CPUPlace())


def test_infer_func_must_return_a_variable(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="infer_func must return one Variable"):
        Inferencer(lambda: None, str(tmp_path), place=fluid.CPUPlace())  # type: ignore[arg-type, return-value]
