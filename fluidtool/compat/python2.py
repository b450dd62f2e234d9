"""Scripts in Python 2: translated by fissix as they are loaded; their files are not changed."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import UsageError

TRUE_DIVISION = re.compile(r"^from\s+__future__\s+import\s+(\([^)]*|[^\n#]*)\bdivision\b", re.MULTILINE)
DIVISION = "fluidtool_division_of_python2"


def translated(source: bytes, name: str) -> ast.Module:
    """The syntax tree, in Python 3, of a file in Python 2; raises UsageError without fissix, SyntaxError."""
    text = _decoded(source)
    try:
        ours = str(_translator().refactor_string(text if text.endswith("\n") else f"{text}\n", name))
    except Exception as error:  # fissix raises various errors for files that neither Python can parse
        raise SyntaxError(f"{name} is not Python 2: {error}") from error
    tree = ast.parse(ours, name)
    return tree if TRUE_DIVISION.search(text) else ast.fix_missing_locations(_Divisions().visit(tree))


@cache
def _translator() -> Any:
    try:
        from fissix.refactor import RefactoringTool, get_fixers_from_package
    except ImportError as error:
        raise UsageError(
            "--python2 translates with fissix, which is not installed: pip install 'fluidtool[python2]'"
        ) from error
    return RefactoringTool(get_fixers_from_package("fissix.fixes"))


def _decoded(source: bytes) -> str:
    from importlib.util import decode_source

    return decode_source(source)


class _Divisions(ast.NodeTransformer):
    """`a / b` as Python 2 computes it."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _divided(node, node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not isinstance(node.target, ast.Name):
            return node
        value = _divided(node, ast.Name(node.target.id, ast.Load()), node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def _divided(node: ast.AST, left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(DIVISION, ast.Load()), [left, right], []), node)


def divide(left: Any, right: Any) -> Any:
    """left / right; of integers the floor."""
    return left // right if _is_integer(left) and _is_integer(right) else left / right


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")


class _Loader(SourceFileLoader):
    """Loads a module from its translation; compiled files beside it belong to another Python."""

    def get_code(self, fullname: str) -> Any:
        """The code of the translation."""
        path = self.get_filename(fullname)
        return compile(translated(self.get_data(path), path), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds modules in the script's folder, and others that are not Python 3."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module to translate; None for all others."""
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or not self._is_old(Path(spec.loader.path)):
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec

    def _is_old(self, path: Path) -> bool:
        if path.resolve().is_relative_to(self.folder):
            return True
        with suppress(OSError, UnicodeDecodeError, ValueError):
            try:
                ast.parse(path.read_bytes())
            except SyntaxError:
                return True
        return False


@contextmanager
def imports_translated(folder: Path) -> Iterator[None]:
    """Within the block, modules in a folder are loaded as Python 2."""
    sys.stderr.write("note: --python2: the script and its modules are translated by fissix; text is Unicode\n")
    finder = _Finder(folder.resolve())
    sys.meta_path.insert(0, finder)
    setattr(builtins, DIVISION, divide)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        delattr(builtins, DIVISION)
