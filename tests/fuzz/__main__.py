"""`python -m tests.fuzz TARGET --minutes N --seed S [--only PATTERN]`: exit code 1 and one line for each finding, 0 without any."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time

import tests.fuzz
from tests.fuzz.campaign import Budget

SHARED = {"__main__", "campaign", "conftest"}  # the modules that are no targets


def targets() -> list[str]:
    """The targets, by the names of their modules."""
    names = (module.name for module in pkgutil.iter_modules(tests.fuzz.__path__))
    return sorted(name for name in names if name not in SHARED and not name.startswith(("_", "test_")))


def main(arguments: list[str] | None = None) -> int:
    """Search with one target, or with each of them in turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Look for faults with random input.")
    parser.add_argument("target", choices=[*targets(), "all"])
    parser.add_argument("--minutes", type=float, default=1.0, help="time for a target (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="which random cases are tried (default: 0)")
    parser.add_argument("--only", default="*", help="growth: a pattern of what to measure, such as 'run * of chain'")
    chosen = parser.parse_args(arguments)
    found = 0
    for name in targets() if chosen.target == "all" else [chosen.target]:
        budget = Budget(60 * chosen.minutes, chosen.seed, chosen.only)
        for finding in importlib.import_module(f"tests.fuzz.{name}").search(budget):
            found += 1
            print(f"{name}: {finding}", flush=True)
        seconds = time.monotonic() - budget.started
        print(f"{name}: {budget.cases:,} cases in {seconds:.0f} s ({budget.cases / seconds:.0f} a second)", flush=True)
    print(f"{found} findings")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
