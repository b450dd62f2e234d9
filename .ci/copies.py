"""Make the copies of the project that people have: python .ci/copies.py FOLDER

FOLDER/clone is what `git clone` gives, with what is not committed yet; FOLDER/zip what a code host's zip file gives, in which
symbolic links are text files; FOLDER/no links a clone with core.symlinks=false. Nothing that git ignores is in any of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files() -> list[Path]:
    """The files of the project, relative to it: those that git has, and new ones that it does not ignore."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [Path(name) for name in names if name and (ROOT / name).exists()]


def copy(target: Path, links: bool) -> None:
    """The files in a new folder; without `links`, a link becomes a text file that holds its target."""
    for name in files():
        made = target / name
        made.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink() and not links:
            made.write_text(str((ROOT / name).readlink()))
        else:
            shutil.copy2(ROOT / name, made, follow_symlinks=False)


def repository(folder: Path) -> None:
    """Make a repository of a copy, as a clone is one."""
    commit = ["-c", "user.name=ci", "-c", "user.email=ci@localhost", "commit", "-qm", "a copy"]
    for words in (["init", "-q"], ["add", "-A"], commit):
        subprocess.run(["git", *words], cwd=folder, check=True)


def main() -> None:
    """Make the three of them in the folder that the command line names."""
    folder = Path(sys.argv[1])
    copy(folder / "clone", links=True)
    repository(folder / "clone")
    copy(folder / "zip", links=False)
    without = ["-c", "core.symlinks=false", "clone", "-q", "clone", "no links"]
    subprocess.run(["git", *without], cwd=folder, check=True)


if __name__ == "__main__":
    main()
