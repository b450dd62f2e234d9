"""Checkpoints of the roles of a distributed job: `FOLDER/ROLE/step_N/`, one file for each variable and `manifest.json`.

ROLE is `pserver_0`, `trainer_1` and so on. Each role writes its own, by its own count of steps, and nobody coordinates:
a job goes on from the newest step that is complete in all roles. Files have the LoDTensor or SelectedRows format of
`save`. The manifest has sizes and SHA-256 sums and is written last, into a folder that gets its name only then; so a
folder of that name is complete, unless the disk lost something, which the manifest shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from fluidtool import disk
from fluidtool.errors import FluidError, ModelNotFoundError, OutputError, UnreadableError, UsageError
from fluidtool.io.atomic import remove_folder, tidy
from fluidtool.io.json_files import read_json_object
from fluidtool.io.parameter_path import parameter_path
from fluidtool.io.parameters import Value
from fluidtool.records import dataclass
from fluidtool.tensor import SelectedRows
from fluidtool.tensor.files import read_file
from fluidtool.tensor.streams import read_selected_rows, read_tensor, write_selected_rows, write_tensor

FORMAT = 1
MANIFEST = "manifest.json"
STEP = re.compile(r"step_(\d+)")
LEAST_KEPT = 2
DAMAGED = "damaged_"
TENSOR, ROWS = "LoDTensor", "SelectedRows"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a role had after `step` steps: values by variable name, and state in terms of JSON."""

    step: int
    values: dict[str, Value]
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where a role keeps its checkpoints, how often it writes one (0: never), how many stay, from which it goes on."""

    folder: Path
    role: str
    every: int = 0
    keep: int = LEAST_KEPT
    resume_step: int | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], role: str) -> Schedule | None:
        """As FLUIDTOOL_CHECKPOINT_DIR, _EVERY and _KEEP and FLUIDTOOL_RESUME_STEP say; None without a folder.

        Raises UsageError for values that cannot work.
        """
        folder = environment.get("FLUIDTOOL_CHECKPOINT_DIR")
        resume = _number(environment, "FLUIDTOOL_RESUME_STEP", None, 0)
        if not folder:
            if resume:
                raise UsageError(f"FLUIDTOOL_RESUME_STEP is {resume}, but FLUIDTOOL_CHECKPOINT_DIR is not set")
            return None
        every = _number(environment, "FLUIDTOOL_CHECKPOINT_EVERY", 0, 0)
        keep = _number(environment, "FLUIDTOOL_CHECKPOINT_KEEP", LEAST_KEPT, LEAST_KEPT)
        assert every is not None and keep is not None
        begun = resume == 0 and 0 in steps(Path(folder), role)  # what an asynchronous server began with
        return cls(Path(folder), role, every, keep, resume if begun else resume or None)

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be written after this step."""
        return bool(self.every) and step > 0 and step % self.every == 0

    def save(self, step: int, values: Mapping[str, Value], state: Mapping[str, Any] | None = None) -> None:
        """Write the checkpoint of a step."""
        save(self.folder, self.role, step, values, state, keep=self.keep)

    def resume_by(self, step: int) -> Checkpoint | None:
        """The newest checkpoint of at most this step that can be read, None for none; the others after it go."""
        for saved in reversed(steps(self.folder, self.role)):
            if saved <= step:
                try:
                    found = load(self.folder, self.role, saved)
                except UnreadableError:
                    continue
                forget_after(self.folder, self.role, saved)
                return found
        forget_after(self.folder, self.role, 0)
        return None

    def resume(self) -> Checkpoint | None:
        """The checkpoint to go on from, None at the start; those after it are of a run that is void, and go.

        Raises UnreadableError for one that is damaged, which then counts no more.
        """
        if self.resume_step is None:
            return None
        tidy(self.folder / self.role)
        try:
            found = load(self.folder, self.role, self.resume_step)
        except ModelNotFoundError:
            raise
        except UnreadableError as error:
            aside = _set_aside(self.folder, self.role, self.resume_step)
            raise UnreadableError(f"{error}; it is {aside.name} now, and a restart takes the one before") from error
        forget_after(self.folder, self.role, self.resume_step)
        return found


