"""Regions in loops that read LoDs: what was compiled is for numbers of rows that are rounded up, and for any offsets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from fluidtool.records import dataclass
from fluidtool.runtime.engines.base import Engine, MarkingRegion, Watch
from fluidtool.runtime.graph.filling import OFFSETS, Filled
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.runtime.specialization import Specializations

MOST_KNOWN = 64  # signatures whose offsets are remembered


class FillingEngine(Engine, Protocol):
    """An engine that computes regions within loops."""

    def fill_up(self, spec: RegionSpec, packed: Any) -> Filled:
        """A region with its rows filled up; raises UnsupportedError if it has none, or a kernel is missing."""

    def compile_filled(self, filled: Filled, outputs: Sequence[str], packed: Any) -> MarkingRegion:
        """Compile it, for all inputs with the same key; raises UnsupportedError."""


@dataclass(frozen=True, eq=False, slots=True)
class Fitting:
    """What was compiled for all inputs of a key, for some of them."""

    compiled: MarkingRegion
    filled: Filled

    @property
    def lods(self) -> Mapping[str, list[list[int]]]:
        """Those of the outputs of these inputs."""
        return self.filled.lods

    @property
    def memory(self) -> int:
        """That of what was compiled."""
        return self.compiled.memory

    @property
    def runs_to_pay(self) -> int:
        """Those of what was compiled."""
        return self.compiled.runs_to_pay

    @property
    def marks_ids(self) -> bool:
        """Whether it looks up rows by ids."""
        return self.compiled.marks_ids

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs; raises OperatorError, OutsideError, UnsupportedError."""
        return self._cut(self.compiled.run({**given, OFFSETS: self.filled.numbers}, watch, lods))

    def ahead(self, given: Mapping[str, Any], run: object = None) -> tuple[dict[str, Any], Any]:
        """The outputs, and a mark, without waiting."""
        results, mark = self.compiled.ahead({**given, OFFSETS: self.filled.numbers}, run)
        return self._cut(results), mark

    def _cut(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """The rows that count."""
        rows = self.filled.rows
        return {name: each if len(each) == rows[name] else each[: rows[name]] for name, each in results.items()}


@dataclass(eq=False, slots=True)
class Fillings:
    """A region for the inputs that came last, by signature: with its rows filled up, or None where that cannot be."""

    known: OrderedDict[Any, Filled | None] = field(default_factory=OrderedDict)

    def found(
        self,
        key: Any,
        spec: Callable[[], RegionSpec],
        constants: tuple[Any, ...],
        kept: Specializations,
        engine: FillingEngine,
    ) -> Fitting | None:
        """What runs these inputs; None if they run otherwise. The caller holds the lock of the specializations."""
        if not kept.are_of(constants):
            self.known.clear()
            kept.begin(constants, engine.packing(constants))
        if kept.waits():
            return None
        if key not in self.known:
            self._note(key, self._filled(spec(), kept, engine))
        self.known.move_to_end(key)
        filled = self.known[key]
        if filled is None:
            return None
        compiled: Any = kept.get(filled.key, constants)
        if compiled is None:
            if not kept.is_due(filled.key):
                return None
            try:
                compiled = kept.in_memory(lambda: engine.compile_filled(filled, tuple(filled.rows), kept.packed))
            except UnsupportedError:
                self.known[key] = None
                return None
            kept.keep(filled.key, compiled)
        return Fitting(compiled, filled)

    def give_up(self, key: Any, kept: Specializations) -> None:
        """Let these inputs run otherwise: a library has refused a call."""
        filled = self.known.get(key)
        if filled is not None:
            kept.kept.pop(filled.key, None)
            self.known[key] = None

    def _note(self, key: Any, filled: Filled | None) -> None:
        self.known[key] = filled
        if len(self.known) > MOST_KNOWN:
            self.known.popitem(last=False)

    def _filled(self, spec: RegionSpec, kept: Specializations, engine: FillingEngine) -> Filled | None:
        try:
            return engine.fill_up(spec, kept.packed)
        except UnsupportedError:
            return None
