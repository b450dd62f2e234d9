"""The interface of engines: they compile regions, and may have faster kernels for single operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fluidtool.ir import Operator, Program
from fluidtool.ops.control_flow.compiled import LoopCompiler
from fluidtool.records import dataclass
from fluidtool.runtime.graph.importers.registry import Lod
from fluidtool.runtime.graph.ir import Graph, Shape
from fluidtool.runtime.graph.spec import RegionSpec

Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call of a region: its kind, the value that it computes, or takes part in, and its multiply-adds."""

    kind: str
    result: str
    shape: Shape
    multiply_adds: int = 0


class Watch(Protocol):
    """An observer that measures how long everything takes."""

    def kernel_calls(self, region: Any, seconds: NDArray[np.float64]) -> None:
        """The kernel calls of a region have run; `seconds` per call."""

    def delegated(self, engine: str, graph: Graph, call: Callable[[], Any]) -> Any:
        """Run a region on another library, and return its result."""

    def calls(self, engine: str, made: Sequence[MadeCall], seconds: Sequence[float]) -> None:
        """The calls of a region on a device have been made, one after the other, each waited for; seconds of each."""

    def __call__(self, step: Any, block: int) -> None:
        """Run a step of a plan."""


class CompiledRegion(Protocol):
    """A region compiled for the shapes and LoDs of its inputs; `lods` are those of its outputs."""

    @property
    def lods(self) -> Mapping[str, list[list[int]]]:
        """By name."""

    @property
    def memory(self) -> int:
        """The bytes of its own memory."""

    @property
    def runs_to_pay(self) -> int:
        """How many runs save the time that compiling took; parameters that replace others are compiled after these runs."""

    @property
    def marks_ids(self) -> bool:
        """Whether it looks up rows by ids, of which it marks those that are out of range instead of looking at them before."""

    def run(
        self, given: Mapping[str, Any], watch: Watch | None = None, lods: Mapping[str, Lod] | None = None
    ) -> dict[str, Any]:
        """Compute the outputs (fresh arrays) from the inputs and, for pooled inputs, their LoDs, by name."""


class MarkingRegion(CompiledRegion, Protocol):
    """A region on a device that marks ids, instead of having them looked at before."""

    def ahead(self, given: Mapping[str, Any], run: object = None) -> tuple[dict[str, Any], Any]:
        """The outputs, and an array whose last element is 1, once it is computed, if an id is out of range; None if that cannot
        be. Nobody waits for anything. run: one in which arrays keep their numbers, so that the same array is copied once.
        """


class CompiledStep(Protocol):
    """A region of a training program, compiled for the shapes of its inputs and for the places of its states."""

    @property
    def lods(self) -> Mapping[str, str | Lod]:
        """For each output that has a LoD, the input whose LoD it is, or the LoD itself."""

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that are copied to where it reads them, states among them that it cannot read where they are."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Outputs that are no more than a shape."""

    @property
    def memory(self) -> int:
        """The bytes of its own memory."""

    def run(
        self,
        given: Mapping[str, Any],
        generator: Callable[[int], np.random.Generator],
        on_host: Mapping[str, Any],
        run: object = None,
    ) -> tuple[dict[str, Any], Any] | None:
        """The outputs, by name, after the states have changed in place; None if an id is out of range: nothing has changed.

        Behind them comes an array as of `MarkingRegion.ahead`, or None.
        on_host: ids among what is given of which the host has the same array. run: as of `MarkingRegion.ahead`.
        """

    def renewed(self, array: Any) -> Any:
        """Another array of the same memory."""


class StepCompiler(Protocol):
    """Compiles regions of training programs."""

    @property
    def room(self) -> int:
        """The bytes that all that is compiled of a region may take, unless the newest takes more."""

    def takes_program(self, program: Program) -> bool:
        """Whether regions of a program may be compiled at all."""

    def takes(self, op: Operator) -> bool:
        """Whether an operator may have a place in a region."""

    def unrolls(self, op: Operator) -> bool:
        """Whether an operator has a place in a region because loops do."""

    def refusal(self, op: Operator) -> str:
        """Why a loop has no place in a region, as far as that is known before; '' for other operators."""

    def reads_lods(self, op: Operator) -> bool:
        """Whether what an operator computes depends on the LoDs of its inputs."""

    def compile(
        self,
        operators: Sequence[tuple[Operator, Mapping[str, Any]]],
        given: Mapping[str, Any],
        states: Sequence[str],
        wanted: Sequence[str],
        lods: Mapping[str, Lod] | None = None,
        rings: Callable[[Operator], Any] | None = None,
        inner: bool = False,
    ) -> CompiledStep:
        """Compile operators. given: arrays by name, or shapes; those of `states` are changed where they are. wanted: the outputs.

        lods: of what is given, where operators read them: what is compiled holds for these. rings: the ranks that an operator
        sums over. inner: whether the region is in a loop: nobody waits for its ids.
        Raises UnsupportedError, which names a result of the operator that has no place in it.
        """


class Engine(Protocol):
    """Computes regions of a program, and single operators faster than their own kernels."""

    @property
    def name(self) -> str:
        """The name for --engine."""

    @property
    def version(self) -> str:
        """The version of the library, or its instruction set."""

    @property
    def threads(self) -> int:
        """The number of threads."""

    @property
    def precision(self) -> str:
        """The precision of products and convolutions: 'float32', or 'bf16'."""

    @property
    def any_rows(self) -> bool:
        """Whether specializations take pooled inputs with any number of rows."""

    @property
    def left_out(self) -> frozenset[str]:
        """The types of operators that are in no region, although others compute them there: quantizers, losses over paths."""

    @property
    def step_compiler(self) -> StepCompiler | None:
        """What compiles regions of training programs; None if their operators run one by one."""

    @property
    def loops(self) -> LoopCompiler | None:
        """What compiles loops; None if their operators run one by one."""

    def compile(self, spec: RegionSpec, packed: Any = None) -> CompiledRegion:
        """Compile a region; raises UnsupportedError if a kernel is missing.

        packed: the result of `packing` for the region's constants, shared by its specializations.
        """

    def packing(self, constants: tuple[NDArray[Any], ...]) -> Any:
        """Storage for packed constants, shared by all specializations of a region."""

    def kernel(self, type: str, own: Kernel) -> Kernel:
        """The kernel for single operators of a type: `own`, or a faster one wrapped around it."""

    def updates(self, type: str) -> Mapping[str, str]:
        """The inputs that its kernel for a type can change in place, and the outputs that take them over."""

    def run_updates(self, pending: list[Any]) -> None:
        """Run what kernels of updates have put off in a list that they got as `pending`."""

    def overwrites(self, type: str) -> tuple[str, ...]:
        """The inputs that its kernel for a type can compute in the place of, if nobody reads them afterwards."""

    def add_rows(self, total: Any, rows: Any, values: Any) -> bool:
        """total[rows[i]] += values[i], in this order; False if it has no kernel for that."""
