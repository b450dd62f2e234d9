"""All-reduce beside bare mpi4py: `mpiexec -n 4 python -m benchmarks.collectives`.

Under mpiexec every rank measures fluidtool's MPI communicator and mpi4py's `Allreduce` on the same arrays, in alternation.
Without mpiexec the ranks are threads of this process (`--ranks`), and then processes that talk by gRPC (`--grpc`); their
peer is the sum of as many arrays by numpy. Figures: the best and the median of the rounds; the ratio is the median of the
ratios of neighbouring rounds (below 1 fluidtool is faster).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.mpi import MpiCommunicator, is_started_by_mpi
from fluidtool.distribute.collective.threads import run_ranks

SIZES = {"40 B": 10, "64 KiB": 1 << 14, "1 MiB": 1 << 18, "10 MiB": 10 << 18, "100 MiB": 100 << 18}
PORT = 26170
HEADER = f"{'engine':12}{'ranks':>6}{'bytes':>10}{'fluidtool best':>16}{'median':>10}{'peer best':>12}{'median':>10}{'ratio':>8}"


def seconds(work: Callable[[], object], settle: Callable[[], object], repeats: int) -> float:
    """Seconds of one call, between barriers."""
    settle()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def compare(
    ring: Communicator, size: int, peer: Callable[[np.ndarray, np.ndarray], object], rounds: int
) -> list[list[float]]:
    """[seconds of ours, seconds of the peer's] of each round."""
    array, out = np.ones(size, "float32"), np.empty(size, "float32")
    repeats = max(1, min(200, (1 << 20) // max(size, 1)))
    found = []
    for _ in range(rounds):
        found.append(
            [
                seconds(lambda: ring.all_reduce(array, out=out), ring.barrier, repeats),
                seconds(lambda: peer(array, out), ring.barrier, repeats),
            ]
        )
    return found


def row(engine: str, ranks: int, name: str, rounds: list[list[float]]) -> str:
    ours, peers = zip(*rounds, strict=True)
    ratio = statistics.median(a / b for a, b in rounds)
    shown = [min(ours), statistics.median(ours), min(peers), statistics.median(peers)]
    own, own_median, other, other_median = (f"{value * 1000:.3f} ms" for value in shown)
    return f"{engine:12}{ranks:6}{name:>10}{own:>16}{own_median:>12}{other:>12}{other_median:>12}{ratio:8.2f}"


def measure(engine: str, ring: Communicator, rounds: int, sizes: list[str], peer: Callable[..., object]) -> None:
    for name in sizes:
        found = compare(ring, SIZES[name], peer, rounds)
        if ring.rank == 0:
            print(row(engine, ring.size, name, found), flush=True)


def under_mpi(rounds: int, sizes: list[str]) -> None:
    from mpi4py import MPI

    ring = MpiCommunicator()
    bare = MPI.COMM_WORLD.Dup()
    if ring.rank == 0:
        print(HEADER)
    measure("MPI", ring, rounds, sizes, bare.Allreduce)


def additions(ranks: int) -> Callable[[np.ndarray, np.ndarray], None]:
    """What summing the arrays of all ranks costs by itself."""

    def peer(array: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, array)
        for _ in range(ranks - 1):
            np.add(out, array, out=out)

    return peer


def by_threads(ranks: int, rounds: int, sizes: list[str]) -> None:
    run_ranks(ranks, lambda ring: measure("threads", ring, rounds, sizes, additions(ranks)))


def by_grpc(rank: int, ranks: int, rounds: int, sizes: list[str]) -> None:
    from fluidtool.distribute.collective.network import GrpcEngine

    engine = GrpcEngine(120)
    endpoints = tuple(f"127.0.0.1:{PORT + index}" for index in range(ranks))
    ring = engine.join(engine.identify("nccl_id_0", endpoints, rank), 0, rank, ranks)
    measure("gRPC", ring, rounds, sizes, additions(ranks))
    ring.close()
    engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="threads, or processes that talk by gRPC")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", default="40 B,64 KiB,1 MiB,10 MiB")
    parser.add_argument("--grpc", action="store_true", help="processes that talk by gRPC")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = args.sizes.split(",")
    if args.rank is not None:
        by_grpc(args.rank, args.ranks, args.rounds, sizes)
        return
    if is_started_by_mpi(os.environ):
        under_mpi(args.rounds, sizes)
        return
    print(HEADER)
    if not args.grpc:
        by_threads(args.ranks, args.rounds, sizes)
        return
    command = [sys.executable, "-m", "benchmarks.collectives", *sys.argv[1:]]
    started = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(args.ranks)]
    for process in started:
        process.wait()


if __name__ == "__main__":
    main()
