"""`fluid.log_helper`: loggers that leave the root logger as it is (Paddle 1.8.5 log_helper.py)."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """The logger of this name, with a handler of its own that writes to stderr; its records go to no other handler.

    fmt: the format of records. Each call adds a handler, as in Paddle.
    """
    logger, handler = logging.getLogger(name), logging.StreamHandler()
    if fmt:
        handler.setFormatter(logging.Formatter(fmt))
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return logger
