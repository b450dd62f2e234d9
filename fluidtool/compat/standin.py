"""The modules that a script gets for `paddle`, and how they enter and leave `sys.modules`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fluidtool.compat.sources import modules_within, sources_of
from fluidtool.errors import NotOfferedError, NotOfferedImportError, UsageError
from fluidtool.fluid.offers import not_offered

ROOT = "paddle"


class StandIn(ModuleType):
    """A module of Paddle whose names are those of some of our modules."""

    def __init__(self, name: str, sources: Sequence[ModuleType], replaced: Mapping[str, Any]) -> None:
        super().__init__(name, sources[0].__doc__ if sources else None)
        self.__path__: list[str] = []  # a package: what is imported from it passes by our finder
        self.__dict__["_fluidtool_sources"] = tuple(sources)
        self.__dict__["_fluidtool_replaced"] = replaced
        self.__all__ = public_names(name, sources)
        for source in sources:
            for kept in ("__version__", "__git_commit__"):
                if hasattr(source, kept):
                    setattr(self, kept, getattr(source, kept))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a name; a module below that has been imported hides no function or class (`layers.rnn` is both)."""
        if not (isinstance(value, StandIn) and self._offers(name)):
            super().__setattr__(name, value)

    def _offers(self, name: str) -> bool:
        return any(_plain(source, name) for source in self.__dict__["_fluidtool_sources"])

    def __getattr__(self, name: str) -> Any:
        """A name of our modules, or a module below this one; raises NotOfferedError."""
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        for source in self.__dict__["_fluidtool_sources"]:
            if _plain(source, name):
                return self.__dict__["_fluidtool_replaced"].get(name, getattr(source, name))
        below = f"{self.__name__}.{name}"
        if sources_of(below) is not None:
            return import_module(below)
        raise NotOfferedError(not_offered(self.__name__, name, self.__all__))

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


def _plain(source: ModuleType, name: str) -> bool:
    """Whether the module has the name, and it is no module itself."""
    there = name in vars(source) or name in getattr(source, "__all__", ())  # it may come in when it is first asked for
    return there and not isinstance(getattr(source, name), ModuleType)


def public_names(name: str, sources: Sequence[ModuleType]) -> list[str]:
    """The names for `from name import *`: exports of our modules, and the modules below."""
    names = set(modules_within(name))
    for source in sources:
        exported = getattr(source, "__all__", None)
        names.update(exported if exported is not None else defined_names(source))
    return sorted(names)


def defined_names(module: ModuleType) -> list[str]:
    """The public names that a module without `__all__` defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


class Finder(MetaPathFinder, Loader):
    """Finds `paddle` and modules below it; for a module that is not available, the error names it.

    replaced: replacements of some names, in any module of Paddle that has them.
    """

    def __init__(self, replaced: Mapping[str, Any]) -> None:
        self.replaced = replaced

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module of Paddle; raises NotOfferedImportError; None for all other modules."""
        if fullname.partition(".")[0] != ROOT:
            return None
        if sources_of(fullname) is None:
            parent, _, name = fullname.rpartition(".")
            offered = getattr(sys.modules.get(parent), "__all__", ())
            raise NotOfferedImportError(not_offered(parent, name, offered), name=fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The stand-in of this name."""
        return StandIn(spec.name, [import_module(source) for source in sources_of(spec.name) or ()], self.replaced)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: a stand-in looks its names up."""


def _ours(name: str) -> bool:
    return name.partition(".")[0] == ROOT


@contextmanager
def install(replaced: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Within the block `paddle` is ours; raises UsageError if real Paddle has already been imported.

    replaced: replacements of some of its names.
    """
    if any(_ours(name) for name in sys.modules):
        raise UsageError(
            "paddle has already been imported in this process, and fluidtool does not replace it; run the script in "
            "a separate process with 'fluidtool exec'"
        )
    finder = Finder(replaced or {})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _ours(name)]:
            del sys.modules[name]
