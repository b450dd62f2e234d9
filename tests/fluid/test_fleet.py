"""`fluid.incubate.fleet` in one process: roles, strategies, and what a job of one worker trains (Paddle 1.8.5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.compat.distributed.fs_wrapper import LocalFS
from fluidtool.errors import ArgumentTypeError, NotOfferedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid.incubate.fleet import collective, parameter_server
from fluidtool.fluid.incubate.fleet.base.role_maker import (
    GeneralRoleMaker,
    MPISymetricRoleMaker,
    PaddleCloudRoleMaker,
    Role,
    RoleMakerBase,
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)
from fluidtool.fluid.incubate.fleet.parameter_server import distribute_transpiler as servers

ONE = ["127.0.0.1:6170"]
NUMBERS = np.random.RandomState(7).uniform(-1, 1, (4, 8, 4)).astype("float32")


@pytest.fixture(autouse=True)
def _programs() -> Iterator[None]:
    with (
        fluid.scope_guard(fluid.Scope()),
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
    ):
        yield


def network() -> Any:
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1])
    attr = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.1))
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=attr), y))


def losses(startup: Any, main: Any, loss: Any) -> list[float]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    return [float(exe.run(main, feed={"x": rows, "y": rows[:, :1]}, fetch_list=[loss])[0]) for rows in NUMBERS]


def alone() -> list[float]:
    with fluid.scope_guard(fluid.Scope()), fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = network()
        fluid.optimizer.SGD(0.1).minimize(loss)
        return losses(fluid.default_startup_program(), fluid.default_main_program(), loss)


def joined(strategy: Any = None, role: Any = None) -> tuple[Any, Any]:
    """(the fleet, of one worker unless told otherwise, and the loss)"""
    fleet = collective.fleet
    fleet.init(role or UserDefinedCollectiveRoleMaker(0, ONE))
    loss = network()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    return fleet, loss


def test_one_worker_trains_as_without_a_fleet() -> None:
    fleet, loss = joined()
    assert isinstance(fleet.main_program, fluid.CompiledProgram)
    np.testing.assert_allclose(losses(fleet.startup_program, fleet.main_program, loss), alone(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("setting", "kind"), [("use_local_sgd", "c_allreduce_sum"), ("use_amp", "cast")])
def test_settings_of_the_strategy_change_the_program(setting: str, kind: str) -> None:
    strategy = collective.DistributedStrategy()
    setattr(strategy, setting, True)
    fleet, _ = joined(strategy, UserDefinedCollectiveRoleMaker(1, ["127.0.0.1:6170", "127.0.0.1:6171"]))
    assert kind in {op.type for op in fleet._transpiled_program.global_block().ops}


def test_recomputation_keeps_the_numbers() -> None:
    fleet = collective.fleet
    fleet.init(UserDefinedCollectiveRoleMaker(0, ONE))
    loss = network()
    strategy = collective.DistributedStrategy()
    strategy.forward_recompute = True
    with pytest.raises(UsageError, match="recompute_checkpoints"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    strategy.recompute_checkpoints = [loss]
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    np.testing.assert_allclose(losses(fleet.startup_program, fleet.main_program, loss), alone(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"use_dist_fc": True}, UnsupportedOperatorError),
        ({"collective_mode": "grad_allreduce"}, UsageError),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], error: type[Exception]) -> None:
    strategy = collective.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    with pytest.raises(error):
        joined(strategy)


def test_a_strategy_takes_further_attributes_but_build_strategy_none() -> None:
    strategy = collective.DistributedStrategy()
    strategy.mine = 3
    assert strategy.mine == 3
    with pytest.raises(AttributeError):
        fluid.BuildStrategy().mine = 3


def test_checkpoints_are_numbered_and_the_last_one_is_loaded(tmp_path: Path) -> None:
    fleet, loss = joined()
    losses(fleet.startup_program, fleet.main_program, loss)
    exe = fluid.Executor(fluid.CPUPlace())
    assert fleet.load_check_point(exe, str(tmp_path), 0) is None
    saved = np.array(fluid.global_scope().find_var("w").get_tensor())
    assert fleet._get_last_checkpoint_no(str(tmp_path), fs=LocalFS()) == -1
    fleet.save_check_point(exe, str(tmp_path), collective.TrainStatus(3), fs=LocalFS())
    assert fleet._get_last_checkpoint_no(str(tmp_path), fs=LocalFS()) == 0
    fluid.global_scope().find_var("w").get_tensor().set(saved + 1, fluid.CPUPlace())
    fleet.save_check_point(exe, str(tmp_path), collective.TrainStatus(4), remain_all_checkpoint=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["__paddle_fleet_checkpoint__.1"]
    fluid.global_scope().find_var("w").get_tensor().set(saved, fluid.CPUPlace())
    status = fleet.load_check_point(exe, str(tmp_path), 0)
    assert status == collective.TrainStatus(4)
    assert status.next() == 5
    np.testing.assert_array_equal(fluid.global_scope().find_var("w").get_tensor(), saved + 1)


def test_an_inference_model_is_the_program_of_one_worker(tmp_path: Path) -> None:
    fleet, loss = joined()
    losses(fleet.startup_program, fleet.main_program, loss)
    exe = fluid.Executor(fluid.CPUPlace())
    fleet.save_inference_model(exe, str(tmp_path), ["x", "y"], [loss])
    program, feeds, _ = fluid.io.load_inference_model(str(tmp_path), exe)
    assert feeds == ["x", "y"]
    assert "sgd" not in {op.type for op in program.global_block().ops}


def test_roles_of_a_cloud_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:1,10.0.0.2:1",
        "PADDLE_TRAINERS_NUM": "3",
        "TRAINING_ROLE": "PSERVER",
        "POD_IP": "10.0.0.2",
        "PADDLE_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    role = PaddleCloudRoleMaker()
    assert (role.is_server(), role.is_worker(), role.server_index(), role.worker_num()) == (True, False, 1, 3)
    monkeypatch.setenv("TRAINING_ROLE", "TRAINER")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "2")
    role = PaddleCloudRoleMaker()
    assert (role.is_server(), role.worker_index(), role.is_first_worker()) == (False, 2, False)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.3:1,10.0.0.4:1,10.0.0.5:1")
    general = GeneralRoleMaker(path="/anything")
    assert (general.worker_num(), general.get_trainer_endpoints()[2]) == (3, "10.0.0.5:1")
    monkeypatch.setenv("TRAINING_ROLE", "BOTH")
    with pytest.raises(UsageError, match="TRAINING_ROLE must be PSERVER or TRAINER, found 'BOTH'"):
        PaddleCloudRoleMaker().is_worker()


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_TRAINER_ENDPOINTS", raising=False)
    with pytest.raises(UsageError, match=r"PADDLE_TRAINER_ENDPOINTS is not set.*fluidtool launch"):
        collective.fleet.init(PaddleCloudRoleMaker(is_collective=True))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"server_endpoints": "a:1", "worker_num": 1}, ArgumentTypeError),
        ({"server_endpoints": ["a:1", "a:1"], "worker_num": 1}, UsageError),
        ({"server_endpoints": ["a:1"], "worker_num": 0}, UsageError),
        ({"server_endpoints": ["a:1"], "worker_num": 1, "role": 3}, ArgumentTypeError),
        ({"server_endpoints": ["a:1"], "worker_num": 1, "role": Role.SERVER, "current_id": 1}, UsageError),
    ],
)
def test_roles_that_cannot_be(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        UserDefinedRoleMaker(**arguments)


def test_roles_of_mpi_say_how_to_start_a_job() -> None:
    with pytest.raises(UnsupportedOperatorError, match="fluidtool launch --engine mpi"):
        MPISymetricRoleMaker()


def test_a_role_maker_of_ones_own_answers_what_it_defines() -> None:
    class Mine(RoleMakerBase):
        def generate_role(self) -> None:
            self._role_is_generated = True

        def worker_num(self) -> int:
            return 2

    fleet = collective.Collective()
    fleet.init(Mine())
    assert fleet.worker_num() == 2
    with pytest.raises(NotImplementedError, match="Mine derives from RoleMakerBase and has no method worker_index"):
        fleet.worker_index()
    with pytest.raises(UnsupportedOperatorError, match="2 workers"):
        fleet.barrier_worker()


def test_workers_share_files() -> None:
    fleet, shares = servers.DistributedTranspiler(), []
    for index in range(3):
        fleet.init(UserDefinedRoleMaker(index, Role.WORKER, 3, ["a:1"]))
        shares.append(fleet.split_files(list("abcde")))
    assert shares == [["a", "b"], ["c", "d"], ["e"]]


def test_before_init_a_fleet_says_so() -> None:
    with pytest.raises(UsageError, match=r"use fleet.init\(role\)"):
        collective.Collective().worker_num()
    with pytest.raises(UsageError, match=r"use fleet.init\(role\)"):
        servers.DistributedTranspiler().distributed_optimizer(fluid.optimizer.SGD(0.1))


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (servers.StrategyFactory.create_sync_strategy(), (True, True, False)),
        (servers.StrategyFactory.create_half_async_strategy(), (True, False, False)),
        (servers.StrategyFactory.create_async_strategy(), (False, False, False)),
        (servers.StrategyFactory.create_geo_strategy(7), (False, False, True)),
    ],
)
def test_strategies_set_the_transpilers_config(strategy: Any, settings: tuple[bool, bool, bool]) -> None:
    config = strategy.get_program_config()
    assert (config.half_async, config.completely_not_async, config.geo_sgd_mode) == settings
    assert not config.sync_mode
    assert config.runtime_split_send_recv
    strategy.set_program_config({"min_block_size": 16})
    assert strategy.get_program_config().min_block_size == 16
    with pytest.raises(UsageError, match="doesn't have key: nosuch"):
        strategy.set_program_config({"nosuch": 1})
    with pytest.raises(NotImplementedError, match="use StrategyFactory"):
        servers.DistributedStrategy()


def test_a_program_of_no_job_is_not_saved_by_the_fleet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="main_program is for local"):
        servers.fleet.save_persistables(fluid.Executor(), str(tmp_path), fluid.Program())


def test_baidus_own_servers_are_not_offered() -> None:
    with pytest.raises(NotOfferedError, match="pslib"):
        parameter_server.pslib  # noqa: B018
