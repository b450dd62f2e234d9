"""`python -m tests.public.names REPOSITORY --reference BRANCH [--paddle PYTHON]`: names of Paddle that its files use and we lack.

Each line has the number of files that use the name. With --paddle, names that real Paddle lacks as well are left out.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.public import repository
from tests.public.runs import TREE

ASKING = Path(__file__).parent / "asking" / "missing.py"
OURS = (sys.executable, "-m", "fluidtool", "exec")


def names_used(source: str) -> set[str]:
    """The dotted names below `paddle` that a file imports or reads; none of a file that Python 3 cannot parse."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except SyntaxError:
        return set()
    nodes = list(ast.walk(tree))
    imported = dict(pair for node in nodes for pair in _imported(node))
    read = {name for node in nodes if (name := _dotted(node, imported))}
    used = {name for name in (read | set(imported.values())) if name.startswith("paddle.")}
    return {name for name in used if not any(other.startswith(f"{name}.") for other in used)}


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import statement binds, and what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.AST, imported: dict[str, str]) -> str:
    """`fluid.layers.fc` as a name below `paddle`; '' for any other node."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute) and (parent := _dotted(node.value, imported)):
        return f"{parent}.{node.attr}"
    return ""


def lacked_by(command: tuple[str, ...], names: set[str]) -> set[str]:
    """Those of the names that the `paddle` of a Python does not have, up to the part that it lacks."""
    done = subprocess.run(
        [*command, str(ASKING)], input="\n".join(names), capture_output=True, text=True, cwd=TREE, check=True
    )
    return set(done.stdout.split())


def main(arguments: list[str] | None = None) -> int:
    """Print the names."""
    parser = argparse.ArgumentParser(prog="python -m tests.public.names", description=__doc__)
    parser.add_argument("repository", type=Path, help="a git directory")
    parser.add_argument("--reference", default="HEAD", help="branch, tag or commit")
    parser.add_argument("--paddle", default="", metavar="PYTHON", help="a Python with Paddle 1.8.5")
    chosen = parser.parse_args(arguments)
    files = {
        path: names_used(data.decode(errors="replace"))
        for path, data in repository.contents(chosen.repository, chosen.reference)
        if path.endswith(".py")
    }
    names = set().union(*files.values())
    lacked = lacked_by(OURS, names) - (lacked_by((chosen.paddle,), names) if chosen.paddle else set())
    users = Counter(name for used in files.values() for name in lacked if _uses(used, name))
    for name, count in users.most_common():
        print(f"{count:4} {name}")
    return 0


def _uses(used: set[str], name: str) -> bool:
    return any(each == name or each.startswith(f"{name}.") for each in used)


if __name__ == "__main__":
    sys.exit(main())
