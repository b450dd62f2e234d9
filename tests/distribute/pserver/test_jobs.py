"""Whole jobs over gRPC on this machine: two servers and two trainers, each in a thread, train as one process does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.launch.ports import free_endpoints, held
from fluidtool.distribute.roles import server_programs, trainer_programs
from fluidtool.distribute.settings import Settings
from fluidtool.runtime import Scope
from tests.distribute.pserver.support import Several
from tests.distribute.test_training import alone, batches, network

STEPS = 5
A_JOB = 120.0  # seconds, which it needs on a machine that does much else


def value(scope: Scope, name: str) -> Any:
    found = scope.find_var(name)
    assert found is not None
    return np.array(found.get_tensor())


class Job:
    """Servers and trainers in threads. `data`: for each step a feed for each trainer."""

    def __init__(self, built: Any, data: list[list[Any]], fetch: bool = True, **options: Any) -> None:
        self.main, self.startup, self.loss = built
        self.data, self.fetch = data, fetch
        self.settings = Settings(0, len(data[0]), free_endpoints(2), **options)
        count = self.settings.trainers
        self.servers = list(server_programs(self.main, self.startup, self.settings, self.settings.servers))
        self.trainers = list(trainer_programs(self.main, self.startup, self.settings, range(count)))
        self.server_scopes = [Scope() for _ in self.servers]
        self.scopes = [Scope() for _ in range(count)]
        self.losses = np.zeros((len(data), count))

    def run(self) -> tuple[list[float], dict[str, Any]]:
        """Mean losses, and the parameters that the first trainer has at the end."""
        serving = [lambda index=index: self._serve(index) for index in range(len(self.servers))]
        training = [lambda number=number: self._train(number) for number in range(len(self.trainers))]
        with held(role.main.global_block().ops[-1].get_attr("endpoint") for role in self.servers):
            Several(*serving, *training).join(A_JOB)
        fetched = [p.name for p in self.main.all_parameters() if self.scopes[0].find_var(p.name).is_initialized()]
        return list(self.losses.mean(axis=1)), {name: value(self.scopes[0], name) for name in fetched}

    def _serve(self, index: int) -> None:
        executor, role, scope = fluid.Executor(fluid.CPUPlace()), self.servers[index], self.server_scopes[index]
        executor.run(role.startup, scope=scope)
        executor.run(role.main, scope=scope)

    def _train(self, number: int) -> None:
        executor, role, scope = fluid.Executor(fluid.CPUPlace()), self.trainers[number], self.scopes[number]
        try:
            executor.run(role.startup, scope=scope)
            for step, feeds in enumerate(self.data):
                (loss,) = executor.run(role.main, feed=feeds[number], fetch_list=[self.loss.name], scope=scope)
                self.losses[step, number] = np.ravel(loss)[0]
        finally:
            executor.close()


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.001),
    "decayed": lambda: fluid.optimizer.Adam(fluid.layers.exponential_decay(0.001, 2, 0.5)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_parameters_train_as_in_one_process(name: str) -> None:
    built, data = network(OPTIMIZERS[name]), batches(2)
    losses, parameters = Job(built, data).run()
    expected, wanted = alone(built, data)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for parameter, array in wanted.items():
        np.testing.assert_allclose(parameters[parameter], array, rtol=0, atol=1e-6, err_msg=parameter)


def test_the_same_job_gives_the_same_bits_every_time() -> None:
    data = batches(2)
    runs = [Job(network(OPTIMIZERS["adam"]), data).run() for _ in range(2)]
    assert runs[0][0] == runs[1][0]
    for name, array in runs[0][1].items():
        np.testing.assert_array_equal(array, runs[1][1][name])


@pytest.mark.parametrize("trainers", [1, 4])
def test_the_number_of_trainers_changes_no_number(trainers: int) -> None:
    built, data = network(OPTIMIZERS["momentum"]), batches(trainers)
    losses, parameters = Job(built, data).run()
    expected, wanted = alone(built, data)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for parameter, array in wanted.items():
        np.testing.assert_allclose(parameters[parameter], array, rtol=0, atol=1e-6, err_msg=parameter)


# ---------------------------------------------------------------- sparse tables
def sparse(optimizer: Any) -> Any:
    """(main, startup, loss) of a sparse embedding [1000, 20] and a layer."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
        attr = fluid.ParamAttr(name="emb", initializer=fluid.initializer.Constant(0.3))
        rows = fluid.layers.embedding(ids, [1000, 20], is_sparse=True, param_attr=attr)
        weight = fluid.ParamAttr(name="v", initializer=fluid.initializer.Constant(0.3))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(rows, 1, param_attr=weight), y))
        optimizer().minimize(loss)
    return main, startup, loss


def words(trainers: int) -> list[list[Any]]:
    """For each step a feed for each trainer; ids come again and again."""
    random = np.random.RandomState(4)
    return [
        [
            {"ids": random.randint(0, 40, (6, 1)) * 25, "y": random.uniform(-1, 1, (6, 1)).astype("float32")}
            for _ in range(trainers)
        ]
        for _ in range(STEPS)
    ]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_sparse_tables_train_as_in_one_process(name: str) -> None:
    built, data = sparse(OPTIMIZERS[name]), words(2)
    job = Job(built, data)
    losses, parameters = job.run()
    expected, wanted = alone(built, data)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert "emb" not in parameters  # it lives on the servers
    slices = [value(scope, f"emb.block{index}") for index, scope in enumerate(job.server_scopes)]
    np.testing.assert_allclose(np.concatenate(slices), wanted["emb"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(parameters["v"], wanted["v"], rtol=0, atol=1e-6)


# ---------------------------------------------------------------- asynchronous
@pytest.mark.parametrize("options", [{}, {"dc_asgd": True}], ids=["half-async", "delay compensation"])
def test_asynchronous_training_converges(options: dict[str, Any]) -> None:
    built = network(lambda: fluid.optimizer.SGD(0.05))
    data = batches(2) * 6
    losses, _ = Job(built, data, sync=False, **options).run()
    assert np.isfinite(losses).all()
    assert np.mean(losses[-STEPS:]) < 0.6 * np.mean(losses[:STEPS])


def test_one_asynchronous_trainer_gets_what_one_process_gets() -> None:
    built, data = network(OPTIMIZERS["sgd"]), batches(1)
    losses, parameters = Job(built, data, sync=False).run()
    expected, wanted = alone(built, data)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for parameter, array in wanted.items():
        np.testing.assert_allclose(parameters[parameter], array, rtol=0, atol=1e-6, err_msg=parameter)


def test_sparse_tables_train_asynchronously() -> None:
    losses, _ = Job(sparse(lambda: fluid.optimizer.SGD(0.05)), words(2) * 6, sync=False).run()
    assert np.mean(losses[-STEPS:]) < 0.6 * np.mean(losses[:STEPS])
