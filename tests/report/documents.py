"""The documents in `snapshots`, and the command lines that write them; the pages in docs/schemas show them as examples.

All run in a folder with the samples `digits` and `digits_training`, `role.py`, and `resized`: `digits` for a batch of 8.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SNAPSHOTS = Path(__file__).with_name("snapshots")
# The same everywhere, to 1e-5.
EXACT: dict[str, tuple[str, ...]] = {
    "check": ("check", "digits", "--json"),
    "check of several": ("check", "digits", "nothing", "--security", "--json"),
    "compare": ("compare", "digits", "resized", "--feed", "digits/x.npy", "--json"),
    "convert": ("convert", "digits", "--to", "combined", "-o", "out", "--json"),
    "debug": (
        *("debug", "reduce", "digits", "-o", "out", "--feed", "digits/x.npy", "--json", "--"),
        *(
            "python",
            "-c",
            'import sys; sys.exit(b"softmax" not in open(sys.argv[1], "rb").read())',
            "{model}/__model__",
        ),
    ),
    "diff": ("diff", "digits", "resized", "--json"),
    "error": ("run", "digits", "--feed", "imgae=digits/x.npy", "--json"),
    "error of the command line": ("run", "digits", "--fee", "--json"),
    "error of a file": ("inspect", "nowhere", "--json"),
    "inspect": ("inspect", "digits", "--batch", "2", "--json"),
    "inspect operators": ("inspect", "digits", "--ops", "--json"),
    "inspect variables": ("inspect", "digits", "--vars", "--json"),
    "ops": ("ops", "mul", "--json"),
    "ops coverage": ("ops", "--coverage", "digits", "--json"),
    "params list": ("params", "list", "digits", "--json"),
    "params merge": ("params", "merge", "digits", "-o", "out.npz", "--json"),
    "prune": ("prune", "digits", "--targets", "fc_0.tmp_0", "-o", "out", "--json"),
    "quantize": ("quantize", "digits", "--data", "digits/x.npy", "--skip", "conv2d_1*", "fc_*", "--json"),
    "reshape": ("reshape", "digits", "image:[8,1,8,8]", "--json"),
    "run": ("run", "digits", "--feed", "digits/x.npy", "--fetch", "fc_0.tmp_0", "--engine", "numpy", "--json"),
    "transpile": ("transpile", "digits", "--release-memory", "--json"),
    "view": ("view", "digits", "-o", "digits.svg", "--json"),
}
# With times, processes and versions: only the keys are the same everywhere.
VARYING: dict[str, tuple[str, ...]] = {
    "launch": ("launch", "--any-ports", "--json", "--mode", "collective", "--trainers", "2", "role.py"),
    "profile": ("profile", "digits", "--random", "--engine", "numpy", "--json"),
    "train": ("train", "digits_training", "--data", "digits_training/data.npz", "--batch-size", "64", "--json"),
    "version": ("version", "--json"),
}


def snapshot(name: str) -> Path:
    """The file of a document: JSON, or lines of JSON."""
    return SNAPSHOTS / f"{name.replace(' ', '-')}.json"


def in_snapshot(name: str) -> list[Any]:
    """The document, or the documents on its lines."""
    decoder, text, found, start = json.JSONDecoder(), snapshot(name).read_text("utf-8"), [], 0
    while start < len(text):
        document, end = decoder.raw_decode(text, start)
        found.append(document)
        start = end + 1
    return found
