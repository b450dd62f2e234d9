"""All-reduce beside bare mpi4py: `mpiexec -n 4 python -m benchmarks.collectives`.

Under mpiexec every rank measures fluidtool's MPI communicator and mpi4py's `Allreduce` on the same arrays, in alternation:
into another array, in place, and in place with what was prepared before. The peer is called in the same way, the last one
as it is in place.
Without mpiexec the ranks are threads of this process (`--ranks`), and then processes that talk by gRPC (`--grpc`); their
peer is the sum of as many arrays by numpy. Figures: the best and the median of the rounds; the ratio is the median of the
ratios of neighboring rounds (below 1 fluidtool is faster).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from fluidtool.distribute.collective.buckets import Sums
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.mpi import MpiCommunicator, is_started_by_mpi
from fluidtool.distribute.collective.threads import run_ranks

SIZES = {
    "40 B": 10,
    "1 KiB": 1 << 8,
    "16 KiB": 1 << 12,
    "64 KiB": 1 << 14,
    "256 KiB": 1 << 16,
    "1 MiB": 1 << 18,
    "10 MiB": 10 << 18,
    "100 MiB": 100 << 18,
}
BUCKETS_MIB = [0, 1, 2, 4, 8, 16, 32, 64]
STAGES = [(64, 256, 3), (128, 512, 4), (256, 1024, 6), (512, 2048, 3)]  # of ResNet-50: width, outputs, blocks
GRADIENTS = [
    size
    for width, outputs, blocks in STAGES
    for _ in range(blocks)
    for size in (width * outputs, width, width, 9 * width * width, width, width, width * outputs, outputs, outputs)
] + [2048 * 1000, 1000]
PORT = 26170
Work = Callable[[], object]
HEADER = f"{'engine':15}{'ranks':>6}{'bytes':>10}{'fluidtool best':>16}{'median':>10}{'peer best':>12}{'median':>10}{'ratio':>8}"


def seconds(work: Work, settle: Work, repeats: int) -> float:
    """Seconds of one call, between barriers."""
    settle()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def compare(ours: Work, peer: Work, settle: Work, rounds: int, repeats: int) -> list[list[float]]:
    """[seconds of ours, seconds of the peer's] of each round; they take turns at being first."""
    found = []
    for number in range(rounds):
        pair = [(0, ours), (1, peer)][:: 1 if number % 2 else -1]
        measured = {which: seconds(work, settle, repeats) for which, work in pair}
        found.append([measured[0], measured[1]])
    return found


def row(engine: str, ranks: int, name: str, rounds: list[list[float]]) -> str:
    ours, peers = zip(*rounds, strict=True)
    ratio = statistics.median(a / b for a, b in rounds)
    shown = [min(ours), statistics.median(ours), min(peers), statistics.median(peers)]
    own, own_median, other, other_median = (f"{value * 1000:.3f} ms" for value in shown)
    return f"{engine:15}{ranks:6}{name:>10}{own:>16}{own_median:>12}{other:>12}{other_median:>12}{ratio:8.2f}"


def repeats_of(size: int) -> int:
    return max(1, min(200, (1 << 20) // max(size, 1)))


def measure(engine: str, ring: Communicator, rounds: int, sizes: list[str], peer: Callable[..., object]) -> None:
    for name in sizes:
        array, out = np.ones(SIZES[name], "float32"), np.empty(SIZES[name], "float32")
        calls = partial(ring.all_reduce, array, out=out), partial(peer, array, out)
        show(engine, ring, name, compare(*calls, ring.barrier, rounds, repeats_of(SIZES[name])))


def show(engine: str, ring: Communicator, name: str, found: list[list[float]]) -> None:
    if ring.rank == 0:
        print(row(engine, ring.size, name, found), flush=True)


def under_mpi(rounds: int, sizes: list[str]) -> None:
    from mpi4py import MPI

    ring = MpiCommunicator()
    bare = MPI.COMM_WORLD.Dup()
    if ring.rank == 0:
        print(HEADER)
    measure("MPI", ring, rounds, sizes, bare.Allreduce)
    for name in sizes:
        array = np.zeros(SIZES[name], "float32")
        peer = partial(bare.Allreduce, MPI.IN_PLACE, array)
        ways = {"in place": partial(ring.all_reduce, array, out=array), "prepared": ring.prepare_all_reduce(array)}
        for way, ours in ways.items():
            show(f"MPI, {way}", ring, name, compare(ours, peer, ring.barrier, rounds, repeats_of(SIZES[name])))


def by_buckets(rounds: int) -> None:
    """How long the gradients of a network take, by the size of the buckets that they travel in."""
    ring = MpiCommunicator()
    arrays = [np.ones(size, "float32") for size in GRADIENTS]
    found: dict[int, list[float]] = {limit: [] for limit in BUCKETS_MIB}
    for number in range(rounds):
        for limit in BUCKETS_MIB[number % len(BUCKETS_MIB) :] + BUCKETS_MIB[: number % len(BUCKETS_MIB)]:
            found[limit].append(seconds(partial(Sums(ring, limit << 20).of, arrays), ring.barrier, 1))
    if ring.rank == 0:
        print(f"{len(arrays)} gradients, {sum(array.nbytes for array in arrays) / 2**20:.0f} MiB")
        for limit, measured in found.items():
            ratio = statistics.median(own / base for own, base in zip(measured, found[32], strict=True))
            shown = [f"{value * 1000:.0f} ms" for value in (min(measured), statistics.median(measured))]
            print(f"buckets of {limit:3} MiB: best {shown[0]}, median {shown[1]}, {ratio:.2f} of 32 MiB")


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
    parser.add_argument("--buckets", action="store_true", help="under mpiexec: gradients by the size of buckets")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = args.sizes.split(",")
    if args.rank is not None:
        by_grpc(args.rank, args.ranks, args.rounds, sizes)
        return
    if is_started_by_mpi(os.environ):
        by_buckets(args.rounds) if args.buckets else under_mpi(args.rounds, sizes)
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
