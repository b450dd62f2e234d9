"""`fluid.DistributeTranspiler`: the arguments of all versions, and what the programs say of themselves."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.rpc.handler import Late
from fluidtool.distribute.waiting import listens, wait_until_ready
from fluidtool.errors import NotOfferedError, UsageError
from tests.distribute.support import A, B, built, embeddings, mlp, the, types

ENDPOINTS = f"{A},{B}"


def transpiled(network: Any = mlp, config: Any = None, **given: Any) -> tuple[Any, Any, Any]:
    main, startup = built(network)
    transpiler = fluid.DistributeTranspiler(config=config)
    arguments = {"pservers": ENDPOINTS, "trainers": 2, **given}
    transpiler.transpile(0, program=main, startup_program=startup, **arguments)
    return transpiler, main, startup


# ---------------------------------------------------------------- arguments
def test_default_programs_are_meant_where_none_are_given() -> None:
    main, startup = built(mlp)
    with fluid.program_guard(main, startup):
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, pservers=A, trainers=1)
    assert transpiler.get_trainer_program(wait_port=False) is main
    assert "recv" in types(startup.global_block())


def test_the_arguments_of_0_14_cut_and_deal_out_as_those_of_the_config() -> None:
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up, config.split_method = False, fluid.transpiler.HashName
    new, _, _ = transpiled(config=config)
    old, _, _ = transpiled(slice_var_up=False, split_method=fluid.transpiler.HashName)
    assert old.plan == new.plan


def test_arguments_win_over_the_config() -> None:
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up = False
    transpiler, _, _ = transpiled(config=config, slice_var_up=True)
    assert transpiler.plan.parameters[1].is_cut


def test_workers_is_another_name_of_trainers() -> None:
    transpiler, _, _ = transpiled(trainers=None, workers=3)
    assert transpiler.plan.settings.trainers == 3


@pytest.mark.parametrize(("argument", "expected"), [(None, False), (True, True)])
def test_sync_mode_is_the_configs_unless_given(argument: bool | None, expected: bool) -> None:
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = False
    transpiler, _, _ = transpiled(config=config, sync_mode=argument)
    assert transpiler.plan.settings.sync is expected


def test_a_nccl2_job_by_workers() -> None:
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    main, startup = built(mlp)
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(1, program=main, startup_program=startup, workers=ENDPOINTS, current_endpoint=B)
    assert the(startup.global_block(), "gen_nccl_id").attr("trainers") == [A, B]


def test_old_calls_give_the_same_programs_as_new_ones() -> None:
    transpiler, _, _ = transpiled()
    main, startup = transpiler.get_pserver_programs(A)
    again = transpiler.get_pserver_program(A)
    assert again.serialize_to_string() == main.serialize_to_string()
    old = transpiler.get_startup_program(A, again)
    assert old.serialize_to_string() == startup.serialize_to_string()
    assert transpiler.get_startup_program(A).serialize_to_string() == startup.serialize_to_string()


def test_threads_of_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_rpc_get_thread_num", "5")
    transpiler, _, _ = transpiled()
    serving = the(transpiler.get_pserver_program(A).global_block(), "listen_and_serv")
    assert (serving.attr("rpc_get_thread_num"), serving.attr("rpc_send_thread_num")) == (5, 12)


# ---------------------------------------------------------------- config
def test_defaults() -> None:
    config = fluid.DistributeTranspilerConfig()
    assert (config.mode, config.slice_var_up, config.split_method, config.min_block_size) == (
        "pserver",
        True,
        None,
        8192,
    )
    assert (config.sync_mode, config.runtime_split_send_recv, config.wait_port) == (True, False, True)
    fluid.DistributeTranspiler(config)
    assert config.split_method is fluid.transpiler.RoundRobin


def test_a_misspelt_field_is_named() -> None:
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(NotOfferedError, match=r"has no attribute 'slice_var'; it has .*slice_var_up"):
        config.slice_var = True  # type: ignore[attr-defined]


def test_synchronous_mode_and_runtime_split_exclude_each_other() -> None:
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(UsageError, match=r"make ensure config\.sync_mode is false at first"):
        config.runtime_split_send_recv = True
    config.sync_mode = False
    config.runtime_split_send_recv = True
    with pytest.raises(UsageError, match=r"make ensure config\.runtime_split_send_recv is false at first"):
        config.sync_mode = True


@pytest.mark.parametrize("name", ["sync_mode", "runtime_split_send_recv"])
def test_none_is_no_mode(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} can't be None"):
        setattr(fluid.DistributeTranspilerConfig(), name, None)


# ---------------------------------------------------------------- what programs say of themselves
def test_optimizer_state_is_found_by_its_parameters_server() -> None:
    main, startup = built(mlp, lambda: fluid.optimizer.Momentum(0.1, 0.9))
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, program=main, pservers=ENDPOINTS, trainers=2, startup_program=startup)
    where = main._parameters_on_pservers
    states = where.get_distributed_vars_by_vtypes(["Optimizer"], groupby=True)
    assert [(v.offset, v.slice.shape, v.endpoint) for v in states["fc_0.w_0_velocity_0"]] == [
        (10000, (50, 200), A),
        (0, (50, 200), B),
    ]
    found = where.get_distributed_var_by_origin_and_ep("fc_0.w_0", B)
    assert (found.slice.name, found.is_slice, found.vtype) == ("fc_0.w_0.block0", True, "Param")
    assert len(where.get_distributed_vars_by_ep(A, "Param")) == 3
    assert where.get_distributed_var_by_slice("nothing") is None
    assert len(where.overview().splitlines()) == len(where.distributed_vars)


def test_tables_of_which_rows_are_asked_are_marked() -> None:
    _, main, _ = transpiled(embeddings)
    assert main._parameters_on_pservers.get_distributed_var_by_slice("emb.block0").vtype == "RemotePrefetch"


def test_servers_say_the_same() -> None:
    transpiler, main, _ = transpiled()
    server = transpiler.get_pserver_program(A)
    assert server._parameters_on_pservers is main._parameters_on_pservers
    assert server._endpoints == [A, B]


# ---------------------------------------------------------------- waiting
def test_waiting_ends_when_all_listen(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as early, socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        ports = [f"127.0.0.1:{each.getsockname()[1]}" for each in (early, late)]
        assert [listens(port) for port in ports] == [True, False]
        timer = threading.Timer(0.2, late.listen)
        timer.start()
        wait_until_ready(ports, pause=0.05)
        timer.join()
    assert f"not ready endpoints:['{ports[1]}']" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 64, "é" * 100_000])
def test_nobody_waits_for_a_host_without_an_address(host: str) -> None:
    transpiler, _, _ = transpiled(pservers=f"{A},{host}:6174")
    with pytest.raises(OSError, match=r"the host of the endpoint .* has no address"):
        transpiler.get_trainer_program()


def test_waiting_ends_with_an_error_that_names_who_is_missing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as missing:
        missing.bind(("127.0.0.1", 0))
        ports = [f"127.0.0.1:{each.getsockname()[1]}" for each in (there, missing)]
        with pytest.raises(Late, match=f"nothing listens at {ports[1]} after 0.1 seconds; start the missing servers"):
            wait_until_ready(ports, pause=0.05, longest=0.1)
