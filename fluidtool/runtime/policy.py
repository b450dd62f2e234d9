"""What a program may access on the machine. Programs come from files and are not trusted."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from fluidtool.errors import Hint, Location, PolicyError
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Folders below which `save`/`load` operators may read and write (None: the working directory at run time), and
    endpoints that network operators may contact (None: any).
    """

    file_roots: tuple[Path, ...] | None = None
    endpoints: frozenset[str] | None = field(default_factory=frozenset)

    def path(self, path: str, op_type: str) -> Path:
        """The path, resolved; raises PolicyError when it lies outside every allowed folder."""
        roots = (Path.cwd(),) if self.file_roots is None else self.file_roots
        resolved = Path(path).resolve()
        if not any(resolved.is_relative_to(root.resolve()) for root in roots):
            allowed = ", ".join(str(root) for root in roots) or "none"
            raise PolicyError(
                f"operator {op_type} asks for the file {path!r}, which is not in an allowed folder ({allowed})",
                hint=Hint(
                    "allow its folder: policy=fluidtool.runtime.Policy(file_roots=...)",
                    "allow its folder with --allow-files DIR",
                ),
                location=Location(str(path), type=op_type),
            )
        return resolved

    def endpoint(self, endpoint: str, op_type: str) -> str:
        """The endpoint; raises PolicyError unless the caller allows it."""
        if self.endpoints is not None and endpoint not in self.endpoints:
            raise PolicyError(
                f"operator {op_type} asks to connect to {endpoint!r}, which the caller did not allow",
                hint=Hint("allow it: policy=fluidtool.runtime.Policy(endpoints=...)", "allow it with --allow-network"),
                location=Location(type=op_type),
            )
        return endpoint


NOTHING_ALLOWED = Policy(file_roots=())
