"""Python processes that a script starts, by itself or by multiprocessing: `paddle` is fluidtool's there, too."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fluidtool.compat.cpu import on_cpu
from fluidtool.compat.removed.feeds import narrow_feeds
from fluidtool.compat.removed.giving import old_names
from fluidtool.compat.removed.notes import Notes
from fluidtool.compat.standin import install
from fluidtool.environment import environment_variables

FOLDER = Path(__file__).parent  # of sitecustomize.py, which every Python with this folder in PYTHONPATH runs first
ROOT = FOLDER.parents[2]
DIALECT, HOME = "FLUIDTOOL_CHILDREN", "FLUIDTOOL_HOME"


@contextmanager
def children_know_paddle(cpu: bool) -> Iterator[None]:
    """Within the block, a Python that starts below this process gets the stand-in when it imports paddle.

    cpu: GPUs are taken for the CPU there, too. The variables of the environment are as before afterwards.
    """
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH", "")]))
    with environment_variables({"PYTHONPATH": path, DIALECT: "cpu" if cpu else "any", HOME: str(ROOT)}):
        yield


def begin() -> None:
    """Offer paddle, and the names that Python and numpy have dropped, for as long as this process lives."""
    notes, lasting = Notes(), ExitStack()
    lasting.enter_context(install(on_cpu(notes.say) if os.environ.get(DIALECT) == "cpu" else None))
    lasting.enter_context(old_names(notes))
    lasting.enter_context(narrow_feeds(notes))
    atexit.register(lasting.close)
