"""A handler that keeps variables and writes down what it hears."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.handler import Barrier, Call, Message, NotFound, Refused, Value, Waits
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import Server, serve
from fluidtool.tensor import LoDTensor, SelectedRows

ANY_PORT = "127.0.0.1:0"
WAYS = pytest.mark.parametrize("way", ["socket", "stream", "calls"])


def by(way: str, **others: Any) -> TransportOptions:
    """Options of a client that takes this way to a server."""
    return TransportOptions(streaming=way != "calls", sockets=way == "socket", **others)


def tensor(*shape: int, dtype: str = "float32") -> LoDTensor:
    """0, 1, 2 … in a shape."""
    return LoDTensor(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape))


class Keeper:
    """Keeps variables. `heard` lists what came, as (what, name or number, trainer, step)."""

    def __init__(self, **variables: Value) -> None:
        self.variables: dict[str, Any] = dict(variables)
        self.heard: list[tuple[Any, ...]] = []
        self.received: dict[str, Any] = {}
        self.opened = threading.Event()
        self.waiting: list[Message] = []
        self.opened.set()
        self.before: Callable[[str, Call], None] = lambda what, call: None

    def send(self, message: Message, call: Call) -> None:
        self._hear("send", message.name, call)
        if message.name == "refused":
            raise Refused("this server takes no variable called refused")
        self.received[message.name] = message.value

    def barrier(self, kind: Barrier, call: Call) -> None:
        self._hear("barrier", kind.name, call)

    def complete(self, trainer_id: int, call: Call) -> None:
        self._hear("complete", trainer_id, call)

    def get(self, request: Message, call: Call) -> Value:
        if request in self.waiting:
            self.waiting.remove(request)  # the call is made again
        else:
            self._hear("get", request.name, call)
        if call.again is not None and not self.opened.is_set():
            self.waiting.append(request)
            threading.Thread(target=self._call_again, args=(call,), daemon=True).start()
            raise Waits(lambda: self.waiting.remove(request))
        while not self.opened.wait(0.05):
            if not call.is_active():
                raise Refused("the peer went")
        return self._value(request)

    def get_without_barrier(self, request: Message, call: Call) -> Value:
        self._hear("get now", request.name, call)
        return self._value(request)

    def prefetch(self, request: Message, call: Call) -> Value:
        self._hear("prefetch", request.table_name or request.name, call)
        assert isinstance(request.value, LoDTensor)
        table = self.variables.get(request.table_name or request.name)
        if table is None:
            raise NotFound(f"no table {request.table_name}")
        return LoDTensor(table.array[request.value.array.reshape(-1)])

    def checkpoint(self, request: Message, call: Call) -> None:
        self._hear("checkpoint", request.out_name, call)

    def notify(self, message: Message, call: Call) -> None:
        self._hear("notify", message.name, call)
        self.received[message.name] = message.value

    def _call_again(self, call: Call) -> None:
        assert call.again is not None
        while not self.opened.wait(0.05) and call.is_active():
            pass
        call.again()

    def _value(self, request: Message) -> Value:
        value = self.variables.get(request.name)
        if value is None:
            raise NotFound(f"this server keeps no variable {request.name}")
        assert isinstance(value, (LoDTensor, SelectedRows))
        return value

    def _hear(self, what: str, name: Any, call: Call) -> None:
        self.heard.append((what, name, call.trainer_id, call.sequence))
        self.before(what, call)


@contextmanager
def served(keeper: Keeper, options: TransportOptions | None = None) -> Iterator[Server]:
    """A server of the keeper at a free port of this machine."""
    with serve(ANY_PORT, keeper, options) as server:
        yield server


@contextmanager
def connected(
    keeper: Keeper,
    trainer_id: int = 0,
    options: TransportOptions | None = None,
    server_options: TransportOptions | None = None,
) -> Iterator[Client]:
    """A client of a server of the keeper."""
    with served(keeper, server_options) as server:
        client = connect(server.endpoint, trainer_id, options)
        try:
            yield client
        finally:
            client.close()


class Proxy:
    """Passes bytes between clients and a server, and can cut what is connected."""

    def __init__(self, endpoint: str) -> None:
        host, port = endpoint.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self.swallow_answers = False
        self._silenced: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection."""
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def silence(self) -> None:
        """Let nothing more through on the connections that there are, and tell nobody."""
        self._silenced.update(self._open)

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not (source in self._silenced or (answers and self.swallow_answers)):
                    target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()  # else a client that is writing waits for room


class Proxies:
    """One for gRPC, and one for the sockets that the server offers."""

    def __init__(self, server: Server) -> None:
        self._both = [Proxy(server.endpoint)]
        self.endpoint = self._both[0].endpoint
        if server.loop is not None:
            door = server.loop.door
            self._both.append(Proxy(f"127.0.0.1:{door.port}"))
            door.name, door.port = "", int(self._both[1].endpoint.rpartition(":")[2])

    def swallow_answers(self, yes: bool) -> None:
        """Let no answers of the server through, or let them."""
        for proxy in self._both:
            proxy.swallow_answers = yes

    def cut(self) -> None:
        """Break every connection."""
        for proxy in self._both:
            proxy.cut()

    def silence(self) -> None:
        """Let nothing more through on the connections that there are, and tell nobody."""
        for proxy in self._both:
            proxy.silence()

    def close(self) -> None:
        """Take no more connections."""
        for proxy in self._both:
            proxy.close()


@contextmanager
def proxied(keeper: Keeper, options: TransportOptions | None = None) -> Iterator[tuple[Client, Proxies]]:
    """A client that reaches a server of the keeper through proxies."""
    with served(keeper) as server:
        proxies = Proxies(server)
        client = connect(proxies.endpoint, 0, options)
        try:
            yield client, proxies
        finally:
            client.close()
            proxies.close()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
