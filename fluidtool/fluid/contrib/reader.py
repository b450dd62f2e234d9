"""`fluid.contrib.reader`: what one of several training processes reads (Paddle 1.8.5 contrib/reader/distributed_reader.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from fluidtool.errors import UsageError
from fluidtool.fluid.offers import refuse_other_names
from fluidtool.fluid.reader_decorators import Reader

__all__ = ["distributed_batch_reader"]


def distributed_batch_reader(batch_reader: Reader) -> Reader:
    """The reader of every n-th batch, from this trainer's on: PADDLE_TRAINERS_NUM is n, PADDLE_TRAINER_ID the first.

    Batches at the end that do not suffice for all trainers are dropped. Raises UsageError for an id that is too large.
    """
    trainers, trainer = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")), int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    if trainer >= trainers:
        raise UsageError(f"PADDLE_TRAINER_ID must be less than PADDLE_TRAINERS_NUM, found {trainer} of {trainers}")

    def reader() -> Iterator[Any]:
        batches = iter(batch_reader())
        while len(turn := list(islice(batches, trainers))) == trainers:
            yield turn[trainer]

    return reader


__getattr__ = refuse_other_names("paddle.fluid.contrib.reader", __all__)
