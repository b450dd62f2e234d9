"""Attacks on the ports of a job that trains: it must end as if nobody had come, in memory that is bounded.

A case is one connection, or a crowd of them: to the port for gRPC, or to where sockets of fluidtool's own roles are taken, with
and without a ticket. Nothing leaves this machine: servers listen on loopback.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import grpc

from fluidtool.distribute.launch.jobs import move_job, read_job
from fluidtool.distribute.launch.ports import free_endpoints
from fluidtool.distribute.rpc.methods import Method
from fluidtool.distribute.rpc.security import TOKEN_KEY
from tests.faults.storm import Events, compare, learn_in_peace, prepare, start, training
from tests.fuzz._attacks import ATTACKS, send, send_on
from tests.fuzz._socket_attacks import attack_sockets, doors
from tests.fuzz.campaign import Budget, Finding

TOKEN = "a token that attackers do not know"
EPOCHS = 200
MISSED = "nobody there"
SOCKETS = 0.7  # the share of attacks on sockets
KEPT = 64  # connections that stay open, as slow callers' do
GROWTH = 256 << 20  # bytes that a server may grow by while it is attacked
LIMIT = 240.0
STATUS = Path("/proc")


def search(budget: Budget) -> Iterator[Finding]:
    """Attack one job after the other until the time is up."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        job = prepare(folder)
        seeds, kinds = budget.seeds(), Counter[str]()
        for number in range(1 << 30):
            yield from _attacked(folder, job, folder / f"job_{number}", seeds, kinds)
            if time.monotonic() - budget.started > budget.seconds:
                break
    print(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())), file=sys.stderr)


def _attacked(
    folder: Path, job: Path, place: Path, seeds: Iterator[int], kinds: Counter[str] | None = None
) -> Iterator[Finding]:
    """One job, attacked until it ends."""
    endpoints = free_endpoints(len(read_job(job).cluster.endpoints))
    moved = move_job(read_job(job), endpoints, place)
    save = place.with_name(place.name + "_saved")
    words = ["launch", "--json", "--hang-after", "120", str(moved.path), *training(folder, save, EPOCHS)]
    log = place.with_name(place.name + ".log")
    with log.open("w") as errors:
        launched = start(words, stdout=subprocess.PIPE, stderr=errors, env={"FLUIDTOOL_TOKEN": TOKEN})
    events = Events(launched)
    ports = [int(endpoint.rpartition(":")[2]) for endpoint in endpoints]
    try:
        yield from _attack_until_the_end(launched, events, ports, seeds, Counter() if kinds is None else kinds)
    finally:
        if launched.poll() is None:
            launched.kill()
        launched.wait()
        events.close()
    if launched.returncode:
        yield Finding(str(place), f"the job ended with {launched.returncode}: {log.read_text()[-500:]}")
    else:
        for difference in compare(folder, learn_in_peace(folder, job, EPOCHS), save):
            yield Finding(str(place), difference)
    shutil.rmtree(place, ignore_errors=True)


def _attack_until_the_end(
    launched: subprocess.Popen[str], events: Events, ports: list[int], seeds: Iterator[int], kinds: Counter[str]
) -> Iterator[Finding]:
    open_links: deque[socket.socket] = deque()
    before: dict[int, int] = {}
    end = time.monotonic() + LIMIT
    for seed in seeds:
        if launched.poll() is not None or time.monotonic() > end:
            break
        servers = [process for role, process in list(events.now.items()) if role.startswith("pserver")]
        kind, links = attack(seed, ports, servers)
        kinds[kind] += 1
        open_links += links
        while len(open_links) > KEPT + len(links):
            open_links.popleft().close()
        for role, process in list(events.now.items()):
            grown = _memory(process) - before.setdefault(process, _memory(process))
            if role.startswith("pserver") and grown > GROWTH:
                yield Finding(f"attack {seed}", f"{role} has grown by {grown >> 20} MiB")
                before[process] += grown
    with suppress(subprocess.TimeoutExpired):
        launched.wait(max(end - time.monotonic(), 1))
    for link in open_links:
        link.close()


def attack(seed: int, ports: list[int], servers: Sequence[int] = ()) -> tuple[str, list[socket.socket]]:
    """One attack: what it was, and the connections that stay open. servers: processes that have sockets."""
    source = random.Random(seed)
    place = source.randrange(len(ports))
    try:
        if servers and source.random() < SOCKETS:
            process = servers[place % len(servers)]
            return attack_sockets(source, ports[place], doors(process), TOKEN, send_on)
        if source.random() < 0.2:
            _call(source, ports[place])
            return "a call", []
        kind = source.choice(ATTACKS)
        link = send(ports[place], kind(source), slowly=source.random() < 0.2)
        return kind.__name__, [] if link is None else [link]
    except OSError:  # the server is not there yet, or not any more
        time.sleep(0.02)
        return MISSED, []


def _call(source: random.Random, port: int) -> None:
    """A call as a program makes it: without the token, or with it and with nonsense."""
    metadata = source.choice(
        [(), ((TOKEN_KEY, "wrong" * 5),), ((TOKEN_KEY, TOKEN),), ((TOKEN_KEY, TOKEN), ("x", "y" * 9000))]
    )
    body = source.choice([b"", source.randbytes(200), bytes(source.choice([1 << 10, 1 << 20, 8 << 20]))])
    path = source.choice(
        [*(f"/sendrecv.SendRecvService/{method.name}" for method in Method), "/fluidtool.Parameters/Exchange"]
    )
    own = [("grpc.use_local_subchannel_pool", 1)]
    with suppress(grpc.RpcError), grpc.insecure_channel(f"127.0.0.1:{port}", options=own) as channel:
        if path.endswith("Exchange"):
            for _ in channel.stream_stream(path)(iter([body]), timeout=2, metadata=metadata):
                pass
        else:
            channel.unary_unary(path)(body, timeout=2, metadata=metadata)


def _memory(process: int) -> int:
    """Bytes of a process that are in memory; 0 when it has ended."""
    with suppress(OSError, ValueError, IndexError):
        return int((STATUS / str(process) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
