"""The findings that a project has accepted, as a file that it keeps under version control."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fluidtool.errors import Hint, Location, UnreadableError
from fluidtool.io.atomic import write_file
from fluidtool.io.json_files import read_json
from fluidtool.io.jsonable import jsonable
from fluidtool.passes.findings import Finding
from fluidtool.records import dataclass

SCHEMA = "fluidtool.check.baseline/1"
WRITE_ONE = Hint("write one with fluidtool.workflows.check.accept", "write one with --write-baseline")
FIELDS = ("program", "code", "block", "type", "variable")
Key = tuple[Any, ...]


@dataclass(slots=True)
class Baseline:
    """How often each finding is accepted. Neither the position of an operator nor the words of the message matter, so that
    other changes of the program and of fluidtool leave a finding accepted. Paths are relative to `folder`.
    """

    folder: Path
    accepted: Counter[Key]

    def new(self, program: str, findings: Sequence[Finding]) -> list[Finding]:
        """The findings that are not accepted; those that are will not be accepted again."""
        return [finding for finding in findings if not self._take(_key(finding, program, self.folder))]

    def _take(self, key: Key) -> bool:
        known = self.accepted[key] > 0
        self.accepted[key] -= known
        return known

    @property
    def unmatched(self) -> int:
        """How many accepted findings did not occur."""
        return self.accepted.total()


def read_baseline(path: Path) -> Baseline:
    """The baseline of a file; raises UnreadableError for another kind of file."""
    data = read_json(path)
    rows = data.get("findings") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise UnreadableError(
            f"{path} is not a baseline of findings ({SCHEMA})", hint=WRITE_ONE, location=Location(str(path))
        )
    return Baseline(path.parent, Counter(tuple(row[name] for name in FIELDS) for row in rows))


def write_baseline(path: Path, found: Iterable[tuple[str, Sequence[Finding]]], *, overwrite: bool = False) -> int:
    """Accept these findings, given by program, and return how many they are; raises OutputExistsError, OutputError."""
    keys = (_key(finding, program, path.parent) for program, findings in found for finding in findings)
    rows = [dict(zip(FIELDS, key, strict=True)) for key in keys]
    text = json.dumps({"schema": SCHEMA, "findings": jsonable(rows)}, indent=2) + "\n"
    write_file(path, [text.encode()], overwrite=overwrite)
    return len(rows)


def _is_row(row: Any) -> bool:
    """Whether a row has all fields, with values that can be compared."""
    return isinstance(row, dict) and all(isinstance(row.get(name, []), (str, int, type(None))) for name in FIELDS)


def _key(finding: Finding, program: str, folder: Path) -> Key:
    texts = jsonable([relative(program, folder), finding.type, finding.variable])
    return texts[0], finding.code, finding.block, texts[1], texts[2]


def relative(path: str, folder: Path) -> str:
    """A path as seen from a folder, with slashes on every system; as it is where that is on another drive."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return Path(path).as_posix()
