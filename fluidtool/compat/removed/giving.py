"""Restores the old names of modules, and removes them again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from fluidtool.compat.removed.arrays import of_old
from fluidtool.compat.removed.functions import FUNCTIONS, METHODS, give_methods, print_scalars_as_numbers
from fluidtool.compat.removed.names import REMOVED, stands_for
from fluidtool.compat.removed.notes import Notes
from fluidtool.compat.removed.single_elements import convert_single_elements

MODULES = ("distutils", "imp")
CHANGED = REMOVED.keys() | FUNCTIONS.keys() | METHODS.keys()


@contextmanager
def old_names(notes: Notes) -> Iterator[None]:
    """Within the block, dropped names and modules exist; those that a script uses are noted on stderr."""
    with ExitStack() as undo:
        finder = _Finder(lambda module: _give(module, notes, undo))
        for name in CHANGED & sys.modules.keys():
            finder.give(sys.modules[name])
        dropped = _Dropped(notes)
        sys.meta_path.insert(0, finder)
        sys.meta_path.append(dropped)
        undo.callback(sys.meta_path.remove, finder)
        undo.callback(sys.meta_path.remove, dropped)
        yield


def _give(module: ModuleType, notes: Notes, undo: ExitStack) -> None:
    """Let a module provide the names that it has dropped, and take the arguments that it took."""
    if module.__name__ in REMOVED:
        _replace(module, "__getattr__", _answers(module, REMOVED[module.__name__], notes), undo)
    for name, of_before in FUNCTIONS.get(module.__name__, {}).items():
        _replace(module, name, of_before(getattr(module, name), notes), undo)
    undo.callback(give_methods(module))
    if module.__name__ == "numpy":
        for name in ("array", "asarray"):
            _replace(module, name, of_old(getattr(module, name), notes), undo)
        undo.callback(convert_single_elements(module))
        undo.callback(print_scalars_as_numbers(module))


def _replace(module: ModuleType, name: str, value: Any, undo: ExitStack) -> None:
    before = vars(module).get(name)
    setattr(module, name, value)
    undo.callback(delattr, module, name) if before is None else undo.callback(setattr, module, name, before)


def _answers(module: ModuleType, removed: Mapping[str, str], notes: Notes) -> Callable[[str], Any]:
    """A module's `__getattr__`, which asks the previous one for names outside the table."""
    before: Callable[[str], Any] | None = vars(module).get("__getattr__")

    def answer(name: str) -> Any:
        if name in removed:
            value = stands_for(removed[name])
            notes.say(_note(f"{module.__name__}.{name}", removed[name]))
            return value
        if before is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return before(name)

    return answer


def _note(name: str, path: str) -> str:
    if path.startswith("fluidtool."):
        return f"{name} was removed; fluidtool provides it"
    return f"{name} was removed; fluidtool uses {path.removeprefix('builtins.')} instead"


class _Finder(MetaPathFinder):
    """Finds the modules of the table, and adds their names once they are loaded."""

    def __init__(self, give: Callable[[ModuleType], None]) -> None:
        self.give = give

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module of the table; None for all others."""
        spec = PathFinder.find_spec(fullname, path) if fullname in CHANGED else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Giving(spec.loader, self.give)
        return spec


class _Giving(Loader):
    """Loads as another loader does, then adds the names to the module."""

    def __init__(self, loader: Any, give: Callable[[ModuleType], None]) -> None:
        self._loader, self._give = loader, give

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """As the other loader; the module is its own afterwards."""
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._give(module)


class _Dropped(MetaPathFinder, Loader):
    """Finds modules that Python has dropped, if nothing else does."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of our replacement for a dropped module; None for all others."""
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Our module."""
        self.notes.say(f"the module {spec.name} was removed; fluidtool provides the functions that old scripts use")
        return import_module(f"{__package__}.modules.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it is already loaded."""
