"""A public repository: a git directory, whose files are written into a folder of ours for as long as a driver runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

LARGEST = 4_000_000  # bytes of a file that is written out: code and small data


def git(repository: Path, *arguments: str) -> str:
    """What a git command says of a repository."""
    command = ["git", f"--git-dir={repository}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def commit_of(repository: Path, reference: str) -> str:
    """The commit that a branch or tag names."""
    return git(repository, "rev-parse", f"{reference}^{{commit}}").strip()


def check_out(repository: Path, reference: str, folder: Path) -> None:
    """Write the plain files of a commit into a folder; what the repository lacks is left out."""
    for path, data in contents(repository, reference):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def contents(repository: Path, reference: str) -> Iterator[tuple[str, bytes]]:
    """Paths and contents of the plain files of a commit."""
    listed = git(repository, "ls-tree", "-r", "-l", "-z", reference)  # -z: names as they are, not quoted
    rows = [line.split(None, 4) for line in listed.split("\0") if line]
    wanted = [(row[2], row[4]) for row in rows if row[0] != "120000" and row[3].isdigit() and int(row[3]) < LARGEST]
    command = ["git", f"--git-dir={repository}", "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name, path in wanted:
            process.stdin.write(f"{name}\n".encode())
            process.stdin.flush()
            header = process.stdout.readline().split()
            if header[1] != b"missing":
                yield path, process.stdout.read(int(header[2]) + 1)[:-1]


def scripts_of(folder: Path) -> list[Path]:
    """Scripts that import paddle.fluid, relative to the folder: in each folder those that train first."""
    found = [path.relative_to(folder) for path in folder.rglob("*.py") if _imports_fluid(path)]
    return sorted(found, key=lambda path: (path.parent, "infer" in path.name or "use_" in path.name, path.name))


def _imports_fluid(path: Path) -> bool:
    text = path.read_text(errors="replace")
    return "import paddle" in text and "fluid" in text
