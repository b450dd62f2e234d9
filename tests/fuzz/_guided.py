"""The same search, led by coverage: `python -m tests.fuzz._guided TARGET SECONDS SEED`, with the package atheris.

A process of its own, because atheris wants to be there before the modules that it watches, and ends the process itself.
Findings are lines of JSON on standard output.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz.campaign import Budget, Finding

WATCHED = [
    "fluidtool.io",
    "fluidtool.tensor",
    "fluidtool.ir",
    "fluidtool.distribute.rpc",
    "fluidtool.distribute.checkpoints",
]


def available() -> bool:
    """Whether atheris is installed, and wanted: FLUIDTOOL_FUZZ=plain leaves it out."""
    return importlib.util.find_spec("atheris") is not None and os.environ.get("FLUIDTOOL_FUZZ") != "plain"


def search(budget: Budget, name: str, corpus: Path) -> Iterator[Finding]:
    """Search with a target until the time is up; `corpus` is a folder with its seeds, which grows."""
    left = max(1, int(budget.seconds))
    command = [sys.executable, "-m", "tests.fuzz._guided", name, str(left), str(budget.seed), str(corpus)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            budget.cases = told["cases"]
            if "fault" in told:
                yield Finding(told["case"], told["fault"])
    if process.returncode:
        crashes = [path.read_bytes().hex() for path in corpus.glob("crash-*")]
        yield Finding(crashes[0] if crashes else "unknown", f"ended the process (code {process.returncode})")


def main(name: str, seconds: str, seed: str, corpus: str) -> None:
    """The process that searches."""
    import atheris

    with atheris.instrument_imports(include=WATCHED):
        module = importlib.import_module(f"tests.fuzz.{name}")
    from tests.fuzz import _bytes

    target: _bytes.Bytes = module.TARGET
    seeds: Sequence[bytes] = [data for data in target.seeds() if len(data) <= _bytes.LONGEST]
    for number, data in enumerate(seeds):
        Path(corpus, str(number)).write_bytes(data)
    cases, ends = 0, time.monotonic() + int(seconds)
    watch = _bytes.Watch(target.check, lambda case, fault: _tell(cases, case=case, fault=fault))
    _bytes.limit()

    def one(data: bytes) -> None:
        nonlocal cases
        cases += 1
        watch.run(data)
        if time.monotonic() > ends:
            _tell(cases)
            os._exit(0)

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        chance = random.Random(number)
        if chance.random() < 0.3:
            return bytes(atheris.Mutate(data, longest))
        return _bytes.mutated(target, chance, bytes(data), seeds)[:longest]

    options = [f"-max_len={_bytes.LONGEST}", f"-seed={int(seed) + 1}", "-rss_limit_mb=0", "-handle_alrm=0"]
    options.append(f"-artifact_prefix={corpus}/")
    atheris.Setup(["fuzz", *options, corpus], one, custom_mutator=mutate)
    atheris.Fuzz()


def _tell(cases: int, **finding: str) -> None:
    print(json.dumps({"cases": cases, **finding}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
