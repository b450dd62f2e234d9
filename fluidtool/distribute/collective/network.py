"""Processes that reach each other by endpoints: identifiers go round as in Paddle, and values travel by gRPC.

Rank 0 makes an identifier and sends it to the others, which listen at their endpoints: SendVariable with the type NCCL_ID,
then BATCH_BARRIER (Paddle 1.8.5 c_gen_nccl_id_op.cc). NCCL needs no more. Where values go by gRPC, ranks send them to
each other's endpoints in messages whose names carry the identifier: those of another job are refused.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fluidtool.distribute.collective.communicator import DEADLINE_SECONDS, Communicator
from fluidtool.distribute.collective.engines import Identifier
from fluidtool.distribute.collective.inbox import ABORT, IDENTIFIER_BYTES, LEAVE, PREFIX, Inbox
from fluidtool.distribute.collective.mailbox import Mailbox, Place
from fluidtool.distribute.collective.peers import PeerCommunicator
from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.rpc.client import Client, connect
from fluidtool.distribute.rpc.handler import RemoteError
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.service import serve
from fluidtool.errors import CollectiveError
from fluidtool.tensor import LoDTensor

CONNECT_SECONDS = 2.0
GRACE_SECONDS = 0.5
LONGEST_REASON = 2000


class Node:
    """This process on the network: a server at its endpoint, and clients of the others."""

    def __init__(self, endpoint: str, rank: int, options: TransportOptions) -> None:
        self.endpoint, self._rank, self._options = endpoint, rank, options
        self.inbox = Inbox(options.deadline)
        self._server = serve(endpoint, self.inbox, replace(options, sockets=False))  # the inbox may wait in a call
        self._clients: dict[str, Client] = {}

    def client(self, endpoint: str) -> Client:
        """The connection to another rank."""
        if endpoint not in self._clients:
            self._clients[endpoint] = connect(endpoint, self._rank, self._options)
        return self._clients[endpoint]

    def spread(self, name: str, data: bytes, endpoints: list[str]) -> None:
        """Send an identifier to the other ranks, as Paddle's rank 0 does."""
        for endpoint in endpoints:
            try:
                client = self.client(endpoint)
                client.send(name, data)
                client.send_barrier()
            except RemoteError as error:
                raise CollectiveError(f"the rank at {endpoint} refused the identifier {name}: {error}") from error

    def close(self) -> None:
        """Give connections and the port back."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._server.stop(GRACE_SECONDS)


class NetworkLink:
    """Reaches the ranks of one ring at their endpoints."""

    def __init__(self, node: Node, identifier: Identifier, ring: int, rank: int, seconds: float) -> None:
        self._node, self._endpoints, self._ring, self._rank = node, identifier.endpoints, ring, rank
        self._job, self._seconds = identifier.data[:8].hex(), seconds
        self._mailbox = Mailbox(rank)
        node.inbox.open(self._job, ring, self._mailbox)

    def post(self, values: Mapping[int, Any], sequence: int, step: int, label: str) -> None:
        """Send each rank its value; they travel at the same time."""
        name = self._name(f"{sequence}.{step}", label)
        for rank, value in values.items():
            array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
            self._tell(rank, partial(_post, name, array))

    def flush(self) -> None:
        """Wait until the others have what was sent; the memory of values may be changed then."""
        for rank in self._others():
            self._tell(rank, Client.settle)

    def take(self, source: int, sequence: int, step: int, label: str) -> Any:
        """What another rank has sent."""
        return self._mailbox.take(Place(source, sequence, step), label, self._seconds, self._is_alive)

    def abort(self, reason: str) -> None:
        """Fail here and everywhere; ranks that cannot be reached are gone already."""
        self._mailbox.abort(reason)
        self._tell_all(self._name(ABORT, reason[:LONGEST_REASON]))

    def leave(self) -> None:
        """Tell the others, and take no more."""
        self._tell_all(self._name(LEAVE, ""))
        self._node.inbox.shut(self._job, self._ring)

    def _tell(self, rank: int, say: Callable[[Client], None]) -> None:
        try:
            say(self._node.client(self._endpoints[rank]))
        except RemoteError as error:
            self._mailbox.check()
            raise CollectiveError(f"rank {rank} at {self._endpoints[rank]} is gone: {error}") from error

    def _tell_all(self, name: str) -> None:
        for rank in self._others():
            if self._is_alive(rank):
                try:
                    client = self._node.client(self._endpoints[rank])
                    client.post_send(name, LoDTensor(np.zeros(1, np.uint8)))
                    client.settle(CONNECT_SECONDS)
                except RemoteError:
                    continue  # it left or failed before, or does so at this moment

    def _others(self) -> list[int]:
        return [rank for rank in range(len(self._endpoints)) if rank != self._rank]

    def _is_alive(self, rank: int) -> bool:
        """Whether anything listens there: a process that died has given its port back."""
        try:
            socket.create_connection(host_and_port(self._endpoints[rank]), CONNECT_SECONDS).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # a slow network is no proof; the deadline decides
        return True

    def _name(self, what: str, label: str) -> str:
        return "|".join((PREFIX, self._job, str(self._ring), str(self._rank), what, label))


def _post(name: str, array: Any, client: Client) -> None:
    client.post_send(name, LoDTensor(array))
    client.flush()


class GrpcEngine:
    """Values travel by gRPC between processes that need neither MPI nor GPUs."""

    is_networked = True

    def __init__(self, seconds: float = DEADLINE_SECONDS, options: TransportOptions | None = None) -> None:
        self._seconds = seconds
        # A rank that is gone does not come back: nobody waits for a new connection to it.
        self._options = replace(
            options or TransportOptions.from_environment(os.environ), deadline=seconds, retry_times=0
        )
        self._nodes: dict[str, Node] = {}
        # gRPC's threads would hold a process that ends without closing; atexit itself comes after waiting for them.
        getattr(threading, "_register_atexit", atexit.register)(self.close)

    def identify(self, name: str, endpoints: tuple[str, ...], rank: int) -> Identifier:
        """Rank 0 makes an identifier and sends it to the others."""
        node = self._node(endpoints[rank], rank)
        if rank:
            return Identifier(node.inbox.identifier(name, endpoints[rank]), endpoints)
        data = self._new_identifier()
        node.spread(name, data, list(endpoints[1:]))
        return Identifier(data, endpoints)

    def join(self, identifier: Identifier, ring: int, rank: int, size: int) -> Communicator:
        """Join when all ranks have come; raises CollectiveError when they do not."""
        if len(identifier.endpoints) != size:
            raise CollectiveError(
                f"ring {ring} needs {size} ranks, but there are {len(identifier.endpoints)} endpoints"
            )
        node = self._node(identifier.endpoints[rank], rank)
        link = NetworkLink(node, identifier, ring, rank, self._seconds)
        joined = PeerCommunicator(link, rank, size, ring)
        joined.barrier()
        return joined

    def close(self) -> None:
        """Give connections and ports back."""
        while self._nodes:
            self._nodes.popitem()[1].close()

    def _node(self, endpoint: str, rank: int) -> Node:
        if endpoint not in self._nodes:
            self._nodes[endpoint] = Node(endpoint, rank, self._options)
        return self._nodes[endpoint]

    def _new_identifier(self) -> bytes:
        return secrets.token_bytes(IDENTIFIER_BYTES)


class NcclEngine(GrpcEngine):
    """GPUs of several processes: gRPC carries the identifier, NCCL everything else."""

    def join(self, identifier: Identifier, ring: int, rank: int, size: int) -> Communicator:
        """Join when all ranks have come."""
        from fluidtool.distribute.collective.nccl import NcclCommunicator

        return NcclCommunicator(identifier.data, rank, size, ring, self._seconds)

    def _new_identifier(self) -> bytes:
        from fluidtool.distribute.collective.nccl import new_identifier

        return new_identifier()
