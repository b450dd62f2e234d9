"""Descriptions of trainers and workers: `fluid.trainer_desc`, `device_worker`, `trainer_factory`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fluidtool import fluid
from fluidtool.errors import UsageError
from fluidtool.fluid.device_worker import DeviceWorker, DeviceWorkerFactory, DownpourSGD, DownpourSGDOPT, Hogwild
from fluidtool.fluid.trainer_desc import DistMultiTrainer, MultiTrainer, TrainerDesc
from fluidtool.fluid.trainer_factory import TrainerFactory
from fluidtool.proto import trainer_desc_pb2


def table(number: int, **names: list[str]) -> Any:
    return SimpleNamespace(table_id=number, **names)


def downpour(program: Any) -> dict[str, Any]:
    """Settings of a fleet: a dense table 1, a sparse table 0 with 11 columns."""
    dense = table(1, dense_variable_name=["w"], dense_gradient_variable_name=["w@GRAD"])
    sparse = table(0, slot_key=["ids"], slot_value=["rows"], slot_gradient=["rows@GRAD"])
    worker = SimpleNamespace(dense_table=[dense], sparse_table=[sparse], skip_op=["lookup_table"])
    parameters = SimpleNamespace(downpour_table_param=[SimpleNamespace(accessor=SimpleNamespace(fea_dim=11))])
    tables = {"push_sparse": [0], "push_dense": [1], "pull_sparse": [0], "pull_dense": [1]}
    return {
        "trainer": "DistMultiTrainer",
        "device_worker": "DownpourSGD",
        "fleet_desc": SimpleNamespace(server_param=SimpleNamespace(downpour_server_param=parameters)),
        "program_configs": {str(id(program)): tables},
        "program_id_to_worker": {str(id(program)): SimpleNamespace(get_desc=lambda: worker)},
        "stat_var_names": ["stat"],
        "use_cvm": False,
    }


def described(settings: dict[str, Any], program: Any, infer: bool = False) -> Any:
    trainer = TrainerFactory()._create_trainer(settings)
    trainer._set_program(program)
    trainer._set_infer(infer)
    trainer._gen_trainer_desc()
    return trainer.proto_desc


def test_without_settings_threads_update_shared_parameters() -> None:
    trainer = TrainerFactory()._create_trainer()
    trainer._set_program(fluid.Program())
    trainer._set_thread(3)
    trainer._gen_trainer_desc()
    desc = trainer_desc_pb2.TrainerDesc.FromString(trainer._desc())
    assert (desc.class_name, desc.device_worker_name, desc.thread_num) == ("MultiTrainer", "HogwildWorker", 3)
    assert 'device_worker_name: "HogwildWorker"' in str(trainer)


def test_inference_feeds_nothing() -> None:
    trainer = MultiTrainer()
    trainer._set_device_worker(Hogwild())
    trainer._set_program(fluid.Program())
    trainer._set_infer(True)
    trainer._gen_trainer_desc()
    assert list(trainer.proto_desc.hogwild_param.skip_ops) == ["feed"]


def test_a_server_s_tables_are_described() -> None:
    program = fluid.Program()
    settings = program._fleet_opt = downpour(program)
    desc = described(settings, program)
    (sparse,), (dense,) = desc.downpour_param.sparse_table, desc.downpour_param.dense_table
    assert (desc.device_worker_name, list(desc.downpour_param.skip_ops)) == ("DownpourWorker", ["lookup_table"])
    assert (sparse.emb_dim, sparse.fea_dim, sparse.label_var_name) == (9, 11, "click")
    assert (list(dense.dense_value_name), list(dense.dense_grad_name)) == (["w"], ["w@GRAD"])
    assert list(desc.downpour_param.stat_var_names) == ["stat"]


def test_columns_of_counts_belong_to_embeddings_by_wish() -> None:
    program = fluid.Program()
    settings = program._fleet_opt = {**downpour(program), "use_cvm": True}
    assert described(settings, program).downpour_param.sparse_table[0].emb_dim == 11


def test_inference_pushes_nothing() -> None:
    program = fluid.Program()
    settings = program._fleet_opt = downpour(program)
    desc = described(settings, program, infer=True).downpour_param
    assert (desc.push_dense, desc.push_sparse) == (False, False)


def test_tables_may_be_local() -> None:
    program = fluid.Program()
    settings = program._fleet_opt = {**downpour(program), "device_worker": "DownpourSGDOPT", "local_tables": [0]}
    table = described(settings, program).downpour_param.sparse_table[0]
    assert (table.is_local, table.is_async) == (True, False)
    assert issubclass(DownpourSGDOPT, DownpourSGD)


def test_settings_without_a_worker_are_refused() -> None:
    program = fluid.Program()
    settings = downpour(program)
    program._fleet_opt = {**settings, "program_id_to_worker": {}}
    with pytest.raises(UsageError, match="not found in program_id_to_worker"):
        described(settings, program)
    program._fleet_opt = {**settings, "program_id_to_worker": None}
    with pytest.raises(UsageError, match="opt_info must have program_id_to_worker"):
        described(settings, program)


def test_sections_of_a_pipeline_are_described() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 3], "float32")
        hidden = fluid.layers.fc(x, 4)
        loss = fluid.layers.mean(hidden)
        places, counts = [fluid.CPUPlace()] * 3, [1, 2, 1]
        fluid.optimizer.PipelineOptimizer(
            fluid.optimizer.SGD(0.1), [[hidden], [loss]], places, counts, queue_size=7, start_cpu_core_id=2
        ).minimize(loss)
    section = described(main._pipeline_opt, main).section_param
    assert (section.queue_size, section.start_cpu_core_id, len(section.section_config)) == (7, 2, 3)
    assert [config.concurrency for config in section.section_config] == counts
    assert hidden.name in section.section_config[0].section_out_var_names
    first = fluid.Program.parse_from_string(section.section_config[0].program_desc.SerializeToString())
    assert "mul" in [op.type for op in first.global_block().ops]


def test_copies_need_a_target_each() -> None:
    trainer = TrainerDesc()
    trainer._set_copy_table_config({"src_var_list": ["a"], "dest_var_list": ["b"], "dependency_map": {3: 4}})
    config = trainer.proto_desc.copy_table_config
    assert (list(config.src_var_list), list(config.dest_var_list)) == (["a"], ["b"])
    assert (config.table_denpendency_map[0].key, list(config.table_denpendency_map[0].values)) == (3, [4])
    with pytest.raises(UsageError, match=r"len\(src_sparse_tables\) != len\(dest_sparse_tables\), 1 vs 2"):
        trainer._set_copy_table_config({"src_sparse_tables": 1, "dest_sparse_tables": [1, 2]})


def test_fetched_variables_are_described() -> None:
    trainer = TrainerDesc()
    trainer._set_fetch_var_and_info([SimpleNamespace(name="loss")], ["the loss"], 5)
    config = trainer.proto_desc.fetch_config
    assert (list(config.fetch_var_names), list(config.fetch_var_str_format), config.print_period) == (
        ["loss"],
        ["the loss"],
        5,
    )


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="DistMultiTrainer has no program"):
        DistMultiTrainer()._gen_trainer_desc()
    with pytest.raises(UsageError, match="MultiTrainer has no device worker"):
        MultiTrainer()._gen_trainer_desc()
    with pytest.raises(UsageError, match="there is no 'Nosuch'"):
        TrainerFactory()._create_trainer({"trainer": "Nosuch", "device_worker": "Hogwild"})
    with pytest.raises(UsageError, match="there is no device worker 'nosuch'"):
        DeviceWorkerFactory()._create_device_worker("nosuch")
    with pytest.raises(NotImplementedError):
        DeviceWorker()._gen_worker_desc(trainer_desc_pb2.TrainerDesc())
