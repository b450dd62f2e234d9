"""What a message costs a parameter server: `python -m benchmarks.server_load [--mode async] [--way stream]`.

A server in a process of its own keeps six (`--variables`) variables of 8 x 16 numbers, trained by SGD. Another process plays
any number of trainers: each has a socket (or a stream) of its own and makes steps (send the gradients, barrier, get the
parameters, barrier) as fast as the server answers. Prints the processor time of the server for each message, and how long
steps take (median, 99 of 100).
"""

from __future__ import annotations

import argparse
import asyncio
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from benchmarks.distributed import free_endpoints, processor_seconds
from fluidtool.distribute.rpc.client import CHANNEL
from fluidtool.distribute.rpc.frames import FrameReader, frame_parts
from fluidtool.distribute.rpc.handler import NUMBERED, Barrier, Message
from fluidtool.distribute.rpc.methods import COMPLETE, Method
from fluidtool.distribute.rpc.service import CALL_KEY, OWN_SERVICE, TRAINER_KEY, VERSION
from fluidtool.distribute.rpc.sockets.offers import Offer, reached
from fluidtool.distribute.rpc.sockets.packets import ALIGNMENT, HEADER, Describer
from fluidtool.distribute.rpc.wire import encoded
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.tensor import LoDTensor

VARIABLES, SHAPE = 6, (8, 16)
LENGTH = Struct("<Q")  # the last field of a header
ON_A_CHANNEL = 64  # trainers that share a connection