# ---------------------------------------------------------------- writing
def save(
    folder: Path,
    role: str,
    step: int,
    values: Mapping[str, Value],
    state: Mapping[str, Any] | None = None,
    *,
    keep: int = LEAST_KEPT,
) -> Path:
    """Write the checkpoint of one step and remove those before the `keep` newest; returns its folder.

    One of the same step is replaced. Raises OutputError when the disk refuses (then the older ones are still there),
    UsageError for a state that JSON cannot hold or fewer than 2 to keep.
    """
    if keep < LEAST_KEPT:
        raise UsageError(
            f"keep must be at least {LEAST_KEPT}, found {keep}: roles write their checkpoints at different times"
        )
    target = _step_folder(folder, role, step)
    text = _state_text(state or {})
    try:
        with disk.new_folder(target) as temporary:
            files = {name: _write_value(temporary, name, value) for name, value in values.items()}
            manifest = {"format": FORMAT, "role": role, "step": step, "state": json.loads(text), "files": files}
            _write(temporary / MANIFEST, [json.dumps(manifest, indent=1).encode()])
        _rotate(folder, role, keep)
    except OSError as error:
        if isinstance(error, FluidError):
            raise
        raise OutputError(
            f"cannot write the checkpoint {target}: {error.strerror or error}; the checkpoints before it are complete"
        ) from error
    return target


