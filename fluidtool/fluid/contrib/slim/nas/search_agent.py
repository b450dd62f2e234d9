"""Asks the server of a search for tokens (Paddle 1.8.5 contrib/slim/nas/search_agent.py)."""

from __future__ import annotations

__all__ = ["SearchAgent"]

LONGEST = 1024  # bytes of a message


class SearchAgent:
    """The client of a ControllerServer; key: a word that the server knows."""

    def __init__(self, server_ip: str | None = None, server_port: int | None = None, key: str | None = None) -> None:
        self.server_ip, self.server_port, self._key = server_ip, server_port, key

    def update(self, tokens: list[int], reward: float) -> list[int]:
        """Say how good tokens were; the next ones."""
        return self._ask(f"{self._key}\t{','.join(map(str, tokens))}\t{reward}")

    def next_tokens(self) -> list[int]:
        """The next tokens."""
        return self._ask("next_tokens")

    def _ask(self, message: str) -> list[int]:
        import socket

        with socket.create_connection((self.server_ip or "", self.server_port or 0)) as connection:
            connection.sendall(message.encode())
            answer = connection.recv(LONGEST).decode()
        return [int(token) for token in answer.strip("\n").split(",")]
