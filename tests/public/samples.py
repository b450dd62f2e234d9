"""Answers for a data set: reads a pickled call from stdin, writes the pickled answer to stdout, each time the same."""

from __future__ import annotations

import os
import pickle
import random
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path

if __name__ == "__main__":
    import numpy as np

    os.environ["FLUIDTOOL_DATASET"] = "synthetic"
    os.cpu_count = lambda: 1  # threads would bring samples in another order
    np.random.seed(1)
    random.seed(1)
    data_set, name, args, named, count = pickle.loads(sys.stdin.buffer.read())
    value = getattr(import_module(f"fluidtool.compat.dataset.{data_set}"), name)(*args, **named)
    if callable(value):
        answer = ("reader", list(islice(value(), count)))
    elif isinstance(value, str) and os.path.isfile(value):
        answer = ("file", Path(value).read_bytes())
    else:
        answer = ("value", value)
    sys.stdout.buffer.write(pickle.dumps(answer, 4))
