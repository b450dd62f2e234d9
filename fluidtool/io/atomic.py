"""Writing without half-written files: everything goes to a temporary name beside the target and is then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fluidtool.errors import OutputError, OutputExistsError


def write_file(path: str | os.PathLike[str], parts: Iterable[Any], *, overwrite: bool = True) -> None:
    """Write byte strings and buffers to `path` in one step; folders above are made.

    Raises OutputExistsError when it is there and overwrite is False, OutputError when it cannot be written.
    """
    target = Path(path)
    if not overwrite and target.exists():
        raise OutputExistsError(f"{target} exists already; choose another name, or allow overwriting it (--force)")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {error.strerror or error}; choose a folder that you may write to"
        ) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
