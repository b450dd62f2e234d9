"""Checkpoint folders of 2018 (Fluid 0.14 to 1.2): `checkpoint_<serial>/__model__/<files>` and `trainer_<id>/` beside it.

A checkpoint counts once its `_SUCCESS` file is there; `__model__` appears with it, whole. Entries of other names are left
alone. `trainer_<id>/state.json` is an addition of fluidtool: what else a run needs to go on exactly, such as the state of
its random numbers; and `trainer_<id>/device_<n>/`, the variables that are device n's own. Checkpoints without are read too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import ModelNotFoundError, UnreadableError, UsageError
from fluidtool.io.atomic import new_folder, remove_folder, tidy, write_files, write_into
from fluidtool.io.json_files import read_json_object, read_text
from fluidtool.io.parameters import Value, separate_parts
from fluidtool.proto.enums import VarType

PREFIX = "checkpoint_"
MODEL_DIR = "__model__"
TRAINER_PREFIX = "trainer_"
SUCCESS = "_SUCCESS"
STATE = "state.json"
NOT_CHECKPOINTED = frozenset({VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.RAW})


def is_checkpoint_var(name: str, kind: VarType | int, persistable: bool) -> bool:
    """Whether a checkpoint keeps a variable: gradients and slices of parameter servers are not kept."""
    return (
        persistable
        and kind not in NOT_CHECKPOINTED
        and not any(mark in name for mark in ("@GRAD", ".trainer_", ".block"))
    )


def serials(folder: Path) -> list[int]:
    """The serial numbers of the complete checkpoints in a folder, ascending."""
    found = _numbered(folder)
    return [serial for serial in found if (folder / f"{PREFIX}{serial}" / MODEL_DIR / SUCCESS).is_file()]


def _numbered(folder: Path) -> list[int]:
    """The serial numbers of all checkpoint folders, complete or not, ascending."""
    entries = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    numbers = [name.removeprefix(PREFIX) for name in entries if name.startswith(PREFIX)]
    return sorted(int(number) for number in numbers if number.isdecimal() and str(int(number)) == number)


def latest_serial(folder: Path) -> int:
    """The largest serial of a complete checkpoint; -1 when there is none."""
    return max(serials(folder), default=-1)


def tidy_checkpoint(folder: Path, serial: int) -> None:
    """Remove what the saves of a checkpoint could not remove in its folders. Raises OutputError."""
    path = folder / f"{PREFIX}{serial}"
    own = (f"{TRAINER_PREFIX}*", f"{TRAINER_PREFIX}*/device_*")
    for each in (path, path / MODEL_DIR, *(folder for names in own for folder in path.glob(names))):
        tidy(each)


def checkpoint_dir(folder: Path, serial: int) -> Path:
    """The folder of one checkpoint; raises ModelNotFoundError when it is missing or was never completed."""
    path = folder / f"{PREFIX}{serial}"
    if not (path / MODEL_DIR / SUCCESS).is_file():
        have = ", ".join(str(s) for s in serials(folder)) or "none"
        raise ModelNotFoundError(f"{folder} has no complete checkpoint {serial}; complete ones: {have}")
    return path


def save(folder: Path, values: Mapping[str, Value], serial: int | None = None) -> int:
    """Write the variables of a new checkpoint and return its serial (one after the latest, when not given)."""
    number = latest_serial(folder) + 1 if serial is None else serial
    model = folder / f"{PREFIX}{number}" / MODEL_DIR
    with new_folder(model, replace=True) as temporary:  # what may be there was never completed
        write_into(temporary, {**separate_parts(temporary, values), SUCCESS: [_now()]})
    return number


def save_trainer_args(
    folder: Path,
    serial: int,
    trainer_id: int,
    args: Mapping[str, object],
    state: Mapping[str, Any] | None = None,
) -> None:
    """Write where a trainer stands (`epoch_id`, `step_id` …), one text file each, and `state` as JSON."""
    target = folder / f"{PREFIX}{serial}" / f"{TRAINER_PREFIX}{trainer_id}"
    contents = {target / name: [str(value).encode()] for name, value in args.items()}
    if state is not None:
        contents[target / STATE] = [json.dumps(state, indent=1).encode()]
    write_files({**contents, target / SUCCESS: [_now()]})


def load_trainer_args(folder: Path, serial: int, trainer_id: int, names: list[str]) -> list[str]:
    """What `save_trainer_args` wrote; raises UnreadableError when a file is missing."""
    source = folder / f"{PREFIX}{serial}" / f"{TRAINER_PREFIX}{trainer_id}"
    try:
        return [read_text(source / name).strip() for name in names]
    except UnreadableError as error:
        raise UnreadableError(
            f"checkpoint {serial} does not give the position of trainer {trainer_id}: {error}"
        ) from error


def load_trainer_state(folder: Path, serial: int, trainer_id: int) -> dict[str, Any]:
    """The `state` that `save_trainer_args` wrote; {} for a checkpoint without. Raises UnreadableError."""
    path = folder / f"{PREFIX}{serial}" / f"{TRAINER_PREFIX}{trainer_id}" / STATE
    if not path.is_file():
        return {}
    try:
        return read_json_object(path)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; resume from another checkpoint") from error


def random_states(generators: Sequence[np.random.Generator]) -> list[dict[str, Any]]:
    """Where generators stand, in terms of JSON."""
    return [dict(generator.bit_generator.state) for generator in generators]


def set_random_states(generators: Sequence[np.random.Generator], states: Sequence[Mapping[str, Any]]) -> None:
    """Let generators go on from `random_states`; raises UsageError for another number of them, UnreadableError."""
    if not isinstance(states, (list, tuple)) or not all(isinstance(state, Mapping) for state in states):
        raise UnreadableError(f"the checkpoint's random state is not a list of states, found {type(states).__name__}")
    if len(states) != len(generators):
        raise UsageError(
            f"the checkpoint contains the random state of {len(states)} devices, but the training runs on "
            f"{len(generators)}; resume on the same number as before"
        )
    for generator, state in zip(generators, states, strict=True):
        try:
            generator.bit_generator.state = state
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise UnreadableError(f"the checkpoint's random state cannot be used: {error}") from error


def device_dir(folder: Path, serial: int, trainer_id: int, device: int) -> Path:
    """Where the variables are that are one device's own."""
    return folder / f"{PREFIX}{serial}" / f"{TRAINER_PREFIX}{trainer_id}" / f"device_{device}"


def _now() -> bytes:
    """What the mark of a complete folder says."""
    return time.ctime().encode()


def rotate(folder: Path, keep: int) -> list[int]:
    """Remove all but the `keep` latest checkpoints, and those below the latest that were never completed.

    Returns the serials of the complete ones removed. Raises OutputError.
    """
    tidy(folder)
    complete = serials(folder)
    removed = complete[: max(0, len(complete) - keep)]
    for serial in removed:
        remove_folder(folder / f"{PREFIX}{serial}")
    for serial in _numbered(folder):
        if complete and serial < complete[-1] and serial not in complete:
            remove_folder(folder / f"{PREFIX}{serial}")
    return removed
