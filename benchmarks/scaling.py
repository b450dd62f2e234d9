"""How long a training step takes on up to 1,000 workers: `python -m benchmarks.scaling [--network NAME]`.

Not a measurement: it starts from what one machine measured (scaling.json, written by benchmarks.scaling_figures and
benchmarks.scaling_points) and from what is assumed of a network, and simulates a step (benchmarks.simulation). The same figures
always print the same tables. `--page` writes them, and what was measured, into docs/scaling.md, which explains them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

from benchmarks.scaling_points import message_seconds
from benchmarks.simulation import WARM, Costs, Layout, Network, simulate

FILE = Path(__file__).with_name("scaling.json")
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine does in a second. push, pull: bytes that a server takes and gives by gRPC; exchange: that a rank of an
    all-reduce by gRPC moves; ring: by MPI or NCCL; add: summed; update: of parameters that Adam updates. message: seconds
    of a server's processor for each message.
    """

    push: float
    pull: float
    exchange: float
    ring: float
    add: float
    update: float
    message: float


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does in a step: seconds of computing (varying by a share of them from worker to worker), bytes of
    dense gradients in how many variables, bytes of rows of a table.
    """

    seconds: float
    examples: int
    dense: float
    variables: int
    rows: float = 0.0
    variation: float = 0.05

    def finish_times(self, workers: int) -> list[float]:
        """When the workers finish computing, the first one first: the quantiles of a normal distribution."""
        normal = NormalDist()
        quantiles = [normal.inv_cdf((index + 0.5) / workers) for index in range(workers)]
        return [max(self.seconds * (1 + self.variation * quantile), 0.0) for quantile in quantiles]


def by_ring(job: Job, workers: int, machine: Machine, network: Network) -> float:
    """Seconds of a step with a ring all-reduce (NCCL, MPI): 2 (n - 1) messages of 1/n of the gradients one after the other."""
    share = (workers - 1) / workers
    rate = min(network.rate, machine.ring)
    moved = 2 * share * job.dense / rate + 2 * (workers - 1) * network.latency
    return job.finish_times(workers)[-1] + moved + share * job.dense / machine.add + job.dense / machine.update


def by_exchange(job: Job, workers: int, machine: Machine, network: Network) -> float:
    """Seconds of a step with the all-reduce by gRPC: two steps, in each of which every rank sends to all others."""
    share = (workers - 1) / workers
    moved = 2 * share * job.dense / min(network.rate, machine.exchange)
    messages = 2 * (workers - 1) * machine.message + (2 * network.latency if workers > 1 else 0)
    return (
        job.finish_times(workers)[-1] + moved + messages + share * job.dense / machine.add + job.dense / machine.update
    )


def by_servers(job: Job, workers: int, servers: int, machine: Machine, network: Network) -> float:
    """Seconds of a synchronous step with parameter servers: rows are fetched, gradients pushed, applied, and all is pulled."""
    return _simulated(job, workers, servers, machine, network, sync=True)


def asynchronous(job: Job, workers: int, servers: int, machine: Machine, network: Network) -> float:
    """Seconds between the steps of one worker without barriers."""
    return _simulated(job, workers, servers, machine, network, sync=False)


def _simulated(job: Job, workers: int, servers: int, machine: Machine, network: Network, *, sync: bool) -> float:
    """One server is simulated: the others do the same at the same time. Every process has a machine of its own."""
    messages = math.ceil(job.variables / servers) + 1  # shards, and a barrier; of reads one of them brings rows
    moved = (job.dense + job.rows) / servers
    added = (workers if sync else 1) * moved / machine.add
    costs = Costs(
        compute=job.seconds,
        serve=moved / machine.push + messages * machine.message,
        give=moved / machine.pull + messages * machine.message,
        update=added + job.dense / servers / machine.update,
        pushed=moved,
        pulled=moved,
    )
    steps = WARM + (1 if sync else 4)
    return simulate(
        costs, Layout(1, workers, alike=servers), network, sync=sync, steps=steps, variation=job.variation
    ).seconds


def fewest_servers(
    job: Job, workers: int, machine: Machine, network: Network, efficiency: float, most: int = 4096
) -> int | None:
    """The smallest number of servers with which a synchronous step keeps this efficiency; None if `most` do not."""
    wanted = job.seconds / efficiency
    if by_servers(job, workers, most, machine, network) > wanted:
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if by_servers(job, workers, middle, machine, network) <= wanted:
            high = middle
        else:
            low = middle + 1
    return low


# ---------------------------------------------------------------- tables
def read_figures(network: str) -> tuple[Machine, Network, Job, Job, dict[str, float]]:
    """(machine, network, dense job, job with a table, the rest) of the file."""
    figures = json.loads(FILE.read_text())
    measured, assumed = figures["measured"], figures["assumed"]
    machine = Machine(
        push=measured["push_bytes_per_second"],
        pull=measured["pull_bytes_per_second"],
        exchange=(10 << 20) / measured["grpc_large_seconds"],
        ring=assumed["ring_bytes_per_second"],
        add=measured["add_bytes_per_second"],
        update=measured["update_bytes_per_second"],
        message=message_seconds(figures["simulated"]),
    )
    line = assumed["networks"][network]
    dense = Job(
        assumed["dense_step_seconds"],
        assumed["dense_examples"],
        assumed["dense_bytes"],
        assumed["dense_variables"],
        variation=assumed["variation"],
    )
    clicks = Job(
        measured["click_step_seconds"],
        measured["click_examples"],
        measured["click_dense_bytes"],
        measured["click_variables"],
        measured["click_row_bytes"],
        assumed["variation"],
    )
    return machine, Network(line["bytes_per_second"], line["latency_seconds"]), dense, clicks, assumed


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns are as wide as needed, numbers to the right."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([title, *shown, ""])


def seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 10 else f"{value:.0f} s"


def step_table(job: Job, columns: dict[str, Callable[[int], float]]) -> list[list[str]]:
    """For each number of workers: seconds of a step, and the share of them that is computing."""
    rows = []
    for workers in WORKERS:
        row = [f"{workers:,}"]
        for step in columns.values():
            found = step(workers)
            row += [seconds(found), f"{job.seconds / found:.0%}"]
        rows.append(row)
    return rows


def header(columns: Iterable[str]) -> list[str]:
    return ["workers", *(text for name in columns for text in (name, "computing"))]


def dense_tables(job: Job, machine: Machine, network: Network) -> str:
    columns: dict[str, Callable[[int], float]] = {
        "ring": lambda n: by_ring(job, n, machine, network),
        "gRPC exchange": lambda n: by_exchange(job, n, machine, network),
        "16 servers": lambda n: by_servers(job, n, 16, machine, network),
        "a server each": lambda n: by_servers(job, n, n, machine, network),
    }
    title = f"Dense: {job.dense / 1e6:.0f} MB of gradients, {seconds(job.seconds)} of computing, synchronous"
    return table(title, header(columns), step_table(job, columns))


def click_tables(job: Job, machine: Machine, network: Network) -> str:
    columns: dict[str, Callable[[int], float]] = {
        f"{servers} servers": lambda n, servers=servers: by_servers(job, n, servers, machine, network)  # type: ignore[misc]
        for servers in (8, 32, 128)
    }
    title = (
        f"Sparse: {job.rows / 1e6:.2f} MB of rows and {job.dense / 1e6:.2f} MB of dense gradients, "
        f"{seconds(job.seconds)} of computing, synchronous"
    )
    return table(title, header(columns), step_table(job, columns))


def rate_table(job: Job, machine: Machine, network: Network) -> str:
    """Examples a second of all workers, with and without barriers."""
    rows = []
    for workers in WORKERS:
        row = [f"{workers:,}"]
        for servers in (8, 32, 128):
            for step in (by_servers, asynchronous):
                row.append(f"{workers * job.examples / step(job, workers, servers, machine, network):,.0f}")
        rows.append(row)
    head = ["workers", *(f"{servers} {kind}" for servers in (8, 32, 128) for kind in ("sync", "async"))]
    return table("Sparse: examples a second, by number of servers", head, rows)


def memory_table(job: Job, machine: Machine, network: Network, assumed: dict[str, float]) -> str:
    """What a table of 100 GB asks of servers, and how many keep 1,000 workers busy."""
    weights, values = assumed["table_bytes"], assumed["table_values_per_weight"]
    rows = []
    for servers in (8, 16, 32, 64, 128, 256):
        held = weights * values / servers
        step = by_servers(job, 1000, servers, machine, network)
        saved = held / machine.push
        rows.append(
            [str(servers), f"{held / GIB:.1f} GiB", seconds(step), f"{job.seconds / step:.0%}", f"{saved:.0f} s"]
        )
    title = (
        f"A table of {weights / 1e9:.0f} GB with {values - 1:.0f} value of the optimizer for each weight, 1,000 workers"
    )
    return table(title, ["servers", "memory each", "step", "computing", "to move a server's part"], rows)


def need_table(dense: Job, clicks: Job, machine: Machine, network: Network) -> str:
    """How many servers keep workers computing for half of the time."""
    rows = []
    for workers in WORKERS[1:]:
        found = [fewest_servers(job, workers, machine, network, 0.5) for job in (dense, clicks)]
        rows.append([f"{workers:,}", *("none do" if count is None else f"{count:,}" for count in found)])
    return table("Fewest servers for 50 % computing, synchronous", ["workers", "dense", "sparse"], rows)


def check_table(machine: Machine) -> str:
    """What was measured beside what the model says for the same: two ranks on one machine, 10 MiB."""
    measured = json.loads(FILE.read_text())["measured"]
    none = Job(0.0, 1, 10 << 20, 1, variation=0.0)
    loopback = Network(machine.exchange, measured["round_trip_seconds"] / 2)
    free = replace(machine, update=math.inf)
    small = replace(none, dense=40)
    rows = [
        ["gRPC, 10 MiB", seconds(by_exchange(none, 2, free, loopback)), seconds(measured["grpc_large_seconds"])],
        ["gRPC, 40 B", _fine(by_exchange(small, 2, free, loopback)), _fine(measured["grpc_small_seconds"])],
    ]
    return table("All-reduce of 2 ranks on the machine that measured", ["", "model", "measured"], rows)


def _fine(value: float) -> str:
    return f"{value * 1000:.2f} ms"


def everything(network_name: str) -> str:
    """All tables."""
    machine, network, dense, clicks, assumed = read_figures(network_name)
    return "\n".join(
        [
            check_table(machine),
            dense_tables(dense, machine, network),
            click_tables(clicks, machine, network),
            rate_table(clicks, machine, network),
            memory_table(clicks, machine, network, assumed),
            need_table(dense, clicks, machine, network),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="25 GbE", help="a network of scaling.json")
    parser.add_argument("--page", action="store_true", help="write all figures into docs/scaling.md")
    args = parser.parse_args()
    if not args.page:
        print(everything(args.network), end="")
        return
    from benchmarks.scaling_page import write

    write(everything(args.network))


if __name__ == "__main__":
    main()
