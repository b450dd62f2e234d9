"""What a command costs beside an interpreter that imports numpy: processor time of whole processes, in turns."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.rounds import ROOT, import_path

DIGITS = ROOT / "samples" / "digits"
NUMPY = ("-c", "import numpy")
RUN = ("-m", "fluidtool", "run", str(DIGITS), "--feed", str(DIGITS / "x.npy"))


def processor_seconds(arguments: Sequence[str]) -> float:
    """Of a Python process from its start to its end. Raises CalledProcessError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Compiled modules are kept, as in a shell that sets nothing.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, *arguments], env={**variables, "PYTHONPATH": import_path()}, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def command_line(times: int) -> dict[str, Any]:
    """Medians of seconds of `fluidtool run samples/digits` and of `import numpy`, and the median ratio.

    A first pair does not count.
    """
    pairs = [(processor_seconds(RUN), processor_seconds(NUMPY)) for _ in range(times + 1)][1:]
    run, base = (statistics.median(each) for each in zip(*pairs, strict=True))
    return {"run_seconds": run, "numpy_seconds": base, "ratio": statistics.median(a / b for a, b in pairs)}
