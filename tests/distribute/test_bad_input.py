"""What cannot work is refused by name, with the way out, and leaves the programs as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, FluidError, ProgramError, UsageError
from tests.distribute.support import A, B, Programs, as_bytes, built, embeddings, mlp, sgd

ENDPOINTS = f"{A},{B}"


def transpile(programs: Programs, config: dict[str, Any] | None = None, **given: Any) -> None:
    chosen = fluid.DistributeTranspilerConfig()
    chosen.wait_port = False
    for name, value in (config or {}).items():
        setattr(chosen, name, value)
    arguments = {"trainer_id": 0, "pservers": ENDPOINTS, "trainers": 2, **given}
    main, startup = programs
    fluid.DistributeTranspiler(chosen).transpile(program=main, startup_program=startup, **arguments)


def refused(
    programs: Programs, error: type[FluidError], message: str, config: dict[str, Any] | None = None, **given: Any
) -> None:
    """transpile raises this, and both programs stay as they are."""
    before = as_bytes(programs)
    with pytest.raises(error, match=message):
        transpile(programs, config, **given)
    assert as_bytes(programs) == before


def other_network() -> Any:
    return fluid.layers.mean(
        fluid.layers.fc(fluid.layers.data("x", [4]), 2, param_attr=fluid.ParamAttr(name="other"), bias_attr=False)
    )


MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pserver": ({}, {}),
    "nccl2": ({"mode": "nccl2"}, {"trainers": ENDPOINTS, "current_endpoint": A}),
    "grad_allreduce": (
        {"mode": "collective", "collective_mode": "grad_allreduce"},
        {"trainers": ENDPOINTS, "current_endpoint": A},
    ),
    "local_sgd": (
        {"mode": "collective", "collective_mode": "local_sgd"},
        {"trainers": ENDPOINTS, "current_endpoint": A},
    ),
}


# ---------------------------------------------------------------- programs
@pytest.mark.parametrize("mode", ["pserver", "grad_allreduce", "local_sgd"])
def test_the_startup_program_of_another_model(mode: str) -> None:
    config, given = MODES[mode]
    programs = built(mlp)[0], built(other_network)[1]
    refused(
        programs,
        ProgramError,
        r"does not declare fc_\d\.\w_0, .*pass the startup program that was built",
        config,
        **given,
    )


@pytest.mark.parametrize("mode", ["pserver", "grad_allreduce", "local_sgd"])
def test_nothing_to_optimize(mode: str) -> None:
    config, given = MODES[mode]
    refused(built(mlp, None), ProgramError, r"nothing .*call minimize\(loss\) of an optimizer before", config, **given)


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
def test_programs_that_were_transpiled_before(first: str, second: str) -> None:
    programs = built(mlp)
    transpile(programs, MODES[first][0], **MODES[first][1])
    message = r"program has already been transpiled \(it has an operator \w+\); build the programs again, or clone"
    refused(programs, ProgramError, message, MODES[second][0], **MODES[second][1])


def test_more_than_one_distributed_table() -> None:
    programs = built(lambda: embeddings(tables=("one", "two"), is_sparse=False))
    for op in programs[0].global_block().ops:
        if op.type == "lookup_table":
            op.set_attr("is_distributed", True)
    refused(programs, ProgramError, r"only one table, found one, two; build the other embeddings with is_sparse=True")


@pytest.mark.parametrize(
    "optimizer", [lambda: fluid.optimizer.Lamb(0.1), lambda: fluid.optimizer.Adadelta(0.1)], ids=["lamb", "adadelta"]
)
def test_an_optimizer_that_servers_do_not_run(optimizer: Callable[[], Any]) -> None:
    message = r"Not supported optimizer for distributed training: \w+ \(parameter fc_0\.b_0\); parameter servers run adagrad, adam"
    refused(built(mlp, optimizer), FluidError, message)
    with pytest.raises(ValueError, match="Not supported optimizer"):
        transpile(built(mlp, optimizer))


def test_an_optimizer_operator_without_a_parameter() -> None:
    main, startup = built(mlp)
    with main._optimized_guard([]):
        main.global_block().append_op(
            type="increment", inputs={"X": ["learning_rate_0"]}, outputs={"Out": ["learning_rate_0"]}
        )
    refused(
        (main, startup), ProgramError, r"optimizer operator increment does not say which parameter .*_optimized_guard"
    )


def test_a_program_without_its_backward_pass() -> None:
    main, startup = built(mlp)
    block = main.global_block()
    block.ops[:] = [op for op in block.ops if not op.type.endswith("_grad")]
    refused((main, startup), ProgramError, r"no operator computes fc_0\.b_0@GRAD, the gradient of fc_0\.b_0")


def test_a_sparse_table_with_two_initializers() -> None:
    main, startup = built(embeddings)
    startup.global_block().append_op(type="scale", inputs={"X": ["emb"]}, outputs={"Out": ["emb"]}, attrs={})
    refused((main, startup), ProgramError, r"table init op num should be 1, now is 2: .*emb")


@pytest.mark.parametrize("wrong", ["program", "startup_program"])
def test_what_is_no_program(wrong: str) -> None:
    main, startup = built(mlp)
    given = {"program": main, "startup_program": startup, wrong: "main.pb"}
    with pytest.raises(ArgumentTypeError, match=f"{wrong} takes a Program, found str"):
        fluid.DistributeTranspiler().transpile(0, pservers=ENDPOINTS, trainers=2, **given)


# ---------------------------------------------------------------- arguments
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trainer_id", [-1, 2, 99])
def test_a_trainer_that_there_is_not(mode: str, trainer_id: int) -> None:
    config, given = MODES[mode]
    message = rf"trainer_id must be between 0 and 1 for 2 trainers, found {trainer_id}"
    refused(built(mlp), UsageError, message, config, **(given | {"trainer_id": trainer_id}))


@pytest.mark.parametrize(
    ("pservers", "message"),
    [
        ("127.0.0.1", "pservers must list host:port, such as 127.0.0.1:6174,127.0.0.1:6175, found '127.0.0.1'"),
        (f"{A},", "pservers must list host:port, .*, found ''"),
        (f"{A},{A}", f"pservers names {A} twice"),
        (6174, "pservers takes endpoints, such as"),
    ],
)
def test_servers_that_are_no_endpoints(pservers: Any, message: str) -> None:
    error = ArgumentTypeError if isinstance(pservers, int) else UsageError
    refused(built(mlp), error, message, pservers=pservers)


@pytest.mark.parametrize("trainers", [0, -3])
def test_a_job_without_trainers(trainers: int) -> None:
    refused(built(mlp), UsageError, rf"trainers must be at least 1, found {trainers}", trainers=trainers)


def test_trainers_by_endpoint_need_another_mode() -> None:
    message = r"trainers takes a number in pserver mode, found str.*set config\.mode to 'nccl2'"
    refused(built(mlp), ArgumentTypeError, message, trainers=ENDPOINTS)


@pytest.mark.parametrize("mode", ["nccl2", "grad_allreduce", "local_sgd"])
def test_a_number_of_trainers_needs_servers(mode: str) -> None:
    message = r"in \w+ mode trainers takes the endpoints of all trainers, such as .*found 2"
    refused(built(mlp), ArgumentTypeError, message, MODES[mode][0], trainers=2)


@pytest.mark.parametrize("mode", ["nccl2", "grad_allreduce", "local_sgd"])
def test_an_endpoint_that_is_no_trainers(mode: str) -> None:
    config, given = MODES[mode]
    message = r"current_endpoint must be one of the trainers, 127\.0\.0\.1:6170, 127\.0\.0\.1:6171, found 10\.0\.0\.9:1"
    refused(built(mlp), UsageError, message, config, **(given | {"current_endpoint": "10.0.0.9:1"}))


@pytest.mark.parametrize("mode", ["grad_allreduce", "local_sgd"])
def test_a_single_process_has_nobody_to_work_with(mode: str) -> None:
    message = "invalid trainer number in distributed: 1"
    refused(built(mlp), UsageError, message, MODES[mode][0], trainers=A, current_endpoint=A)


def test_trainers_and_workers_that_contradict_each_other() -> None:
    refused(built(mlp), UsageError, r"trainers=2 and workers=3 are the same argument", trainers=2, workers=3)


# ---------------------------------------------------------------- config
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mode": "gossip"}, r"config\.mode must be one of pserver, nccl2, collective, found 'gossip'"),
        ({"mode": "collective"}, r"invalid collective_mode: None; expected one of grad_allreduce, local_sgd"),
        ({"enable_dc_asgd": True}, r"enable_dc_asgd works in asynchronous mode only; transpile with sync_mode=False"),
    ],
)
def test_modes_that_do_not_fit(config: dict[str, Any], message: str) -> None:
    given = {"trainers": ENDPOINTS, "current_endpoint": A} if config.get("mode") == "collective" else {}
    refused(built(mlp), UsageError, message, config, **given)


def test_runtime_split_in_synchronous_mode() -> None:
    config = {"sync_mode": False, "runtime_split_send_recv": True}
    refused(built(mlp), UsageError, "runtime_split_send_recv works in asynchronous mode only", config, sync_mode=True)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_hierarchies_that_do_not_divide_the_trainers(ranks: int) -> None:
    config = {"mode": "nccl2", "use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": ranks}
    message = r"hierarchical_allreduce_inter_nranks is \d+, which does not divide 2 trainers into several equal groups"
    refused(built(mlp), UsageError, message, config, trainers=ENDPOINTS, current_endpoint=A)


@pytest.mark.parametrize(
    ("size", "error"),
    [(0, AssertionError), (8191, AssertionError), (8192.5, AssertionError), ("8192", TypeError), (None, TypeError)],
)
def test_blocks_that_are_too_small(size: Any, error: type[Exception]) -> None:
    config = fluid.DistributeTranspilerConfig()
    config.min_block_size = size
    with pytest.raises(error, match=r"min_block_size must be a number of elements of at least 8192, found"):
        fluid.DistributeTranspiler(config)


def test_a_config_of_another_kind() -> None:
    with pytest.raises(ArgumentTypeError, match="config takes a DistributeTranspilerConfig, found dict"):
        fluid.DistributeTranspiler({"mode": "pserver"})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["get_trainer_program", "get_pserver_program", "get_pserver_programs"])
def test_programs_before_transpile(method: str) -> None:
    arguments = () if method == "get_trainer_program" else (A,)
    with pytest.raises(UsageError, match=r"call transpile\(\) first"):
        getattr(fluid.DistributeTranspiler(), method)(*arguments)


def test_threads_that_are_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_rpc_send_thread_num", "many")
    with pytest.raises(
        UsageError, match="FLAGS_rpc_send_thread_num must be a number of threads of at least 1, found 'many'"
    ):
        fluid.DistributeTranspiler()


def test_sgd_is_fine() -> None:
    transpile(built(mlp, sgd))
