"""Every documented name takes every documented argument, with the documented default.

The tables are the signatures of the documentation; `…` stands for an argument without default. Where documents of
different versions give different defaults, that of the newer one stands. What the arguments do, the other tests show.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.compat import install

FUNCTIONS: dict[str, dict[str, Any]] = {
    "default_main_program": {},
    "default_startup_program": {},
    "program_guard": {"main_program": ..., "startup_program": None},
    "get_var": {"name": ..., "program": None},
    "global_scope": {},
    "scope_guard": {"scope": ...},
    "_switch_scope": {"scope": ...},
    "fetch_var": {"name": ..., "scope": None, "return_numpy": True},
    "make_channel": {"dtype": ..., "capacity": 0},
    "channel_send": {"channel": ..., "value": ..., "is_copy": False},
    "channel_recv": {"channel": ..., "return_value": ...},
    "channel_close": {"channel": ...},
    "memory_optimize": {
        "input_program": ...,
        "skip_opt_set": None,
        "print_log": False,
        "level": 0,
        "skip_grads": False,
    },
    "release_memory": {"input_program": ..., "skip_opt_set": None},
    "create_lod_tensor": {"data": ..., "recursive_seq_lens": ..., "place": None},
    "create_random_int_lodtensor": {
        "recursive_seq_lens": ...,
        "base_shape": ...,
        "place": ...,
        "low": ...,
        "high": ...,
    },
}

CLASSES: dict[str, dict[str, Any]] = {
    "Block": {"program": ..., "idx": ...},
    "Variable": {
        "block": ...,
        "type": fluid.core.VarDesc.VarType.LOD_TENSOR,
        "name": None,
        "shape": None,
        "dtype": None,
        "lod_level": None,
        "capacity": None,
        "persistable": None,
        "error_clip": None,
        "stop_gradient": False,
        "is_data": False,
    },
    "Program": {},
    "Operator": {"block": ..., "desc": None, "type": None, "inputs": None, "outputs": None, "attrs": None},
    "Executor": {"place": None},
    "Go": {"name": None},
    "Select": {"name": None},
    "Trainer": {
        "train_func": ...,
        "optimizer_func": ...,
        "param_path": None,
        "place": None,
        "parallel": False,
        "checkpoint_config": None,
    },
    "BeginEpochEvent": {"epoch_id": ...},
    "EndEpochEvent": {"epoch_id": ...},
    "BeginStepEvent": {"epoch_id": ..., "step_id": ...},
    "EndStepEvent": {"epoch_id": ..., "step_id": ..., "metrics": ...},
    "CheckpointConfig": {
        "checkpoint_dir": None,
        "max_num_checkpoints": 3,
        "epoch_interval": 1,
        "step_interval": 10,
    },
    "Inferencer": {"infer_func": ..., "param_path": ..., "place": None, "parallel": False},
    "DistributeTranspiler": {"config": None},
    "DistributeTranspilerConfig": {},
    "InferenceTranspiler": {},
    "HashName": {"pserver_endpoints": ...},
    "RoundRobin": {"pserver_endpoints": ...},
    "ParallelExecutor": {
        "use_cuda": ...,
        "loss_name": None,
        "main_program": None,
        "share_vars_from": None,
        "exec_strategy": None,
        "build_strategy": None,
        "num_trainers": 1,
        "trainer_id": 0,
    },
    "ExecutionStrategy": {},
    "BuildStrategy": {},
    "CompiledProgram": {"program_or_graph": ..., "build_strategy": None},
    "LoDTensor": {},
    "CPUPlace": {},
    "CUDAPlace": {},
    "CUDAPinnedPlace": {},
    "ParamAttr": {
        "name": None,
        "initializer": None,
        "learning_rate": 1.0,
        "regularizer": None,
        "trainable": True,
        "gradient_clip": None,
        "do_model_average": True,
    },
    "WeightNormParamAttr": {"dim": None},
    "DataFeeder": {"feed_list": ..., "place": ..., "program": None},
    "Scope": {},
}

METHODS: dict[str, dict[str, Any]] = {
    "Block.to_string": {"throw_on_error": False, "with_details": False},
    "Block.set_forward_block_idx": {"idx": ...},
    "Block.var": {"name": ...},
    "Block.var_recursive": {"name": ...},
    "Block.rename_var": {"name": ..., "new_name": ...},
    "Block.append_op": {},
    "Block.insert_op": {"index": ...},
    "Block.remove_op": {"index": ...},
    "Block.slice_ops": {"start": ..., "end": ...},
    "Block.sync_with_cpp": {},
    "Block.copy_param_info_from": {"other": ...},
    "Block.clone_variable": {"var": ...},
    "Block.create_var": {},
    "Block.prepend_op": {},
    "Variable.to_string": {"throw_on_error": False, "with_details": False},
    "Variable.set_desc": {"input": ...},
    "Variable.set_error_clip": {"error_clip": ...},
    "Variable.astype": {"dtype": ...},
    "Program.set_op_role": {"role": ...},
    "Program.set_op_role_var": {"names": ...},
    "Program.optimized_guard": {},
    "Program.to_string": {"throw_on_error": False, "with_details": False},
    "Program.get_desc": {},
    "Program.clone": {"for_test": False},
    "Program.prune": {"targets": ...},
    "Program.inference_optimize": {},
    "Program.parse_from_string": {"binary_str": ...},
    "Program.global_block": {},
    "Program.block": {"index": ...},
    "Program.current_block": {},
    "Program.create_block": {"parent_idx": None},
    "Program.rollback": {},
    "Program.sync_with_cpp": {},
    "Program.copy_param_info_from": {"other": ...},
    "Program.copy_data_info_from": {"other": ...},
    "Program.list_vars": {},
    "Operator.to_string": {"throw_on_error": False},
    "Operator.input": {"name": ...},
    "Operator.rename_input": {"old_name": ..., "new_name": ...},
    "Operator.rename_output": {"old_name": ..., "new_name": ...},
    "Operator.output": {"name": ...},
    "Operator.has_attr": {"name": ...},
    "Operator.attr_type": {"name": ...},
    "Operator.set_attr": {"name": ..., "val": ...},
    "Operator.attr": {"name": ...},
    "Operator.block_attr": {"name": ...},
    "Operator.all_attrs": {},
    "Executor.as_lodtensor": {"data": ...},
    "Executor.run": {
        "program": None,
        "feed": None,
        "fetch_list": None,
        "feed_var_name": "feed",
        "fetch_var_name": "fetch",
        "scope": None,
        "return_numpy": True,
        "use_program_cache": False,
    },
    "Select.case": {"channel_action_fn": ..., "channel": ..., "value": ..., "is_copy": False},
    "Select.default": {},
    "Trainer.stop": {},
    "Trainer.train": {"num_epochs": ..., "event_handler": ..., "reader": None, "feed_order": None},
    "Trainer.test": {"reader": ..., "feed_order": None},
    "Trainer.save_params": {"param_path": ...},
    "Inferencer.infer": {"inputs": ..., "return_numpy": True},
    "DistributeTranspiler.transpile": {
        "trainer_id": ...,
        "program": None,
        "pservers": "127.0.0.1:6174",
        "trainers": None,
        "sync_mode": None,
        "startup_program": None,
        "current_endpoint": "127.0.0.1:6174",
        "slice_var_up": None,
        "split_method": None,
    },
    "DistributeTranspiler.get_trainer_program": {"wait_port": True},
    "DistributeTranspiler.get_pserver_program": {"endpoint": ...},
    "DistributeTranspiler.get_pserver_programs": {"endpoint": ...},
    "DistributeTranspiler.get_startup_program": {
        "endpoint": ...,
        "pserver_program": None,
        "startup_program": None,
    },
    "InferenceTranspiler.transpile": {"program": ..., "place": ..., "scope": None},
    "InferenceTranspiler.fuse_batch_norm": {"program": ..., "place": ..., "scope": None},
    "ParallelExecutor.run": {"fetch_list": ..., "feed": None, "feed_dict": None, "return_numpy": True},
    "ParallelExecutor.bcast_params": {},
    "CompiledProgram.with_data_parallel": {
        "loss_name": None,
        "build_strategy": None,
        "exec_strategy": None,
        "share_vars_from": None,
        "places": None,
    },
    "LoDTensor.has_valid_recursive_sequence_lengths": {},
    "LoDTensor.lod": {},
    "LoDTensor.recursive_sequence_lengths": {},
    "LoDTensor.set_lod": {"lod": ...},
    "LoDTensor.set_recursive_sequence_lengths": {"lengths": ...},
    "ParamAttr.set_default_initializer": {"initializer": ...},
    "ParamAttr.set_default_param_initializer": {},
    "ParamAttr.set_default_bias_initializer": {},
    "ParamAttr.to_attr": {"arg": ...},
    "ParamAttr.to_kwargs": {"with_initializer": False},
    "DataFeeder.feed": {"iterable": ...},
    "DataFeeder.feed_parallel": {"iterable": ..., "num_places": None},
    "DataFeeder.decorate_reader": {"reader": ..., "multi_devices": ..., "num_places": None, "drop_last": True},
    "Scope.drop_kids": {},
    "Scope.find_var": {"name": ...},
    "Scope.new_scope": {},
    "Scope.var": {"name": ...},
}

ATTRIBUTES = {
    "Program": ["op_role", "op_role_var", "num_blocks", "random_seed"],
    "BeginStepEvent": [],
    "ParallelExecutor": ["device_count"],
    "DistributeTranspilerConfig": ["slice_var_up", "split_method", "min_block_size", "mode"],
}

OF_PADDLE_2: dict[str, dict[str, Any]] = {
    "enable_static": {},
    "mean": {"x": ..., "axis": None, "keepdim": False, "name": None},
    "CPUPlace": {},
    "CUDAPlace": {},
    "static.data": {"name": ..., "shape": ..., "dtype": None, "lod_level": 0},
    "static.nn.fc": {
        "x": ...,
        "size": ...,
        "num_flatten_dims": 1,
        "weight_attr": None,
        "bias_attr": None,
        "activation": None,
        "name": None,
    },
    "static.Executor": {"place": None},
    "static.CompiledProgram": {"program_or_graph": ..., "build_strategy": None},
    "static.default_main_program": {},
    "static.default_startup_program": {},
    "static.BuildStrategy": {},
    "static.ExecutionStrategy": {},
    "static.save_inference_model": {"path_prefix": ..., "feed_vars": ..., "fetch_vars": ..., "executor": ...},
    "static.load_inference_model": {"path_prefix": ..., "executor": ...},
}


def takes(function: Any, documented: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    for name, default in documented.items():
        assert name in parameters, name
        if default is not ...:
            assert parameters[name].default == default, name


def found(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


@pytest.mark.parametrize("path", [*FUNCTIONS, *CLASSES, *METHODS])
def test_a_name_takes_the_documented_arguments(path: str) -> None:
    takes(found(fluid, path), {**FUNCTIONS, **CLASSES, **METHODS}[path])


@pytest.mark.parametrize("path", [f"{name}.{attribute}" for name, names in ATTRIBUTES.items() for attribute in names])
def test_a_documented_attribute_is_there(path: str) -> None:
    found(fluid, path)


@pytest.fixture(scope="module")
def paddle() -> Iterator[ModuleType]:
    with install():
        import paddle  # type: ignore[import-not-found]
        import paddle.static.nn  # type: ignore[import-not-found]

        yield paddle


@pytest.mark.parametrize("path", OF_PADDLE_2)
def test_a_name_of_paddle_2_takes_the_documented_arguments(path: str, paddle: ModuleType) -> None:
    takes(found(paddle, path), OF_PADDLE_2[path])


def test_sgd_of_paddle_2_takes_a_learning_rate(paddle: Any) -> None:
    assert paddle.optimizer.SGD(learning_rate=0.01).type == "sgd"
