"""Where the file of a variable is, by its name."""

from __future__ import annotations

import os
from pathlib import Path

from fluidtool.errors import ParameterFileError


def parameter_path(folder: Path, name: str) -> Path:
    """Where a variable's own file is; raises ParameterFileError for a name that leads out of the folder."""
    if not name or os.path.isabs(name) or ".." in Path(name).parts or "\0" in name:
        raise ParameterFileError(
            f"variable name {name!r} leads outside the folder {folder}, where fluidtool neither reads nor writes: "
            f"rename the variable, or save the parameters in one combined file",
            variable=name,
        )
    return folder / name
