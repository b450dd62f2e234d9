"""Answers for a data set where real Paddle runs: reads a pickled call from stdin, writes the pickled answer to stdout."""

from __future__ import annotations

import os
import pickle
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path

if __name__ == "__main__":
    os.environ["FLUIDTOOL_DATASET"] = "synthetic"
    data_set, name, args, named, count = pickle.loads(sys.stdin.buffer.read())
    value = getattr(import_module(f"fluidtool.compat.dataset.{data_set}"), name)(*args, **named)
    if callable(value):
        answer = ("reader", list(islice(value(), count)))
    elif isinstance(value, str) and os.path.isfile(value):
        answer = ("file", Path(value).read_bytes())
    else:
        answer = ("value", value)
    sys.stdout.buffer.write(pickle.dumps(answer, 4))
