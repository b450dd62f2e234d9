"""The option --threads."""

from __future__ import annotations

import os
import sys

from fluidtool.cli.failures import say
from fluidtool.processors import processors

# Read by the libraries that numpy multiplies matrices with, when numpy is imported.
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def use_threads(count: int) -> None:
    """Set the threads of the native engine, and of numpy's products as long as numpy is not imported.

    Never more than there are processors.
    """
    count = min(count, processors())
    os.environ["FLUIDTOOL_THREADS"] = str(count)
    if "numpy" in sys.modules:
        say(
            "note: numpy is already imported, so --threads sets the native engine's threads but not those of "
            "numpy's products; to limit those too, set OMP_NUM_THREADS before the start"
        )
        from fluidtool.runtime.engines.native.library import library

        if (found := library()) is not None:
            found.use_threads(count)
    else:
        os.environ.update(dict.fromkeys(BLAS, str(count)))
