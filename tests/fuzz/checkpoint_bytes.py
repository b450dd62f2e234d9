"""Checkpoints of trainings and of the roles of distributed jobs: folders, here packed in a zip file."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.distribute import checkpoints as roles
from fluidtool.errors import FluidError
from fluidtool.io import checkpoints
from fluidtool.ir import Program
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.training.checkpoint import CheckpointPlan, Position, load_checkpoint, save_checkpoint
from tests.fuzz import _bytes
from tests.fuzz.campaign import Budget, Finding

VALUES = {"w": LoDTensor(np.ones((2, 3), np.float32)), "b": LoDTensor(np.zeros(4))}
MEMORY = "/dev/shm"  # files that no disk has to take
ROLE = "pserver_0"
JSON: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "../w",
    "\u0000",
    "\u0663",
    [],
    {},
    [[]],
    {"": 0},
    "9" * 5000,
)


def seeds() -> Sequence[bytes]:
    """A training's, and a role's."""
    with tempfile.TemporaryDirectory() as name:
        plan = CheckpointPlan(Path(name, "training"))
        save_checkpoint(plan, Position(1, 2), VALUES, [np.random.default_rng(0)], {"seed": 0})
        rows = SelectedRows([1], 4, np.ones((1, 2), np.float32))
        roles.save(Path(name, "job"), ROLE, 3, {**VALUES, "rows": rows}, {"rounds": 3})
        return [packed(Path(name, "training")), packed(Path(name, "job"))]


def packed(folder: Path) -> bytes:
    """The files below a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return _bytes.archive([(str(file.relative_to(folder)), file.read_bytes()) for file in files])


def check(data: bytes) -> None:
    """Both kinds are looked for in the folder."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as name:
        folder = Path(name)
        for path, content in _bytes.members(data):
            target = folder / path
            if target.resolve().is_relative_to(folder.resolve()) and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        for read in (_training, _role):
            try:
                read(folder)
            except FluidError:
                continue


def _training(folder: Path) -> None:
    block = Program().global_block()
    variables = [block.create_var(name=name, dtype=value.dtype(), persistable=True) for name, value in VALUES.items()]
    found = load_checkpoint(folder, variables, [np.random.default_rng(0)], {"seed": 0})
    if found is not None:
        repr(dict(found[1]))
    checkpoints.serials(folder)


def _role(folder: Path) -> None:
    step = roles.latest_complete(folder, [ROLE])
    repr(roles.load(folder, ROLE, 3 if step is None else step))


def change_file(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One of the files is changed, JSON as JSON, and then often also the sums that a manifest has of it."""
    files = _bytes.members(data)
    if not files:
        return data
    at = chance.randrange(len(files))
    name, content = files[at]
    change: Callable[..., bytes] = _change_json if name.endswith(".json") else chance.choice(_bytes.ANY)
    files[at] = name, change(chance, content, others)
    if chance.random() < 0.5:
        files = [
            (path, _resummed(text, dict(files)) if path.endswith("manifest.json") else text) for path, text in files
        ]
    return _bytes.archive(files)


def _change_json(chance: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    holder, key = {"": value}, ""
    while isinstance(holder[key], (dict, list)) and holder[key] and chance.random() < 0.8:
        holder = holder[key]
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))  # type: ignore[arg-type]
    changed = {"": value} if key == "" and holder.keys() == {""} else None
    if changed is not None:
        value = chance.choice(JSON)
    elif isinstance(holder, dict) and chance.random() < 0.3:
        holder[str(chance.choice(JSON))] = holder.pop(key)
    else:
        holder[key] = chance.choice(JSON)
    return json.dumps(value).encode()


def _resummed(text: bytes, files: dict[str, bytes]) -> bytes:
    try:
        manifest = json.loads(text)
        for path, content in files.items():
            entry = manifest["files"].get(Path(path).name)
            if entry is not None:
                entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        return json.dumps(manifest).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text


TARGET = _bytes.Bytes(seeds, check, (change_file,))


def search(budget: Budget) -> Iterator[Finding]:
    """Look for checkpoints that are not refused as they should be."""
    return _bytes.search(budget, TARGET, "checkpoint_bytes")