def programs(endpoint: str, trainers: int, mode: str, variables: int) -> tuple[Any, Any]:
    """The server's programs: (main, startup)."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [SHAPE[0]])
        outs = [
            fluid.layers.fc(x, SHAPE[1], bias_attr=False, param_attr=fluid.ParamAttr(name=f"w{n}"))
            for n in range(variables)
        ]
        fluid.optimizer.SGD(0.01).minimize(fluid.layers.mean(fluid.layers.sums(outs)))
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(
            0, main, pservers=endpoint, trainers=trainers, sync_mode=mode == "sync", startup_program=startup
        )
        server = transpiler.get_pserver_program(endpoint)
        return server, transpiler.get_startup_program(endpoint, server)


def serve(endpoint: str, trainers: int, mode: str, variables: int) -> None:
    main, startup = programs(endpoint, trainers, mode, variables)
    scope, executor = Scope(), Executor(policy=Policy(endpoints=None))
    executor.run(startup, {}, [], scope)
    executor.run(main, {}, [], scope)


class Trainer:
    """One simulated trainer: what it sends is encoded before the clock runs."""

    def __init__(self, number: int, trainers: int, mode: str, variables: int = VARIABLES) -> None:
        self.is_sync, self.number, self.numbers, self.step = mode == "sync", number, 0, 0
        self.times: list[float] = []
        gradient = LoDTensor(np.full(SHAPE, 1e-3, np.float32))
        suffix = f".trainer_{number}" if mode == "sync" and trainers > 1 else ""
        sends = [
            (Method.SendVariable, Message(f"w{n}@GRAD{suffix}", gradient, trainer_id=number)) for n in range(variables)
        ]
        gets = [(Method.GetVariable, Message(f"w{n}", None, f"w{n}", "", number)) for n in range(variables)]
        sent = [(Method.SendVariable, Message(Barrier.SEND.value))] if self.is_sync else []
        fetched = [(Method.GetVariable, Message(Barrier.FETCH.value))]
        self.beginning = self.prepared([*gets, *fetched] if self.is_sync else gets)
        self.training = self.prepared([*sends, *sent, *gets, *fetched])
        self.ending = self.prepared([(Method.SendVariable, Message(COMPLETE, trainer_id=number))])
        self.messages = 2 * variables + 1 + len(sent)

    def prepared(self, calls: list[tuple[Method, Message]]) -> Any:
        """Calls that are sent together."""
        raise NotImplementedError

    def numbered(self, count: int) -> range:
        """The numbers of the next calls."""
        self.numbers += count
        return range(self.numbers - count + 1, self.numbers + 1)

    @property
    def sequence(self) -> int:
        """The step, as calls say it."""
        return self.step if self.is_sync else NUMBERED + max(self.step, 1)


class StreamTrainer(Trainer):
    """It has a stream of gRPC."""

    def __init__(self, channel: Any, number: int, trainers: int, mode: str, variables: int) -> None:
        super().__init__(number, trainers, mode, variables)
        metadata = ((TRAINER_KEY, str(number)), (CALL_KEY, f"load{number}-0"))
        self._call = channel.stream_stream(f"/{OWN_SERVICE}/Exchange")(metadata=metadata, wait_for_ready=True)
        self._reader = FrameReader(1 << 20)

    def prepared(self, calls: list[tuple[Method, Message]]) -> Any:
        return [(method, encoded(message)) for method, message in calls]

    async def exchange(self, frames: list[tuple[Method, bytes]]) -> None:
        """Send frames together and wait for all answers."""
        parts = []
        for number, (method, content) in zip(self.numbered(len(frames)), frames, strict=True):
            parts += frame_parts(number, self.sequence, method, [content])
        await self._call.write(b"".join(parts))
        left = len(frames)
        while left:
            for frame in self._reader.frames(await self._call.read()):
                if frame.code:
                    raise RuntimeError(bytes(frame.content).decode())
                left -= 1

    async def begin(self) -> None:
        """Fetch what training starts from."""
        await self.exchange(self.beginning)
        self.step = 1

    async def steps(self, count: int) -> None:
        """Train; the times of the steps are kept."""
        for _ in range(count):
            start = time.perf_counter()
            await self.exchange(self.training)
            self.step += 1
            self.times.append(time.perf_counter() - start)

    async def end(self) -> None:
        await self.exchange(self.ending)
        await self._call.done_writing()


class SocketTrainer(Trainer):
    """It has a socket."""

    def __init__(self, ask: Any, endpoint: str, number: int, trainers: int, mode: str, variables: int) -> None:
        self._describer = Describer()
        super().__init__(number, trainers, mode, variables)
        metadata = ((TRAINER_KEY, str(number)), (CALL_KEY, f"load{number}-0"))
        offer = Offer.of(ask(VERSION, metadata=metadata, wait_for_ready=True))
        found = None if offer is None else reached(offer, endpoint, 10.0, 60.0)
        assert found is not None, "the server takes no sockets"
        self.socket, self._rest, self._last, self._since = found, b"", 0, 0.0

    def prepared(self, calls: list[tuple[Method, Message]]) -> Any:
        """The bytes, and where the header of each call is; what describes patterns is sent the first time only."""
        described, data, places = b"", bytearray(), []
        for method, message in calls:
            parts, pattern = self._describer.packets(0, 0, method, message)
            described += b"".join(parts[:-1])
            places.append((len(data), method, 0 if pattern is None else pattern.number))
            data += parts[-1]
        return [described], data, places

    def post(self, prepared: Any) -> None:
        """Send calls together."""
        described, data, places = prepared
        for number, (place, method, pattern) in zip(self.numbered(len(places)), places, strict=True):
            (length,) = LENGTH.unpack_from(data, place + HEADER.size - LENGTH.size)
            HEADER.pack_into(data, place, number, self.sequence, method, pattern, length)
        self._last, self._since = self.numbers, time.perf_counter()
        self.socket.sendall(described.pop() + data if described else data)

    def has_answers(self) -> bool:
        """Read what has come; whether it is all."""
        try:
            data = self._rest + self.socket.recv(1 << 18)
        except BlockingIOError:
            return False
        at = number = 0
        while len(data) - at >= HEADER.size:
            number, _, code, _, length = HEADER.unpack_from(data, at)
            if code:
                raise RuntimeError(data[at + HEADER.size : at + HEADER.size + length].decode())
            after = at + HEADER.size + length + -length % ALIGNMENT
            if after > len(data):
                number = 0
                break
            at = after
        self._rest = data[at:]
        return number == self._last

    def done(self) -> None:
        """A step has ended."""
        self.times.append(time.perf_counter() - self._since)


def results(players: Sequence[Trainer], used: float, own: float, took: float, steps: int) -> dict[str, float]:
    """What one load gave. used, own: processor seconds of the server, and of this process."""
    count = len(players) * steps * players[0].messages
    times = [seconds for player in players for seconds in player.times]
    end = time.monotonic()
    return {
        "begin": end - took,
        "end": end,
        "us": 1e6 * used / count,
        "own_us": 1e6 * own / count,
        "step": took / steps,
        "per_second": count / took,
        "p50": 1e3 * float(np.percentile(times, 50)),
        "p99": 1e3 * float(np.percentile(times, 99)),
    }


async def load_streams(
    endpoint: str, process: int, trainers: int, mode: str, messages: int, variables: int
) -> dict[str, float]:
    import grpc.aio

    channels = [grpc.aio.insecure_channel(endpoint, options=CHANNEL) for _ in range(-(-trainers // ON_A_CHANNEL))]
    players = [
        StreamTrainer(channels[number // ON_A_CHANNEL], number, trainers, mode, variables) for number in range(trainers)
    ]
    await asyncio.gather(*(player.begin() for player in players))
    steps = max(4, messages // (trainers * players[0].messages))
    await asyncio.gather(*(player.steps(2) for player in players))
    for player in players:
        player.times.clear()
    before, own, start = processor_seconds(process), time.process_time(), time.perf_counter()
    await asyncio.gather(*(player.steps(steps) for player in players))
    took, own = time.perf_counter() - start, time.process_time() - own
    found = results(players, processor_seconds(process) - before, own, took, steps)
    await asyncio.gather(*(player.end() for player in players))
    for channel in channels:
        await channel.close()
    return found


class Sockets:
    """Trainers with sockets at a server: `begin`, then any number of `steps`, then `end`."""

    def __init__(self, endpoint: str, process: int, trainers: int, mode: str, variables: int) -> None:
        import grpc

        self._process, self._selector = process, selectors.DefaultSelector()
        with grpc.insecure_channel(endpoint, options=CHANNEL) as channel:
            ask = channel.unary_unary(f"/{OWN_SERVICE}/Socket")
            self.players = [
                SocketTrainer(ask, endpoint, number, trainers, mode, variables) for number in range(trainers)
            ]
        for player in self.players:
            self._selector.register(player.socket, selectors.EVENT_READ, player)

    def steps_of(self, messages: int, least: int = 4) -> int:
        """How many steps take so many messages."""
        return max(least, messages // (len(self.players) * self.players[0].messages))

    def begin(self) -> None:
        """Fetch what training starts from, and make the steps that do not count."""
        exchange(self._selector, self.players, "beginning", 1)
        exchange(self._selector, self.players, "training", 2)

    def steps(self, count: int) -> dict[str, float]:
        """So many steps of each trainer, and what they took."""
        for player in self.players:
            player.times.clear()
        before, own, start = processor_seconds(self._process), time.process_time(), time.perf_counter()
        exchange(self._selector, self.players, "training", count)
        took, own = time.perf_counter() - start, time.process_time() - own
        return results(self.players, processor_seconds(self._process) - before, own, took, count)

    def end(self) -> None:
        """Tell the server that all trainers are done."""
        exchange(self._selector, self.players, "ending", 1)
        for player in self.players:
            player.socket.close()
        self._selector.close()


def load_sockets(
    endpoint: str, process: int, trainers: int, mode: str, messages: int, variables: int
) -> dict[str, float]:
    load = Sockets(endpoint, process, trainers, mode, variables)
    load.begin()
    found = load.steps(load.steps_of(messages))
    load.end()
    return found


def exchange(selector: selectors.BaseSelector, players: Sequence[SocketTrainer], what: str, times: int) -> None:
    """Every trainer sends something and waits for the answers, so many times."""
    left = dict.fromkeys(players, times)
    for player in players:
        player.post(getattr(player, what))
    while left:
        for key, _ in selector.select(60):
            player = key.data
            if not player.has_answers():
                continue
            player.step += 1
            player.done()
            left[player] -= 1
            if left[player]:
                player.post(getattr(player, what))
            else:
                del left[player]


@contextmanager
def served(trainers: int, mode: str, variables: int = VARIABLES) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its endpoint, and the process. It ends with its trainers, who should be done then."""
    endpoint = free_endpoints(1)
    options = {"--serve": endpoint, "--mode": mode, "--trainers": trainers, "--variables": variables}
    words = [str(word) for option in options.items() for word in option]
    command = [sys.executable, "-m", "benchmarks.server_load", *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            yield endpoint, server.pid
            server.wait(60)
        finally:
            server.kill()


def measure(
    trainers: int, mode: str, messages: int, way: str = "socket", variables: int = VARIABLES
) -> dict[str, float]:
    """One server, one load."""
    with served(trainers, mode, variables) as (endpoint, process):
        given = endpoint, process, trainers, mode, messages, variables
        return load_sockets(*given) if way == "socket" else asyncio.run(load_streams(*given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--way", choices=["socket", "stream"], default="socket")
    parser.add_argument("--trainers", default="8,32,128,512,1000")
    parser.add_argument("--messages", type=int, default=60_000, help="in each measurement, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variables", type=int, default=VARIABLES)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    numbers = [int(text) for text in args.trainers.split(",")]
    if args.serve:
        serve(args.serve, numbers[0], args.mode, args.variables)
        return
    rounds = [
        {number: measure(number, args.mode, args.messages, args.way, args.variables) for number in numbers}
        for _ in range(args.rounds)
    ]
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
