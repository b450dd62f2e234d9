"""`fluid.core.create_paddle_predictor`: a saved model gives what its program gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.compat import install
from fluidtool.compat.predictor import (
    AnalysisConfig,
    NativeConfig,
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    create_paddle_predictor,
)
from fluidtool.errors import ArgumentTypeError, FeedError, NotOfferedError, UsageError

X = np.array([[1, 2], [3, 4]], "float32")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two inputs; their difference, and how much the first is summed by sequence."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 2], "float32", lod_level=1)
        y = fluid.data("y", [None, 2], "float32")
        outputs = [x - y, fluid.layers.sequence_pool(x, "sum")]
        fluid.io.save_inference_model(str(tmp_path), ["x", "y"], outputs, fluid.Executor(), params_filename="params")
    return tmp_path


def test_inputs_in_order_or_by_name(model: Path) -> None:
    predictor = create_paddle_predictor(AnalysisConfig(str(model / "__model__"), str(model / "params")))
    lod = [[0, 1, 2]]
    in_order = predictor.run([PaddleTensor(2 * X, lod=lod), PaddleTensor(X)])
    by_name = predictor.run([PaddleTensor(X, "y"), PaddleTensor(2 * X, "x", lod)])
    for difference, pooled in (in_order, by_name):
        assert (difference.as_ndarray() == X).all()
        assert (difference.shape, difference.dtype, difference.data.length()) == ([2, 2], PaddleDType.FLOAT32, 16)
        assert (pooled.as_ndarray() == 2 * X).all()
    assert predictor.get_input_tensor_shape() == {"x": [-1, 2], "y": [-1, 2]}


def test_copied_in_and_out(model: Path) -> None:
    config = AnalysisConfig(str(model / "__model__"), str(model / "params"))
    config.switch_use_feed_fetch_ops(False)
    predictor = create_paddle_predictor(config)
    x, y = (predictor.get_input_tensor(name) for name in predictor.get_input_names())
    x.reshape([2, 2])
    x.set_lod([[0, 2]])
    x.copy_from_cpu(X)
    y.copy_from_cpu(0 * X)
    assert predictor.zero_copy_run()
    pooled = predictor.get_output_tensor(predictor.get_output_names()[1])
    assert (pooled.copy_to_cpu().tolist(), pooled.shape(), pooled.type()) == ([[4, 6]], [1, 2], PaddleDType.FLOAT32)


def test_a_native_config_names_a_folder(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 2], "float32")
        fluid.io.save_inference_model(str(tmp_path), ["x"], [x + x], fluid.Executor())
    (doubled,) = create_paddle_predictor(NativeConfig(model_dir=str(tmp_path))).run([PaddleTensor(X)])
    assert (doubled.as_ndarray() == 2 * X).all()
    assert float(doubled.as_ndarray()[:1, :1]) == 2


def test_too_few_inputs(model: Path) -> None:
    predictor = create_paddle_predictor(AnalysisConfig(str(model / "__model__"), str(model / "params")))
    with pytest.raises(FeedError, match=r"takes 2 inputs \(x, y\), found 1"):
        predictor.run([PaddleTensor(X)])
    with pytest.raises(UsageError, match="no 'z'; expected one of x, y"):
        predictor.get_input_tensor("z")


def test_a_tensor_by_its_parts() -> None:
    tensor = PaddleTensor()
    tensor.data, tensor.shape, tensor.dtype = PaddleBuf(np.arange(4)), [2, 2], PaddleDType.INT64
    assert tensor.as_ndarray().tolist() == [[0, 1], [2, 3]]
    assert (PaddleBuf([1.5]).float_data(), PaddleBuf().empty(), PaddleBuf(8).float_data()) == ([1.5], True, [0, 0])
    tensor.shape = [3]
    with pytest.raises(UsageError, match=r"of the shape \(3,\) has 4 numbers of INT64"):
        tensor.as_ndarray()


def test_other_data_types_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="holds float32, int64 or int32, found float64"):
        PaddleTensor(np.ones(2))


def test_settings_that_change_no_number_are_taken_and_others_named() -> None:
    config = AnalysisConfig("folder")
    config.switch_ir_optim(True)
    config.enable_memory_optim()
    config.enable_use_gpu(100, 1)
    assert (config.model_dir(), config.prog_file(), config.use_gpu()) == ("folder", "", True)
    config.disable_gpu()
    assert not config.use_gpu()
    with pytest.raises(NotOfferedError, match="enable_tensorrt_engine is not offered: TensorRT is not supported"):
        config.enable_tensorrt_engine(workspace_size=1)
    with pytest.raises(AttributeError, match="no attribute 'enable_nothing'"):
        config.enable_nothing()


def test_scripts_find_them_in_core() -> None:
    with install():
        from paddle.fluid.core import AnalysisConfig as found  # type: ignore[import-not-found]

        assert found is AnalysisConfig


def test_the_files_may_be_set_one_by_one(model: Path) -> None:
    config = AnalysisConfig("")
    config.set_prog_file(str(model / "__model__"))
    config.set_params_file(str(model / "params"))
    assert (config.model_dir(), config.params_file()) == ("", str(model / "params"))
    assert create_paddle_predictor(config).get_input_names() == ["x", "y"]
    assert create_paddle_predictor(config.to_native_config()).get_input_names() == ["x", "y"]


def test_a_model_in_memory(model: Path) -> None:
    program, parameters = ((model / name).read_bytes() for name in ("__model__", "params"))
    config = AnalysisConfig()
    assert not config.model_from_memory()
    config.set_model_buffer(program, len(program), parameters, len(parameters))
    assert config.model_from_memory()
    difference, _ = create_paddle_predictor(config).run([PaddleTensor(2 * X, lod=[[0, 2]]), PaddleTensor(X)])
    assert (difference.as_ndarray() == X).all()


@pytest.mark.parametrize(
    ("setter", "values", "getter", "before", "after"),
    [
        ("switch_ir_optim", [False], "ir_optim", True, False),
        ("switch_use_feed_fetch_ops", [False], "use_feed_fetch_ops_enabled", True, False),
        ("switch_specify_input_names", [], "specify_input_name", False, True),
        ("set_cpu_math_library_num_threads", [4], "cpu_math_library_num_threads", 1, 4),
        ("enable_mkldnn", [], "mkldnn_enabled", False, True),
        ("disable_glog_info", [], "glog_info_disabled", False, True),
        ("enable_use_gpu", [500, 1], "gpu_device_id", 0, 1),
        ("enable_use_gpu", [500, 1], "memory_pool_init_size_mb", 100, 500),
    ],
)
def test_settings_are_told(setter: str, values: list[Any], getter: str, before: Any, after: Any) -> None:
    config = AnalysisConfig("folder")
    assert getattr(config, getter)() == before
    getattr(config, setter)(*values)
    assert getattr(config, getter)() == after
    assert config.tensorrt_engine_enabled() is False
