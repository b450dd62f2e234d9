"""Scope: names and what they hold, with a parent to look further in. The memory of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from fluidtool.errors import ArgumentTypeError, UninitializedError
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray, SelectedRows

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
                f"variable {self.name} holds a {type(self.value).__name__}, not a {kind.__name__}; ask for that instead"
            )
        return self.value

    def get_tensor(self) -> LoDTensor:
        """The LoDTensor held; an empty one is put in when there is nothing yet."""
        return self._get(LoDTensor, LoDTensor)

    def get_selected_rows(self) -> SelectedRows:
        """The SelectedRows held; an empty one is put in when there is nothing yet."""
        return self._get(SelectedRows, SelectedRows)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The LoDTensorArray held; an empty one is put in when there is nothing yet."""
        return self._get(LoDTensorArray, LoDTensorArray)

    def get_lod_rank_table(self) -> LoDRankTable:
        """The LoDRankTable held."""
        if self.value is None:
            raise UninitializedError(f"variable {self.name} holds no rank table")
        return cast(LoDRankTable, self.value)

    def get_fetch_list(self) -> list[Any]:
        """The list of fetched values held."""
        return self._get(list, list)

    def is_initialized(self) -> bool:
        """Whether anything has been put in."""
        return self.value is not None and not (isinstance(self.value, LoDTensor) and self.value.array is None)

    def set_tensor(self, array: Any, offsets: list[list[int]]) -> None:
        """Put an array in; the LoDTensor object that is there stays the same object."""
        value = self.value
        if type(value) is LoDTensor:
            value.array, value.offsets = array, offsets
        else:
            self.value = LoDTensor(array, offsets)


class Scope:
    """Variables by name. Looking a name up goes on in the parent; creating one does not."""

    __slots__ = ("__weakref__", "_vars", "kids", "parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self._vars: dict[str, ScopeVariable] = {}
        self.parent = parent
        self.kids: list[Scope] = []

    def var(self, name: str) -> ScopeVariable:
        """The variable of this very scope, created when it is not there."""
        found = self._vars.get(name)
        if found is None:
            found = self._vars[name] = ScopeVariable(name)
        return found

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of this scope or the nearest one above that has the name, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._vars.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def find_local_var(self, name: str) -> ScopeVariable | None:
        """The variable of this very scope, or None."""
        return self._vars.get(name)

    def new_scope(self) -> Scope:
        """A scope below this one, kept until `drop_kids`."""
        kid = Scope(self)
        self.kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Forget every scope below."""
        self.kids.clear()

    def drop_kid(self, kid: Scope) -> None:
        """Forget one scope below."""
        self.kids = [other for other in self.kids if other is not kid]

    def erase(self, names: list[str]) -> None:
        """Forget these variables of this very scope."""
        for name in names:
            self._vars.pop(name, None)

    def local_var_names(self) -> list[str]:
        """The names in this very scope."""
        return list(self._vars)

    def root(self) -> Scope:
        """The scope at the top."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def __contains__(self, name: str) -> bool:
        return self.find_var(name) is not None

    _drop_kids = drop_kids
