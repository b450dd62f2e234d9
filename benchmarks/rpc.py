"""The transport of parameter servers on this machine: python -m benchmarks.rpc [--mib N] [--steps N].

A server in a process of its own keeps one large and some small variables; a trainer pushes and pulls the large one, and
runs steps (send each small one, barrier, get each, barrier): on a socket, on a stream of gRPC, and by Paddle's calls. Prints a
table; "s a GiB" is the time of both processors for a GiB in one direction.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.distributed import processor_seconds
from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, NotFound, Value
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import serve
from fluidtool.tensor import LoDTensor

SMALL = 6


class Store:
    """Keeps what is sent, and waits for nobody."""

    def __init__(self, mib: int) -> None:
        self.values: dict[str, Any] = {"large": LoDTensor(np.ones(mib << 18, np.float32))}
        self.values |= {f"small{index}": LoDTensor(np.ones((8, 16), np.float32)) for index in range(SMALL)}

    def send(self, message: Message, call: Call) -> None:
        self.values[message.name] = message.value

    def get(self, request: Message, call: Call) -> Value:
        if request.name not in self.values:
            raise NotFound(request.name)
        value: Value = self.values[request.name]
        return value

    get_without_barrier = prefetch = get

    def barrier(self, kind: Barrier, call: Call) -> None: ...

    def complete(self, trainer_id: int, call: Call) -> None: ...

    def checkpoint(self, request: Message, call: Call) -> None: ...

    def notify(self, message: Message, call: Call) -> None: ...


def run_server(mib: int) -> None:
    """Serve until standard input ends."""
    with serve("127.0.0.1:0", Store(mib)) as server:
        print(server.endpoint, flush=True)
        sys.stdin.read()


def seconds(work: Callable[[], Any], times: int) -> list[float]:
    """How long each run took."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return found


def step(client: Client) -> None:
    """A step as a transpiled trainer program makes it."""
    value = LoDTensor(np.ones((8, 16), np.float32))
    for index in range(SMALL):
        client.post_send(f"small{index}@GRAD", value)
    client.post_send_barrier()
    for pending in [client.post_get(f"small{index}") for index in range(SMALL)]:
        client.wait_value(pending)
    client.post_fetch_barrier()


def measure(endpoint: str, process: int, way: str, mib: int, steps: int) -> dict[str, float]:
    """GiB/s of pushes and pulls, milliseconds of a step and of one get, seconds of processors for a GiB there and back."""
    client = connect(endpoint, 0, TransportOptions(streaming=way != "calls", sockets=way.startswith("socket")))
    large = LoDTensor(np.ones(mib << 18, np.float32))
    step(client)
    client.send("pushed", large)
    before = time.process_time() + processor_seconds(process)
    push = min(seconds(lambda: client.send("pushed", large), 5))
    pull = min(seconds(lambda: client.get("large"), 5))
    used = time.process_time() + processor_seconds(process) - before
    times = seconds(lambda: step(client), steps)
    one = seconds(lambda: client.get("small0"), steps)
    client.settle()
    client.close()
    return {
        "push GiB/s": mib / 1024 / push,
        "pull GiB/s": mib / 1024 / pull,
        "s a GiB": used / 10 / (mib / 1024),
        "ms a step": statistics.median(times) * 1000,
        "ms a get": statistics.median(one) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        run_server(args.mib)
        return
    command = [sys.executable, "-m", "benchmarks.rpc", "--serve", "--mib", str(args.mib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        endpoint = server.stdout.readline().strip()
        rows = {
            way: measure(endpoint, server.pid, way, args.mib, args.steps)
            for way in ("socket", "stream", "calls", "socket again")
        }
        server.stdin.close()
    names = list(rows["socket"])
    print(f"{args.mib} MiB, steps of {SMALL} variables".ljust(34), *(name.rjust(11) for name in names))
    for way, found in rows.items():
        print(way.ljust(34), *(f"{found[name]:11.2f}" for name in names))


if __name__ == "__main__":
    main()
