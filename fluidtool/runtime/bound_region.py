"""A region bound to the variables of a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from fluidtool.errors import FluidError, OperatorError
from fluidtool.runtime.bindings import Bindings, array_of
from fluidtool.runtime.engines.base import CompiledRegion, MarkingRegion, Watch
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import OutsideError, UnsupportedError
from fluidtool.runtime.partition import Division, Region
from fluidtool.runtime.scope import ScopeVariable
from fluidtool.runtime.signatures import levels, lod_of_value, meant
from fluidtool.runtime.step import say_where
from fluidtool.tensor import LoDTensor

Lookup = Callable[[str], ScopeVariable | None]


class BoundRegion:
    """A region whose names have been looked up."""

    __slots__ = (
        "_at_work",
        "_bind",
        "_bound",
        "_parts",
        "_runtime",
        "constants",
        "inputs",
        "outputs",
        "region",
        "release",
    )

    def __init__(
        self,
        region: Region,
        lookup: Lookup,
        bind: Callable[[Any], Any],
        release: tuple[Any, ...],
        bindings: Bindings,
        runtime: Any,
    ) -> None:
        self.region, self.release = region, release
        self._bind, self._runtime = bind, runtime
        self._at_work: Any = None
        self._bound: list[Any] | None = None
        self._parts: dict[Division, list[Any]] = {}
        self.inputs = [lookup(name) for name in region.inputs]
        self.constants = bindings.constants_of(region, region.constants)
        self.outputs = {name: lookup(name) for name in region.outputs}

    @property
    def steps(self) -> Sequence[Any]:
        """The steps one by one, for numpy and for observers of every operator."""
        if self._bound is None:
            self._bound = [self._bind(step) for step in self.region.steps]
        return self._bound

    def parts(self, division: Division | None) -> Sequence[Any]:
        """The steps, with native ones grouped in spite of a step between them."""
        if division is None:
            return self.steps
        found = self._parts.get(division)
        if found is None:
            found = self._parts[division] = [self._bind(part) for part in division.parts]
        return found

    @property
    def context(self) -> Any:
        """The operator that is running, for messages."""
        return (self._at_work or self.steps[0]).context

    def run(self, watch: Watch | None = None) -> None:
        """Run in one call, or one by one if these inputs have no kernel; `watch` times each part."""
        arrays = [array_of(holder) for holder in self.inputs]
        real = [lod_of(holder) for holder in self.inputs]
        lods = levels(real) if self.region.hands_lods_on else real
        constants = self.constants.arrays()
        found: CompiledRegion | Division | None = None
        if constants is not None and all([array is not None for array in arrays]):
            with self.region.specializations.lock:
                found = self.region.found(arrays, lods, constants)
        if found is None or isinstance(found, Division):
            self._run_parts(found, watch)
            return
        self._at_work, mark = None, None
        given = dict(zip(self.region.inputs, arrays, strict=True))
        is_inner = self.region.surroundings.inner
        try:
            if is_inner and watch is None:  # only on GPUs
                results, mark = cast("MarkingRegion", found).ahead(given, self._runtime.same_arrays)
            else:
                results = found.run(given, watch, dict(zip(self.region.inputs, lods, strict=True)))
        except UnsupportedError as error:
            self._run_parts(self.region.withdraw(arrays, lods, error), watch)
            return
        except (OutsideError, OperatorError) as error:
            if isinstance(error, OperatorError) and not is_inner:
                raise
            self._run_parts(None, watch)  # for the message of the operator
            return
        for name, holder in self.outputs.items():
            if holder is not None:
                lod = found.lods[name]
                holder.pending_lod = None
                holder.set_tensor(results[name], meant(lod, real) if self.region.hands_lods_on else copied(lod))
        if mark is not None:
            self._runtime.checks.postpone(mark, lambda: self._run_again(arrays, real))

    def _run_again(self, arrays: Sequence[Any], lods: Sequence[Lod]) -> None:
        """Run the steps of an earlier run, one by one."""
        given = [LoDTensor(array, copied(lod)) for array, lod in zip(arrays, lods, strict=True)]
        run_again(self, zip(self.inputs, given, strict=True), lambda: self._run_parts(None, None), self._runtime)

    def _run_parts(self, division: Division | None, watch: Watch | None) -> None:
        for step in self.parts(division):
            self._at_work = step
            if watch is None:
                step.run()
            else:
                watch(step, self.region.steps[0].op.block.idx)


def run_again(
    bound: Any, given: Iterable[tuple[ScopeVariable | None, LoDTensor]], run: Callable[[], None], runtime: Any
) -> None:
    """Run the steps of a bound region for what it was given in an earlier run; raises the error of the operator that was given
    what is out of range.
    """
    for holder, value in given:
        if holder is not None:
            holder.value = value
    try:
        run()
        runtime.checks.settle()
    except FluidError as error:
        say_where(error, bound)
        raise
    raise bound.context.error("was given an id out of range, but its array has changed since")


def copied(lod: Sequence[Sequence[int]]) -> list[list[int]]:
    """A LoD of one's own."""
    return [list(level) for level in lod]


def lod_of(holder: Any) -> Lod:
    """The LoD of a variable's tensor."""
    return lod_of_value(holder.value if holder is not None else None)