def _write_value(folder: Path, name: str, value: Value) -> dict[str, Any]:
    """Write one variable; its entry of the manifest."""
    path = parameter_path(folder, name)
    if path.name == MANIFEST:
        raise UsageError(f"a variable cannot be called {name}, the name of a checkpoint's manifest; rename it")
    is_rows = isinstance(value, SelectedRows)
    parts = write_selected_rows(value) if isinstance(value, SelectedRows) else write_tensor(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    size, digest = _write(path, parts)
    return {"kind": ROWS if is_rows else TENSOR, "size": size, "sha256": digest}


def _write(path: Path, parts: Iterable[Any]) -> tuple[int, str]:
    """Write; size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()


def _rotate(folder: Path, role: str, keep: int) -> None:
    """Remove the complete checkpoints before the newest `keep`, and incomplete ones before the newest."""
    kept = steps(folder, role)[-keep:]
    for entry in [entry for entry in (folder / role).iterdir() if not disk.is_leftover(entry.name) and entry.is_dir()]:
        number = STEP.fullmatch(entry.name.removeprefix(".").split(".")[0])  # .step_N.x.tmp is of older versions
        if number and int(number[1]) <= max(kept, default=0) and entry.name not in {f"step_{step}" for step in kept}:
            disk.remove_folder(entry)


def forget_after(folder: Path, role: str, step: int) -> None:
    """Remove a role's checkpoints of later steps; raises OutputError."""
    for later in steps(folder, role):
        if later > step:
            remove_folder(_step_folder(folder, role, later))


def _set_aside(folder: Path, role: str, step: int) -> Path:
    """Give a damaged checkpoint a name by which none is found; raises OutputError."""
    source = _step_folder(folder, role, step)
    target = source.with_name(f"{DAMAGED}{source.name}")
    try:
        if target.exists():
            remove_folder(target)
        source.rename(target)
    except OSError as error:
        raise OutputError(
            f"cannot rename the damaged checkpoint {source}: {error.strerror or error}; remove it"
        ) from error
    return target


def _state_text(state: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(state), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the state of a checkpoint must be valid JSON: {error}") from error


# ---------------------------------------------------------------- reading
def steps(folder: Path, role: str) -> list[int]:
    """The steps that a role has checkpoints of, ascending; only complete ones count."""
    place = folder / role
    names = [STEP.fullmatch(entry.name) for entry in place.iterdir()] if place.is_dir() else []
    return sorted(int(name[1]) for name in names if name and (place / name[0] / MANIFEST).is_file())


def latest_complete(folder: Path, roles: Sequence[str]) -> int | None:
    """The newest step of which every role has a checkpoint whose files are all there, None when there is none.

    Sizes are looked at, sums are not: `load` does that.
    """
    if not roles:
        return None
    common = set.intersection(*({*steps(folder, role)} for role in roles))
    return next((step for step in sorted(common, reverse=True) if _is_whole(folder, roles, step)), None)


def _is_whole(folder: Path, roles: Sequence[str], step: int) -> bool:
    return all(not _faults(folder, role, step) for role in roles)


def _faults(folder: Path, role: str, step: int) -> str:
    """What is wrong with a checkpoint as far as sizes show; "" for nothing."""
    path = _step_folder(folder, role, step)
    try:
        files = _manifest(path, role, step)["files"]
        for name, entry in files.items():
            found = parameter_path(path, name).stat().st_size
            if found != entry["size"]:
                return f"{name} has {found} bytes, {entry['size']} were written"
    except (OSError, UnreadableError) as error:
        return str(error)
    return ""


def load(folder: Path, role: str, step: int) -> Checkpoint:
    """A role's checkpoint of one step, every file checked; raises ModelNotFoundError or UnreadableError."""
    path = _step_folder(folder, role, step)
    if not (path / MANIFEST).is_file():
        have = ", ".join(map(str, steps(folder, role))) or "none"
        raise ModelNotFoundError(
            f"{folder} has no complete checkpoint of {role} after step {step}; complete ones: {have}"
        )
    manifest = _manifest(path, role, step)
    values = {name: _read_value(path, name, entry) for name, entry in manifest["files"].items()}
    return Checkpoint(step, values, manifest["state"])


def _manifest(path: Path, role: str, step: int) -> dict[str, Any]:
    source = path / MANIFEST
    try:
        manifest = read_json_object(source)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; resume from another checkpoint") from error
    fits = manifest.get("format") == FORMAT
    if not fits or not _is_manifest(manifest, role, step):
        raise UnreadableError(f"{source} is not the manifest of step {step} of {role}; resume from another checkpoint")
    return dict(manifest)


def _is_manifest(manifest: Mapping[str, Any], role: str, step: int) -> bool:
    files, state = manifest.get("files"), manifest.get("state")
    if (manifest.get("role"), manifest.get("step")) != (role, step):
        return False
    return isinstance(state, dict) and isinstance(files, dict) and all(_is_entry(entry) for entry in files.values())


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("kind") not in (TENSOR, ROWS):
        return False
    return isinstance(entry.get("size"), int) and isinstance(entry.get("sha256"), str)


def _read_value(folder: Path, name: str, entry: Mapping[str, Any]) -> Value:
    path = parameter_path(folder, name)
    buffer = read_file(path)
    if len(buffer) != entry["size"] or hashlib.sha256(buffer).hexdigest() != entry["sha256"]:
        raise UnreadableError(
            f"{path} differs from what was written: it has {len(buffer)} bytes, expected {entry['size']} with SHA-256 "
            f"{entry['sha256'][:12]}…; resume from another checkpoint"
        )
    read = read_selected_rows if entry["kind"] == ROWS else read_tensor
    value, _ = read(buffer, 0, str(path))
    tensor = value.tensor if isinstance(value, SelectedRows) else value
    if tensor.array is not None:
        tensor.array = tensor.array.copy()  # the file may be rotated away
    return value


def _step_folder(folder: Path, role: str, step: int) -> Path:
    if role in ("", "..") or role != Path(role).name or step < 0:
        raise UsageError(f"a checkpoint needs a role and a step of at least 0; found {role!r} and {step}")
    return folder / role / f"step_{step}"


def _number(environment: Mapping[str, str], name: str, default: int | None, least: int) -> int | None:
    text = environment.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"{name} must be an integer of at least {least}, found {text!r}")
    return int(text)
