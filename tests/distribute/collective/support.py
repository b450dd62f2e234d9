"""A small training job for several ranks, with the same numbers in one process for comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from fluidtool.distribute.collective.engines import ThreadEngine, ThreadWorld
from fluidtool.distribute.collective.programs import CollectivePlan, shared_parameters, transpile_collective
from fluidtool.distribute.collective.threads import run_ranks
from fluidtool.ir import Program
from fluidtool.runtime import Executor, Scope
from fluidtool.runtime.communicators import Communicators
from fluidtool.runtime.policy import Policy
from fluidtool.tensor import CPUPlace

RANKS, BATCH, STEPS = 4, 8, 5


def regression() -> Any:
    """A network with two layers; every rank makes other initial parameters, rank 0's count."""
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 5, act="tanh")
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def programs(seed: int = 0, optimizer: Callable[[], Any] | None = None) -> tuple[Program, Program, str]:
    """(main, startup, name of the loss)."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed + 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = regression()
        (optimizer or (lambda: fluid.optimizer.Momentum(0.1, 0.9)))().minimize(loss)
    return main, startup, loss.name


def endpoints(ranks: int = RANKS, port: int = 6170) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port + rank}" for rank in range(ranks))


def transpiled(
    rank: int, ranks: int = RANKS, kind: str = "grad_allreduce", rings: int = 1
) -> tuple[Program, Program, str]:
    """The programs of one rank of a collective job."""
    main, startup, loss = programs(seed=rank)
    listed = endpoints(ranks)
    plan = CollectivePlan(kind, rank, listed, listed[rank], rings, shared_parameters(main, startup))
    with fluid.unique_name.guard():
        transpile_collective(main, startup, plan)
    return main, startup, loss


def batch(step: int, rank: int | None = None, ranks: int = RANKS) -> dict[str, Any]:
    """What a rank is fed in a step; None: what all of them are, one below the other."""
    random = np.random.default_rng(step)
    x, y = random.normal(size=(ranks * BATCH, 6)).astype("f4"), random.normal(size=(ranks * BATCH, 1)).astype("f4")
    rows = slice(None) if rank is None else slice(rank * BATCH, (rank + 1) * BATCH)
    return {"x": x[rows], "y": y[rows]}


def alone(ranks: int = RANKS, steps: int = STEPS) -> list[np.ndarray]:
    """The parameters after training in one process on everybody's batches."""
    main, startup, _ = programs()
    scope, executor = Scope(), Executor(engine="numpy")
    executor.run(startup, {}, [], scope)
    for step in range(steps):
        executor.run(main, batch(step, ranks=ranks), [], scope)
    return parameters(main, scope)


def parameters(main: Program, scope: Scope) -> list[np.ndarray]:
    return [np.array(scope.find_var(var.name).value.numpy()) for var in main.all_parameters()]


def thread_scope(world: ThreadWorld) -> Scope:
    """A scope whose rings are between threads of this process."""
    scope = Scope()
    scope.communicators = Communicators(CPUPlace(), Policy(endpoints=None), lambda: ThreadEngine(world))
    return scope


def train_threads(
    jobs: list[tuple[Program, Program, str]], steps: int = STEPS, seconds: float = 20.0
) -> list[list[np.ndarray]]:
    """Run each rank's startup and main programs on a thread; the parameters of each."""
    world = ThreadWorld(len(jobs), seconds)

    def rank(communicator: Any) -> list[np.ndarray]:
        main, startup, loss = jobs[communicator.rank]
        scope, executor = thread_scope(world), Executor(engine="numpy")
        try:
            executor.run(startup, {}, [], scope)
            for step in range(steps):
                executor.run(main, batch(step, communicator.rank, len(jobs)), [loss], scope)
        except Exception as error:
            world.abort(str(error))
            raise
        return parameters(main, scope)

    return run_ranks(len(jobs), rank, seconds)
