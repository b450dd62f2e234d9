"""One word for one thing: no file uses the words and phrases that docs/glossary.md rules out. Usage: check_words.py [FOLDER]"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

GLOSSARY = "docs/glossary.md"
# They have to name the words, or were written with them.
LEFT_OUT = {GLOSSARY, "CHANGELOG.md", "tests/test_glossary.py"}
SUFFIXES = {".py", ".pyi", ".c", ".h", ".md", ".toml", ".yml", ".yaml", ".txt", ""}
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of a name: HTTPHeader_of is HTTP, Header, of

PADDLES = re.compile(r"@[A-Z_]+")  # as in w@GRAD


def ruled_out(glossary: str) -> list[tuple[str, tuple[str, ...]]]:
    """The words of the last column, each with the folders or files that it is ruled out in; none means everywhere."""
    found = []
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4:
            for words in filter(None, cells[3].split(";")):
                named, _, where = words.partition(" in ")
                folders = tuple(re.findall(r"`([^`]+)`", where))
                found += [(word, folders) for word in re.findall(r"`([^`]+)`", named)]
    return found


def uses(text: str, word: str) -> Iterator[int]:
    """The numbers of the lines that have the word, alone or as a part of a name; with a capital letter it is meant as written.

    Words with spaces between them are a phrase, which is found within a line.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if word.lower() not in line.lower():
            continue
        if " " in word:
            found = re.search(rf"\b{re.escape(word)}\b", line, re.IGNORECASE) is not None
        else:
            parts = PARTS.findall(PADDLES.sub("", line))
            found = word in parts if word != word.lower() else word in map(str.lower, parts)
        if found:
            yield number


def files(root: Path) -> list[str]:
    """The text files of the project."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [name for name in listed if name and Path(name).suffix in SUFFIXES and (root / name).is_file()]


def main(root: Path) -> int:
    """Print each use; 1 when there is one."""
    rules = ruled_out((root / GLOSSARY).read_text())
    found = 0
    for name in files(root):
        if name in LEFT_OUT or (root / name).is_symlink():
            continue
        text = (root / name).read_text(errors="replace")
        for word, folders in rules:
            if not folders or any(name == folder or name.startswith(f"{folder}/") for folder in folders):
                for line in uses(text, word):
                    found += 1
                    print(f"{name}:{line}: {word}; {GLOSSARY} has the word to use")
    print(f"{len(rules)} words, {found} uses")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
