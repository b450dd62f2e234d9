"""The page of metrics of a process: http://HOST:PORT/metrics, for anyone who can reach it, to read only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.launch.contract import METRICS
from fluidtool.distribute.metrics.exposition import CONTENT_TYPE, Family, rendered
from fluidtool.errors import UsageError

PATH = "/metrics"
PATIENCE = 10.0  # seconds that a caller may take for its request


class MetricsPage:
    """Serves what `collect` gives at the moment of each request, on threads of its own, until it is closed.

    Raises UsageError if it cannot listen there. Port 0: any free one, which `port` tells.
    """

    def __init__(self, endpoint: str, collect: Callable[[], Iterable[Family]]) -> None:
        try:
            self._server = _Server(endpoint, collect)
        except OSError as error:
            raise UsageError(
                f"cannot show metrics at {endpoint}: {error.strerror or error}; set {METRICS} to another address"
            ) from error
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: str, collect: Callable[[], Iterable[Family]]) -> None:
        host, port = host_and_port(endpoint)
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._collect = collect
        super().__init__((host, port), _Handler)

    def page(self) -> bytes:
        """The metrics as they are now."""
        return rendered(self._collect()).encode()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET /metrics."""

    timeout = PATIENCE
    server_version, sys_version = "fluidtool", ""

    def do_GET(self) -> None:
        """The metrics as they are now."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"only {PATH} is served here")
            return
        assert isinstance(self.server, _Server)
        body = self.server.page()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
