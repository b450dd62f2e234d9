"""Hands out the tokens of a controller (Paddle 1.8.5 contrib/slim/nas/controller_server.py)."""

from __future__ import annotations

import logging
from threading import Thread
from typing import Any

from fluidtool.fluid.contrib.slim.nas.search_agent import LONGEST
from fluidtool.fluid.log_helper import get_logger

__all__ = ["ControllerServer"]

_logger = get_logger(__name__, logging.INFO, fmt="%(asctime)s-%(levelname)s: %(message)s")


class ControllerServer:
    """Serves until search_steps rewards have come in, or it is closed. Messages without the key are left unanswered.

    address: (ip, port); port 0 takes a free one.
    """

    def __init__(
        self,
        controller: Any = None,
        address: tuple[str, int] = ("", 0),
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str | None = None,
    ) -> None:
        self._controller, self._address, self._max_client_num = controller, address, max_client_num
        self._search_steps, self._key = search_steps, key
        self._closed = False
        self._ip, self._port = address
        self._socket_server: Any = None

    def start(self) -> str:
        """Listen, and serve in a thread; its name."""
        import socket

        self._socket_server = socket.create_server(self._address, backlog=self._max_client_num)
        self._ip, self._port = self._socket_server.getsockname()[:2]
        thread = Thread(target=self.run, daemon=True)
        thread.start()
        return str(thread)

    def close(self) -> None:
        """Stop serving after the next message."""
        self._closed = True

    def port(self) -> int:
        """The port."""
        return self._port

    def ip(self) -> str:
        """The address."""
        return self._ip

    def run(self) -> None:
        """Serve."""
        with self._socket_server:
            while not self._closed and (self._search_steps is None or self._controller._iter < self._search_steps):
                connection, address = self._socket_server.accept()
                with connection:
                    self._answer(connection, address)

    def _answer(self, connection: Any, address: Any) -> None:
        message = connection.recv(LONGEST).decode().strip("\n")
        key, *rest = message.split("\t")
        if message != "next_tokens":
            if len(rest) < 2 or key != self._key:
                _logger.info("recv noise from %s: [%s]", address, message)
                return
            self._controller.update([int(token) for token in rest[0].split(",")], float(rest[1]))
        connection.sendall(",".join(map(str, self._controller.next_tokens())).encode())
