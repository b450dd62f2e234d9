"""What a strategy of slim is (Paddle 1.8.5 contrib/slim/core/strategy.py)."""

from __future__ import annotations

from typing import Any

__all__ = ["Strategy"]


class Strategy:
    """Something that is done while a Compressor trains, from epoch `start_epoch` to `end_epoch`: override what is called."""

    def __init__(self, start_epoch: int = 0, end_epoch: int = 0) -> None:
        self.start_epoch, self.end_epoch = start_epoch, end_epoch

    def __getstate__(self) -> dict[str, Any]:
        """All attributes but the epochs, which a checkpoint must not decide."""
        return {name: value for name, value in vars(self).items() if name not in ("start_epoch", "end_epoch")}

    def on_compression_begin(self, context: Any) -> None:
        """Called before the first epoch."""

    def on_epoch_begin(self, context: Any) -> None:
        """Called before each epoch."""

    def on_epoch_end(self, context: Any) -> None:
        """Called after each epoch."""

    def on_batch_begin(self, context: Any) -> None:
        """Called before each mini-batch."""

    def on_batch_end(self, context: Any) -> None:
        """Called after each mini-batch."""

    def on_compression_end(self, context: Any) -> None:
        """Called after the last epoch."""

    def restore_from_checkpoint(self, context: Any) -> None:
        """Called when a Compressor continues from a checkpoint, before its parameters are loaded."""
