"""What is kept of a measurement: DATE.json, the plots beside it, and a page with the newest tables."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import growth
from benchmarks.tables import goals_table, tables
from fluidtool.cli.render import plain

PAGE = "README.md"


def keep(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write everything; returns the files. Without matplotlib (extra `plot`) there are no plots, and that is said."""
    target = keep_results(found, folder)
    written = [target]
    if found.get("growth"):
        try:
            growth.plot(found["growth"], target.with_suffix(".svg"))
            written.append(target.with_suffix(".svg"))
        except ImportError:
            print("not plotted: matplotlib is not installed: pip install 'fluidtool[plot]'", file=sys.stderr)
    page = folder / PAGE
    page.write_text(text(found, [path.name for path in written]))
    return [*written, page]


def keep_results(found: Mapping[str, Any], folder: Path) -> Path:
    """Write the results alone, by date, over those of fewer parts; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{str(found['date'])[:16].replace(':', '')}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return target


def keep_gpu(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the rows of a GPU, by date; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{datetime.datetime.now(datetime.UTC).isoformat(timespec='minutes')[:16].replace(':', '')}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return [target]


def text(found: Mapping[str, Any], files: list[str]) -> str:
    """The page, from the results and the names of the files beside it."""
    machine, settings = found["machine"], found["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    parts = [
        f"# Measured {found['date'].replace('T', ' ')}",
        f"Written by `python -m benchmarks --keep`; [profile.md](../../docs/profile.md) says what the columns mean. "
        f"All of it as JSON: {', '.join(f'[{name}]({name})' for name in files if name.endswith('.json'))}.",
        f"{machine['processor']}, {settings['threads']} threads, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, instructions: {machine['native']}. Python {machine['python']}, {versions}. "
        f"{settings['rounds']} rounds of {settings['burst_seconds']} s.",
    ]
    parts += [f"Not run: {name}: {why}." for name, why in found["not_run"].items()]
    parts += [f"```text\n{plain(each).rstrip()}\n```" for each in (goals_table(found), *tables(found))]
    parts += [f"![Growth of the cost]({name})" for name in files if name.endswith(".svg")]
    return "\n\n".join(parts) + "\n"
