"""Connections that break at any time: a synchronous job ends with the bits of one that nothing disturbed."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.distribute.launch.ports import free_endpoints
from fluidtool.distribute.rpc.sockets.door import Door
from fluidtool.distribute.rpc.sockets.offers import Offer
from tests.distribute.pserver.test_jobs import Job
from tests.distribute.test_training import batches, network

CUTS = 8


class Proxy:
    """Passes bytes on between a port and a server, until a connection is cut."""

    def __init__(self, endpoint: str, target: str) -> None:
        self.target, self.connections = address(target), list[tuple[socket.socket, socket.socket]]()
        self._listener = socket.create_server(address(endpoint))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self.target, timeout=5)
                except OSError:  # the server does not listen yet, or any more
                    near.close()
                    continue
                self.connections.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            end.close()

    def cut(self, choose: random.Random) -> bool:
        """Break a connection, if there is one."""
        live = [pair for pair in self.connections if pair[0].fileno() != -1]
        for end in choose.choice(live) if live else ():
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return bool(live)

    def close(self) -> None:
        self._listener.close()
        for pair in self.connections:
            for end in pair:
                end.close()


def address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def adam() -> Any:
    return network(lambda: fluid.optimizer.Adam(0.001))


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Proxy]]:
    """Proxies of the sockets that servers of this process offer, made when the first client asks."""
    made: dict[int, Proxy] = {}
    offer = Door.offer

    def proxied(door: Door, trainer_id: int, client: str) -> Offer:
        if door.port not in made:
            made[door.port] = Proxy("127.0.0.1:0", f"127.0.0.1:{door.port}")
            found.append(made[door.port])
        return replace(offer(door, trainer_id, client), name="", port=made[door.port].port)

    found: list[Proxy] = []
    monkeypatch.setattr(Door, "offer", proxied)
    yield found
    for proxy in found:
        proxy.close()


@pytest.mark.parametrize("way", ["", "stream"], ids=["socket", "stream"])
@pytest.mark.parametrize("seed", [1, 2])
def test_broken_connections_lose_and_double_nothing(
    seed: int, way: str, sockets: list[Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_RPC", way)
    data = batches(3) * 4
    losses, parameters = Job(adam(), data).run()
    job, choose, done = Job(adam(), data), random.Random(seed), threading.Event()
    behind = free_endpoints(2)
    proxies = [Proxy(endpoint, target) for endpoint, target in zip(job.settings.servers, behind, strict=True)]
    for role, endpoint in zip(job.servers, behind, strict=True):
        role.main.global_block().ops[-1].set_attr("endpoint", endpoint)

    def disturb() -> None:
        cuts = 0
        while cuts < CUTS and not done.wait(choose.uniform(0.02, 0.15)):
            cuts += choose.choice([*proxies, *sockets]).cut(choose)

    disturbing = threading.Thread(target=disturb, daemon=True)
    disturbing.start()
    try:
        found, values = job.run()
    finally:
        done.set()
        disturbing.join()
        for proxy in proxies:
            proxy.close()
    assert bool(sockets) == (way == "")
    assert found == losses
    for name, array in parameters.items():
        np.testing.assert_array_equal(values[name], array, err_msg=name)
