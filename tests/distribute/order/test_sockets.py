"""Synchronous servers in earnest, on sockets that break at any call: no value of a round is missed, and none counts twice."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.roles import server_programs
from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import serve
from fluidtool.distribute.settings import Settings
from fluidtool.fluid import optimizer
from fluidtool.tensor import LoDTensor
from tests.distribute.order.model import Asked, script
from tests.distribute.order.undisturbed import ENDPOINTS, KEEPS, ONES, ROW, TRAINERS
from tests.distribute.pserver.support import rows, running, start, table, together

MANY = TransportOptions(retry_times=1000, deadline=60.0)


class Trainer:
    """Makes the calls of a script by sockets, breaks some of them, and checks what it reads."""

    def __init__(self, number: int, endpoints: list[str], chance: random.Random, breaks: float) -> None:
        self.number, self._chance, self._breaks, self.broken = number, chance, breaks, 0
        self.clients = [connect(endpoint, number, MANY) for endpoint in endpoints]

    def run(self, steps: int) -> None:
        for posted in script(KEEPS, steps):
            client = self.clients[posted.server]
            self._call(client, posted.server, posted.asked, posted.step)
            if self._chance.random() < self._breaks:
                client.flush()
                self._break(client)
        for client in self.clients:
            client.complete()
            client.close()

    def _break(self, client: Any) -> None:
        line = client._way()._stream
        if line is not None:
            self.broken += 1
            with suppress(OSError):
                line._socket.shutdown(self._chance.choice([socket.SHUT_RDWR, socket.SHUT_WR]))

    def _call(self, client: Any, server: int, asked: Asked, step: int) -> None:
        if asked is Asked.ROWS:
            found = client.prefetch("rows", LoDTensor(np.array([[ROW]], np.int64)), "out", "emb").array[0, 0]
            assert found == 1 - (step - 1), f"trainer {self.number} reads {found} in step {step}"
        elif asked is Asked.PARAMETER:
            found = client.get("w").array[0, 0]
            assert found == 0.5 - step, f"trainer {self.number} fetches {found} in step {step}"
        elif asked is Asked.GRADIENT and server == 0:
            client.post_send(f"emb@GRAD.trainer_{self.number}", rows([ROW], ONES.reshape(1, 4)))
        elif asked is Asked.GRADIENT:
            client.post_send(f"w@GRAD.trainer_{self.number}", LoDTensor(ONES))
        elif asked is Asked.SENT:
            client.post_send_barrier()
        else:
            client.post_fetch_barrier()


@pytest.mark.filterwarnings("ignore:pserver .* has no optimize block")
@pytest.mark.parametrize(("steps", "breaks"), [(200, 0.0), (30, 0.1)])
@pytest.mark.parametrize("seed", [1, 2])
def test_rounds_keep_their_order_on_sockets(
    steps: int, breaks: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(0, TRAINERS, ENDPOINTS)
    with ExitStack() as stack:
        handlers, endpoints = [], []
        for role in server_programs(*table(lambda: optimizer.SGD(1.0)), settings, ENDPOINTS):
            handler = stack.enter_context(running(role.main, start(role), monkeypatch)).handler
            handlers.append(handler)
            endpoints.append(stack.enter_context(serve("127.0.0.1:0", handler, lost=handler.lost)).endpoint)
        trainers = [Trainer(n, endpoints, random.Random(seed * 10 + n), breaks) for n in range(TRAINERS)]
        together(*(lambda each=each: each.run(steps) for each in trainers), patience=120.0)
        assert [handler.rounds.updated for handler in handlers] == [steps] * len(handlers)
        assert all(each.broken > 5 for each in trainers) or not breaks
