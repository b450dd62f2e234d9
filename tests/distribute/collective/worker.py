"""One rank of a job, as a process: `python worker.py RANK RANKS PORT JOB OUT`; RANK 'mpi': that of MPI.

JOB: train (in each way of TRAINED, one after the other; write the parameters to OUT), collectives (write results of each), or
what goes wrong at rank 1 in the middle of collectives: raise, kill, stop, other, leave.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.engines import deadline_seconds
from tests.distribute.collective.support import STEPS, batch, endpoints, parameters, programs

TRAINED = ("grad_allreduce", "local_sgd", "nccl2")


def train(rank: int, ranks: int, port: int, job: str) -> list[np.ndarray]:
    main, startup, loss = programs(seed=rank)
    config = fluid.DistributeTranspilerConfig()
    config.mode, config.wait_port = ("nccl2" if job == "nccl2" else "collective"), False
    config.collective_mode = None if job == "nccl2" else job
    trainers = ",".join(endpoints(ranks, port))
    fluid.DistributeTranspiler(config).transpile(
        rank, main, trainers=trainers, startup_program=startup, current_endpoint=endpoints(ranks, port)[rank]
    )
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    parallel = None
    for step in range(STEPS):
        feed = batch(step, rank, ranks)
        if job == "nccl2":
            if parallel is None:
                parallel = fluid.ParallelExecutor(False, loss, main, num_trainers=ranks, trainer_id=rank)
            parallel.run([loss], feed=feed)
        else:
            executor.run(main, feed=feed, fetch_list=[loss])
    found = parameters(main, fluid.global_scope())
    executor.close()
    return found


def train_anew(rank: int, ranks: int, port: int, job: str) -> list[np.ndarray]:
    """As in a process of its own."""
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        return train(rank, ranks, port, job)


def joined(rank: int, ranks: int, port: int) -> Communicator:
    seconds = deadline_seconds(os.environ)
    if os.environ["FLUIDTOOL_COLLECTIVE"] == "mpi":
        from fluidtool.distribute.collective.mpi import MpiCommunicator

        return MpiCommunicator(rank, ranks, 0, seconds)
    from fluidtool.distribute.collective.network import GrpcEngine

    engine = GrpcEngine(seconds)
    return engine.join(engine.identify("nccl_id_0", endpoints(ranks, port), rank), 0, rank, ranks)


def collectives(ring: Communicator) -> list[np.ndarray]:
    """A result of each collective, of small and of large arrays."""
    found = []
    for size in (5, 10_000):
        own = np.random.default_rng(ring.rank).normal(size=(ring.size * size, 2)).astype("float32")
        found += [ring.all_reduce(own, reduction) for reduction in ("sum", "max", "min", "prod")]
        found += [ring.broadcast(own, 1), ring.all_gather(own), ring.all_gather(ring.reduce_scatter(own))]
        found.append(ring.all_gather(ring.all_to_all(own[: ring.size])))
        found += [ring.all_reduce(own.astype("float16")), ring.broadcast(own.astype("int64"), 0)]
        found.append(ring.broadcast(ring.reduce(own, 1), 1))
        last = own.copy()
        found.append(ring.all_reduce(last, out=last))
        prepared = own.copy()
        reduce = ring.prepare_all_reduce(prepared)
        for _ in range(3):
            prepared[...] = own
            reduce()
        found.append(prepared)
    found.append(np.frombuffer(b"".join(ring.exchange(b"x" * ring.rank)), "uint8"))
    ring.barrier()
    return found


def go_wrong(ring: Communicator, job: str) -> None:
    ring.barrier()
    if ring.rank == 1:
        if job == "raise":
            raise ValueError("no more data")
        if job == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if job == "stop":
            time.sleep(4 * deadline_seconds(os.environ))
        if job == "other":
            ring.all_gather(np.zeros((2, 2)))
        if job == "leave":
            return
    ring.all_reduce(np.zeros(3))


def main(arguments: list[str]) -> None:
    who, ranks, port, job, out = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3], Path(arguments[4])
    if who == "mpi":
        from mpi4py import MPI

        who = str(MPI.COMM_WORLD.Get_rank())
    rank = int(who)
    found: list[Any]
    if job == "collectives":
        found = collectives(joined(rank, ranks, port))
    elif job == "train":
        found = [
            array for number, way in enumerate(TRAINED) for array in train_anew(rank, ranks, port + ranks * number, way)
        ]
    else:
        go_wrong(joined(rank, ranks, port), job)
        found = []
    np.savez(out / f"rank_{rank}.npz", *found)


if __name__ == "__main__":
    main(sys.argv[1:])
