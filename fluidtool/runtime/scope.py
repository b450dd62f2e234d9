"""Scope: variables by name, with a parent for further lookups. The memory of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fluidtool import locks
from fluidtool.errors import ArgumentTypeError, UninitializedError
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray, SelectedRows

if TYPE_CHECKING:
    from fluidtool.runtime.communicators import Communicators

T = TypeVar("T")


class ScopeVariable:
    """A name and its value: LoDTensor, SelectedRows, LoDTensorArray, LoDRankTable, … or None before the first write."""

    __slots__ = ("name", "pending_lod", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None
        self.pending_lod: list[list[int]] | None = None

    def _get(self, kind: type[T], make: Callable[[], T]) -> T:
        if self.value is None:
            self.value = make()
        if not isinstance(self.value, kind):
            raise ArgumentTypeError(
                f"variable {self.name} holds a {type(self.value).__name__}, not a {kind.__name__}; request that instead"
            )
        return self.value

    def get_tensor(self) -> LoDTensor:
        """The LoDTensor held; created empty if the variable has no value."""
        return self._get(LoDTensor, LoDTensor)

    def get_selected_rows(self) -> SelectedRows:
        """The SelectedRows held; created empty if the variable has no value."""
        return self._get(SelectedRows, SelectedRows)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The LoDTensorArray held; created empty if the variable has no value."""
        return self._get(LoDTensorArray, LoDTensorArray)

    def get_lod_rank_table(self) -> LoDRankTable:
        """The LoDRankTable held."""
        if self.value is None:
            raise UninitializedError(f"variable {self.name} holds no rank table")
        return cast(LoDRankTable, self.value)

    def get_fetch_list(self) -> list[Any]:
        """The list of fetched values held."""
        return self._get(list, list)

    def is_int(self) -> bool:
        """Whether it holds an integer."""
        return isinstance(self.value, int)

    def set_int(self, value: int) -> None:
        """Put an integer in."""
        self.value = int(value)

    def get_int(self) -> int:
        """The integer held; raises ArgumentTypeError for anything else."""
        return self._held(int)

    def is_float(self) -> bool:
        """Whether it holds a number with a fraction."""
        return isinstance(self.value, float)

    def set_float(self, value: float) -> None:
        """Put a number in."""
        self.value = float(value)

    def get_float(self) -> float:
        """The number held; raises ArgumentTypeError for anything else."""
        return self._held(float)

    def _held(self, kind: type[T]) -> T:
        if self.value is None:
            raise UninitializedError(f"variable {self.name} holds nothing yet")
        return self._get(kind, kind)

    def is_initialized(self) -> bool:
        """Whether the variable has a value."""
        return self.value is not None and not (isinstance(self.value, LoDTensor) and self.value.array is None)

    def set_tensor(self, array: Any, offsets: list[list[int]]) -> None:
        """Store an array; an existing LoDTensor object is reused."""
        value = self.value
        if type(value) is LoDTensor:
            value.array, value.offsets = array, offsets
        else:
            self.value = LoDTensor(array, offsets)


class Stock:
    """Stored variables that belong together; `taken` changes whenever the value of one is requested or set."""

    __slots__ = ("lock", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self.lock = locks.lock()  # held while a value is read from its file or replaced


class StoredVariable(ScopeVariable):
    """A variable whose value stays in a file until it is requested.

    mapped: the value in the memory-mapped file, at any address. load: returns the tensor; None once the
    value has been requested or replaced. stock: the group it belongs to, by default only itself.
    """

    __slots__ = ("_array", "_mapped", "_value", "load", "stock")

    def __init__(self, name: str, mapped: Any, load: Callable[[], LoDTensor], stock: Stock | None = None) -> None:
        self.stock = Stock() if stock is None else stock
        super().__init__(name)
        self._mapped, self._array = mapped, None
        self.load: Callable[[], LoDTensor] | None = load

    @property
    def value(self) -> Any:
        """The value, read from the file on first use."""
        if self.load is not None:
            with self.stock.lock:
                if (load := self.load) is not None:
                    self._value = load()
                    self._array, self.load = self._value.array, None
                    self.stock.taken += 1
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        with self.stock.lock:
            self._value, self._mapped, self.load, self._array = value, None, None, None
            self.stock.taken += 1

    def mapped(self) -> Any:
        """The array in the file, while it is the value; else None."""
        if self.load is not None:
            return self._mapped
        return self._mapped if type(self._value) is LoDTensor and self._value.array is self._array else None


class Scope:
    """Variables by name. Lookups continue in the parent; creation does not.

    communicators: of the outermost scope, the rings that programs have joined; None before the first.
    """

    __slots__ = ("__weakref__", "_names", "_vars", "communicators", "kids", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self._vars: dict[str, ScopeVariable] = {}
        self._names = object()  # replaced whenever a name is added or removed
        self.parent = parent
        self.kids: list[Scope] = []
        self.communicators: Communicators | None = None

    def var(self, name: str) -> ScopeVariable:
        """The variable of this scope itself, created if missing; raises ArgumentTypeError for what is no name."""
        found = self._vars.get(name)
        if found is None:
            if not isinstance(name, str):
                raise ArgumentTypeError(f"a scope has variables by name, found {name!r}")
            found = self._vars.setdefault(name, ScopeVariable(name))  # all threads get the one that was first
            self._names = object()
        return found

    def hold(self, variable: ScopeVariable) -> None:
        """Add a variable; an existing one of that name takes its value instead."""
        found = self._vars.setdefault(variable.name, variable)
        self._names = object()
        if found is not variable:
            found.value = variable.value

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of that name in this scope or the nearest one above, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._vars.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def find_local_var(self, name: str) -> ScopeVariable | None:
        """The variable of this scope itself, or None."""
        return self._vars.get(name)

    def new_scope(self) -> Scope:
        """A new child scope, kept until `drop_kids`."""
        kid = Scope(self)
        self.kids.append(kid)
        return kid

    def take_in(self, kid: Scope) -> None:
        """Make a scope that has no parent a child of this one."""
        kid.parent = self
        self.kids.append(kid)

    def emptied(self) -> Iterable[ScopeVariable]:
        """The variables of this scope itself, which lose their values."""
        found = self._vars.values()
        for variable in found:
            variable.value = variable.pending_lod = None
        return found

    def drop_kids(self) -> None:
        """Drop all child scopes."""
        self.kids.clear()

    def drop_kid(self, kid: Scope) -> None:
        """Drop one child scope."""
        with suppress(ValueError):
            self.kids.remove(kid)  # atomic: other threads may have scopes here

    def erase(self, names: list[str]) -> None:
        """Remove these variables from this scope itself."""
        for name in names:
            self._vars.pop(name, None)
        self._names = object()

    def names_version(self) -> tuple[object, ...]:
        """A value that stays equal as long as the same names mean the same variables, here and above."""
        versions = [self._names]
        scope = self.parent
        while scope is not None:
            versions.append(scope._names)
            scope = scope.parent
        return tuple(versions)

    def local_var_names(self) -> list[str]:
        """The names in this scope itself."""
        return list(self._vars)

    def root(self) -> Scope:
        """The outermost scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def __contains__(self, name: str) -> bool:
        return self.find_var(name) is not None

    _drop_kids = drop_kids
