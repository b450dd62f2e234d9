"""`python -m tests.public.examples FOLDER PATH...`: a script of every example in the documentation of Paddle.

A path is a package, whose docstrings have examples, or a folder of .rst and .md files. The scripts go into FOLDER, which is made a
git directory, for `python -m tests.public FOLDER/.git`. Examples that need dynamic graphs, or that import nothing, are left out,
and so are those that differ from earlier ones in comments and blanks alone.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path

OTHER = re.compile(r"dygraph|to_variable|imperative|declarative|VarBase")
BLOCK = re.compile(r"( *)(?:\.\. code-block:: *(?:i?python)?|::)\s*$", re.IGNORECASE)
FENCED = re.compile(r"```\s*python\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)


def indented_blocks(text: str) -> Iterator[str]:
    """Blocks of code of reStructuredText, without their indentation."""
    lines = text.expandtabs().splitlines()
    for number, line in enumerate(lines, 1):
        if start := BLOCK.match(line):
            block = takewhile(partial(_is_within, len(start[1])), lines[number:])
            yield textwrap.dedent("\n".join(block)).strip("\n") + "\n"


def _is_within(indentation: int, line: str) -> bool:
    return not line.strip() or len(line) - len(line.lstrip()) > indentation


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def examples_of(path: Path) -> Iterator[str]:
    """The blocks of code of a file."""
    text = path.read_text(errors="replace")
    if path.suffix == ".py":
        for docstring in docstrings(text):
            yield from indented_blocks(docstring)
    elif path.suffix == ".md":
        yield from map(textwrap.dedent, FENCED.findall(text))
    else:
        yield from indented_blocks(text)


def runs(example: str) -> bool:
    """Whether an example is a whole script for programs."""
    if "import" not in example or "paddle" not in example or OTHER.search(example):
        return False
    try:
        compile(example, "example", "exec")
    except SyntaxError:
        return False
    return True


def scripts(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of the examples in the files of a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".rst", ".md") and "dygraph" not in str(path):
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            for number, example in enumerate(filter(runs, examples_of(path))):
                yield f"{name}.{number}.py", example


def main(arguments: Sequence[str]) -> None:
    """Write the scripts."""
    target, *folders = map(Path, arguments)
    seen = set()
    target.mkdir(parents=True)
    for place, folder in enumerate(folders):
        for name, example in scripts(folder):
            if (plain := re.sub(r"#.*|\s+", "", example)) not in seen:
                seen.add(plain)
                (target / f"{place}.{name}").write_text(example)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=-", "-c", "user.email=-", "commit", "-qm", "examples"],
    ):
        subprocess.run(["git", "-C", str(target), *words], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
