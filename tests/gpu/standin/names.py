"""The names that the real package has, with their signatures."""

from __future__ import annotations

import inspect
import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("names.json.xz")


@dataclass(frozen=True, slots=True)
class Name:
    """One name: the type of what it stands for, the signature of a function, the loops of a ufunc ('ff->f')."""

    kind: str
    signature: inspect.Signature | None
    loops: tuple[str, ...]


@cache
def names(module: str) -> dict[str, Name]:
    """The public names of 'cupy', 'linalg', 'fft', 'stride_tricks' or 'special'."""
    with lzma.open(FILE, "rt") as file:
        return {name: _name(entry) for name, entry in json.load(file)[module].items()}


def _name(entry: dict[str, Any]) -> Name:
    return Name(entry["kind"], _signature(entry["params"]), tuple(entry.get("types", ())))


def _signature(parameters: list[tuple[str, int, bool]] | None) -> inspect.Signature | None:
    if parameters is None:
        return None
    return inspect.Signature(
        [
            inspect.Parameter(
                name, list(inspect._ParameterKind)[kind], default=None if optional else inspect.Parameter.empty
            )
            for name, kind, optional in parameters
        ]
    )
