"""What a message costs a parameter server: `python -m benchmarks.server_load [--mode async] [--trainers 8,128,1000]`.

A server in a process of its own keeps six variables of 8 x 16 numbers, trained by SGD. Another process plays any number of
trainers: each has a stream of its own and makes steps (send six gradients, barrier, get six parameters, barrier) as fast as
the server answers. Prints the processor time of the server for each message, and how long steps take (median, 99 of 100).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from benchmarks.distributed import free_endpoints
from fluidtool.distribute.rpc.client import CHANNEL
from fluidtool.distribute.rpc.frames import FrameReader, frame_parts
from fluidtool.distribute.rpc.handler import NUMBERED, Barrier, Message
from fluidtool.distribute.rpc.methods import COMPLETE, Method
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY
from fluidtool.distribute.rpc.wire import encoded
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.tensor import LoDTensor

VARIABLES, SHAPE = 6, (8, 16)
ON_A_CHANNEL = 64  # trainers that share a connection


def programs(endpoint: str, trainers: int, mode: str) -> tuple[Any, Any]:
    """The server's programs: (main, startup)."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [SHAPE[0]])
        outs = [
            fluid.layers.fc(x, SHAPE[1], bias_attr=False, param_attr=fluid.ParamAttr(name=f"w{n}"))
            for n in range(VARIABLES)
        ]
        fluid.optimizer.SGD(0.01).minimize(fluid.layers.mean(fluid.layers.sums(outs)))
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(
            0, main, pservers=endpoint, trainers=trainers, sync_mode=mode == "sync", startup_program=startup
        )
        server = transpiler.get_pserver_program(endpoint)
        return server, transpiler.get_startup_program(endpoint, server)


def serve(endpoint: str, trainers: int, mode: str) -> None:
    main, startup = programs(endpoint, trainers, mode)
    scope, executor = Scope(), Executor(policy=Policy(endpoints=None))
    executor.run(startup, {}, [], scope)
    executor.run(main, {}, [], scope)


class Trainer:
    """One simulated trainer: what it sends is encoded before the clock runs."""

    def __init__(self, channel: Any, number: int, trainers: int, mode: str) -> None:
        self._is_sync, self._numbers, self.step = mode == "sync", 0, 0
        self.times: list[float] = []
        metadata = ((TRAINER_KEY, str(number)), (CALL_KEY, f"load{number}-0"))
        self._call = channel.stream_stream(f"/{OWN_SERVICE}/Exchange")(metadata=metadata, wait_for_ready=True)
        self._reader, self._number = FrameReader(1 << 20), number
        gradient = LoDTensor(np.full(SHAPE, 1e-3, np.float32))
        suffix = f".trainer_{number}" if mode == "sync" and trainers > 1 else ""
        self._sends = [
            (Method.SendVariable, encoded(Message(f"w{n}@GRAD{suffix}", gradient, trainer_id=number)))
            for n in range(VARIABLES)
        ]
        self._gets = [
            (Method.GetVariable, encoded(Message(f"w{n}", None, f"w{n}", "", number))) for n in range(VARIABLES)
        ]
        self._sent = [(Method.SendVariable, encoded(Message(Barrier.SEND.value)))] if self._is_sync else []
        self._fetched = [(Method.GetVariable, encoded(Message(Barrier.FETCH.value)))]

    async def exchange(self, frames: list[tuple[Method, bytes]], ends: int = -1) -> None:
        """Send frames together and wait for all answers. ends: the place of a fetch barrier, which ends a step."""
        parts = []
        for place, (method, content) in enumerate(frames):
            self._numbers += 1
            step = self.step if self._is_sync else NUMBERED + max(self.step, 1)
            parts += frame_parts(self._numbers, step, method, [content])
            if place == ends:
                self.step += 1
        await self._call.write(b"".join(parts))
        left = len(frames)
        while left:
            for frame in self._reader.frames(await self._call.read()):
                if frame.code:
                    raise RuntimeError(bytes(frame.content).decode())
                left -= 1

    async def begin(self) -> None:
        """Fetch what training starts from."""
        await self.exchange([*self._gets, *self._fetched] if self._is_sync else self._gets, VARIABLES)
        self.step = 1

    async def steps(self, count: int) -> None:
        """Train; the times of the steps are kept."""
        for _ in range(count):
            start = time.perf_counter()
            await self.exchange([*self._sends, *self._sent, *self._gets, *self._fetched])
            self.step += 1
            self.times.append(time.perf_counter() - start)

    async def end(self) -> None:
        await self.exchange([(Method.SendVariable, encoded(Message(COMPLETE, trainer_id=self._number)))])
        await self._call.done_writing()

    @property
    def messages(self) -> int:
        """Of a step."""
        return 2 * VARIABLES + 1 + len(self._sent)


def processor_seconds(process: int) -> float:
    """What a process has used until now."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def load(endpoint: str, process: int, trainers: int, mode: str, messages: int) -> dict[str, float]:
    import grpc.aio

    channels = [grpc.aio.insecure_channel(endpoint, options=CHANNEL) for _ in range(-(-trainers // ON_A_CHANNEL))]
    players = [Trainer(channels[number // ON_A_CHANNEL], number, trainers, mode) for number in range(trainers)]
    await asyncio.gather(*(player.begin() for player in players))
    steps = max(4, messages // (trainers * players[0].messages))
    await asyncio.gather(*(player.steps(2) for player in players))
    for player in players:
        player.times.clear()
    before, start = processor_seconds(process), time.perf_counter()
    await asyncio.gather(*(player.steps(steps) for player in players))
    used, took = processor_seconds(process) - before, time.perf_counter() - start
    await asyncio.gather(*(player.end() for player in players))
    for channel in channels:
        await channel.close()
    count = trainers * steps * players[0].messages
    times = [seconds for player in players for seconds in player.times]
    return {
        "us": 1e6 * used / count,
        "per_second": count / took,
        "p50": 1e3 * float(np.percentile(times, 50)),
        "p99": 1e3 * float(np.percentile(times, 99)),
    }


def measure(trainers: int, mode: str, messages: int) -> dict[str, float]:
    """One server, one load."""
    endpoint = free_endpoints(1)
    command = [
        sys.executable,
        "-m",
        "benchmarks.server_load",
        "--serve",
        endpoint,
        "--mode",
        mode,
        "--trainers",
        str(trainers),
    ]
    with subprocess.Popen(command) as server:
        try:
            found = asyncio.run(load(endpoint, server.pid, trainers, mode, messages))
            server.wait(60)
        finally:
            server.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--trainers", default="8,32,128,512,1000")
    parser.add_argument("--messages", type=int, default=60_000, help="in each measurement, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    numbers = [int(text) for text in args.trainers.split(",")]
    if args.serve:
        serve(args.serve, numbers[0], args.mode)
        return
    rounds = [{number: measure(number, args.mode, args.messages) for number in numbers} for _ in range(args.rounds)]
    print(
        f"{'trainers':>8}{'us a message':>14}{'of ' + str(numbers[0]):>8}{'messages/s':>12}{'p50':>10}{'p99':>10}{'p99/p50':>9}"
    )
    first = min(found[numbers[0]]["us"] for found in rounds)
    for number in numbers:
        best = min((found[number] for found in rounds), key=lambda found: found["us"])
        print(
            f"{number:8,}{best['us']:14.1f}{best['us'] / first:8.2f}{best['per_second']:12,.0f}"
            f"{best['p50']:7.1f} ms{best['p99']:7.1f} ms{best['p99'] / best['p50']:9.2f}"
        )


if __name__ == "__main__":
    main()
