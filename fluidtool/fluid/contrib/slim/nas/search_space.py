"""What a search for networks searches (Paddle 1.8.5 contrib/slim/nas/search_space.py)."""

from __future__ import annotations

from typing import Any

__all__ = ["SearchSpace"]


class SearchSpace:
    """Networks by tokens: override what follows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to set."""

    def init_tokens(self) -> list[int]:
        """The first tokens."""
        raise NotImplementedError("Abstract method.")

    def range_table(self) -> list[int]:
        """The range of each token: [0, range)."""
        raise NotImplementedError("Abstract method.")

    def create_net(self, tokens: list[int]) -> tuple[Any, ...]:
        """startup_program, train_program, eval_program, train_metrics, test_metrics, train_reader, test_reader."""
        raise NotImplementedError("Abstract method.")

    def get_model_latency(self, program: Any) -> float:
        """How long a program takes."""
        raise NotImplementedError("Abstract method.")
