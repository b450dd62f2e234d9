"""Toy roles: small Python scripts that do what a role may do, right or wrong; and a view that remembers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluidtool.distribute.launch.local import LocalEngine
from fluidtool.distribute.launch.plans import Role
from fluidtool.distribute.launch.recovery import Recovery
from fluidtool.distribute.launch.status import Outcome, RoleStatus
from fluidtool.distribute.launch.supervisor import Patience, Supervisor

REPORT = """
import json, os, signal, sys, time
def report(step, **more):
    with open(os.environ["FLUIDTOOL_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step, **more}) + "\\n")
"""
FAST = Patience(grace=5.0, hang_after=30.0)


@dataclass
class Remembered:
    """A view that keeps everything; `then` is called with each line of a role."""

    lines: list[tuple[str, str, bool]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    statuses: int = 0
    then: Any = None

    def line(self, role: str, text: str, is_error: bool) -> None:
        self.lines.append((role, text, is_error))
        if self.then is not None:
            self.then(role, text)

    def event(self, text: str, **fields: Any) -> None:
        self.texts.append(text)
        self.events.append(fields)

    def status(self, roles: Sequence[RoleStatus]) -> None:
        self.statuses += 1

    def written(self, role: str) -> list[str]:
        """The lines of one role."""
        return [text for name, text, _ in self.lines if name == role]


def toy(name: str, code: str) -> Role:
    """A role that runs this code; `report` is there."""
    return Role(name, name.rpartition("_")[0], ("-c", REPORT + code))


def run(
    roles: Sequence[Role],
    folder: Path,
    *,
    view: Remembered | None = None,
    patience: Patience = FAST,
    recovery: Recovery | None = None,
    resume: bool = False,
) -> tuple[Outcome, Remembered]:
    """Supervise toy roles to the end."""
    view = view or Remembered()
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    engine = LocalEngine(folder, environment, lambda role: (sys.executable, *role.words))
    supervisor = Supervisor(roles, engine, view, patience=patience, recovery=recovery, resume=resume)
    return supervisor.run(), view


def is_alive(process: int) -> bool:
    """Whether a process runs (one that nobody has waited for does not)."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
