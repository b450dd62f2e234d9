"""Where the copies of a server find out who is the primary: a folder that both reach, with a file for each term.

A file gets its name only if nobody else has given it that name before, and has its content then. What is in the folder is a few
bytes for each change; no value is ever kept there.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from fluidtool.distribute.pserver.replicas.succession import Configuration, Copy
from fluidtool.errors import OutputError, UnreadableError
from fluidtool.records import dataclass

TERM_FILE = re.compile(r"term_(\d+)")


@dataclass(frozen=True, slots=True)
class Register:
    """The configurations of one server of a job."""

    folder: Path

    def newest(self) -> Configuration | None:
        """The newest configuration, None before there is one; raises UnreadableError."""
        if not self.folder.is_dir():
            return None
        found = [TERM_FILE.fullmatch(entry.name) for entry in self.folder.iterdir()]
        term = max((int(name[1]) for name in found if name), default=0)
        return self._read(term) if term else None

    def claim(self, wanted: Configuration) -> bool:
        """Make this the configuration of its term; whether no other one was. Raises OutputError where the disk refuses."""
        target = self.folder / f"term_{wanted.term}"
        content = {"primary": _described(wanted.primary), "backup": wanted.backup and _described(wanted.backup)}
        own = self.folder / f".{target.name}.{wanted.primary.process}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            own.write_text(json.dumps(content))
            try:
                return _link(own, target)
            finally:
                own.unlink()
        except OSError as error:
            raise OutputError(
                f"cannot write {target}, which says who serves: {error.strerror or error}; the folder must be one that "
                "both copies of a server reach"
            ) from error

    def _read(self, term: int) -> Configuration:
        path = self.folder / f"term_{term}"
        try:
            content = json.loads(path.read_text())
            backup = content["backup"]
            return Configuration(term, _copy(content["primary"]), None if backup is None else _copy(backup))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise UnreadableError(f"{path} does not say who serves ({error}); restart the job") from error


def _link(source: Path, target: Path) -> bool:
    """Give a file one more name; False where the name is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    return True


def _described(copy: Copy) -> dict[str, Any]:
    return {"place": copy.place, "process": copy.process}


def _copy(found: dict[str, Any]) -> Copy:
    return Copy(int(found["place"]), str(found["process"]))
