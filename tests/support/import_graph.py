"""Which file imports which, and the circles among them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

Graph = Mapping[str, frozenset[str]]


def import_graph(folders: Mapping[str, Path]) -> Graph:
    """The modules of some packages, given by their folders, and what the file of each imports of them.

    Imports inside functions and for types only count as any other; that a module imports the packages around it does not.
    """
    files = {
        _module(package, path.relative_to(folder)): path
        for package, folder in folders.items()
        for path in folder.rglob("*.py")
    }
    return {module: frozenset(_imports(path, files)) - {module} for module, path in files.items()}


def circles(graph: Graph) -> set[frozenset[str]]:
    """The sets of modules that all import one another, directly or through others."""
    reached = {module: _reached(graph, module) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }


def _module(package: str, path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _imports(path: Path, modules: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from named.intersection(modules)
            if named.difference(modules) and node.module in modules:
                yield node.module


def _reached(graph: Graph, start: str) -> set[str]:
    """What a module imports, what that imports, and so on."""
    reached: set[str] = set()
    waiting = set(graph[start])
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= graph[module] - reached
    return reached
