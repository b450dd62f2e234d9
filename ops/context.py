"""The context of an operator kernel: its access to the runtime.

A kernel computes with `ctx.xp` (numpy or cupy), independent of the device. Inherently scalar work (suppression, beam
search) may go to the host with `ctx.host` and come back with `ctx.array`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol, TypeVar

from fluidtool.errors import OperatorError, UninitializedError
from fluidtool.ir.operator import Operator
from fluidtool.ops.registry import OpInfo
from fluidtool.ops.schema import FRAMEWORK_ATTRS
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, Place, numpy_dtype
from fluidtool.tensor.lod import LoD

T = TypeVar("T")


class ScopeLike(Protocol):
    """The part of a scope that control flow kernels use."""

    def find_var(self, name: str) -> Any: ...
    def var(self, name: str) -> Any: ...
    def new_scope(self) -> Any: ...


class Device(Protocol):
    """An array engine: numpy on the host or cupy on a GPU."""

    name: str
    xp: Any

    def host(self, array: Any) -> Any: ...
    def array(self, array: Any) -> Any: ...
    def holds(self, array: Any) -> bool: ...
    def active(self) -> AbstractContextManager[Any]: ...
    def add_at(self, total: Any, key: Any, values: Any) -> None: ...
    def sums_at(self, places: Any, values: Any, size: int) -> Any: ...
    def replace_rows(self, total: Any, rows: Any, values: Any) -> None: ...
    def random(self, generator: Any, shape: tuple[int, ...], dtype: Any) -> Any: ...
    def flags(self, count: int) -> Any: ...
    def mark_outside(self, ids: Any, low: int, high: int, ignored: int | None, flag: Any) -> None: ...
    def read_flags(self, flags: Any) -> tuple[int, int] | None: ...
    def wait(self) -> None: ...
    def memory(self) -> str: ...
    def failure(self, error: RuntimeError) -> Exception | None: ...
    def special(self) -> ModuleType | Any: ...


class BoundBlock(Protocol):
    """A block bound to the variables of one scope."""

    def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RemoteVariable:
    """A variable on a parameter server.

    out_name: the name under which the caller stores it ("": the same name). table_name: the table for lookups of ids.
    """

    endpoint: str
    name: str
    out_name: str = ""
    table_name: str = ""


class Remote(Protocol):
    """The parameter servers of a job. `op` asks (its trainer_id is the caller); the run's policy must allow endpoints.

    Values are LoDTensor or SelectedRows. All methods raise RemoteError if a server refuses or does not answer.
    """

    def send(self, op: Operator, variables: Sequence[tuple[RemoteVariable, Any]]) -> None:
        """Send values; an error may be raised as late as the next barrier."""

    def notify(self, op: Operator, variables: Sequence[tuple[RemoteVariable, Any]]) -> None:
        """Send the number of steps run to servers that count them."""

    def hand_over(self, names: Sequence[str], values: Sequence[Any]) -> bool:
        """Give variables to the process' communicator, which sends them later; False if there is none."""

    def hand_over_barrier(self) -> None:
        """Tell the process' communicator, if there is one, that a step's variables are complete."""

    def send_barrier(self, op: Operator, endpoints: Sequence[str]) -> None:
        """Tell the servers that this step's values are all sent."""

    def announce(self, op: Operator, variables: Sequence[RemoteVariable]) -> None:
        """Announce the variables that `receive` will request next in this step, so that they may come together."""

    def receive(self, op: Operator, variables: Sequence[RemoteVariable], with_barrier: bool = True) -> list[Any]:
        """The values; with_barrier: as of the end of the round, else as they are now."""

    def fetch_barrier(self, op: Operator, endpoints: Sequence[str]) -> None:
        """Tell the servers that this step's values are all fetched."""

    def prefetch(self, op: Operator, requests: Sequence[tuple[RemoteVariable, Any]]) -> list[Any]:
        """Send ids and get the values that servers compute from them: rows of tables."""

    def checkpoint(self, op: Operator, folders: Sequence[tuple[str, str]]) -> None:
        """Tell each endpoint the folder for its part of a table."""


class Ring(Protocol):
    """The ranks of a collective operation, as seen by one of them."""

    rank: int
    size: int

    def all_reduce(self, array: Any, reduction: str = "sum") -> Any: ...
    def reduce(self, array: Any, root: int, reduction: str = "sum") -> Any: ...
    def broadcast(self, array: Any, root: int) -> Any: ...
    def all_gather(self, array: Any) -> Any: ...
    def reduce_scatter(self, array: Any, reduction: str = "sum") -> Any: ...
    def barrier(self) -> None: ...


class Communicators(Protocol):
    """The rings of a run, by ring_id."""

    def identify(self, op: Operator, name: str, endpoints: Sequence[str], rank: int) -> Any: ...
    def join(self, op: Operator, identifier: Any, rank: int, size: int) -> None: ...
    def join_devices(self, op: Operator) -> None: ...
    def ring(self, op: Operator, array: Any = None) -> Ring: ...
    def postpone(self, op: Operator, holder: Any, array: Any) -> bool: ...
    def settle(self, op: Operator) -> None: ...


class Checks(Protocol):
    """Checks of indices that a device makes while the host goes on."""

    def mark(
        self, ctx: OpContext, ids: Any, bounds: tuple[int, int, int | None], message: Callable[[int], str]
    ) -> bool: ...


class Runtime(Protocol):
    """The runtime services for kernels, besides arrays."""

    device: Device
    place: Place
    checks: Checks

    @property
    def remote(self) -> Remote: ...

    def generator(self, seed: int) -> Any: ...
    def bind_block(
        self, block: int, scope: Any, without: Collection[str] = (), only: Collection[Operator] | None = None
    ) -> BoundBlock: ...
    def loop(self, key: Any, describe: Callable[[], Any]) -> Any: ...
    def file_path(self, path: str, op: Operator) -> str: ...
    def serve(self, context: OpContext) -> None: ...
    def talk(self, text: str) -> None: ...


class OpContext:
    """One operator bound to the variables of one scope."""

    __slots__ = ("_settled", "attrs", "info", "inputs", "op", "outputs", "runtime", "scope")

    def __init__(
        self,
        op: Operator,
        info: OpInfo,
        inputs: dict[str, tuple[Any, ...]],
        outputs: dict[str, tuple[Any, ...]],
        scope: Any,
        runtime: Any,
    ) -> None:
        self.op, self.info, self.scope, self.runtime = op, info, scope, runtime
        self.inputs, self.outputs = inputs, outputs
        self._settled: tuple[Any, Any] | None = None

    def settled(self, key: Any, settle: Callable[[], T]) -> T:
        """The result of `settle` for the attributes and `key`: computed again only if the key changes.

        The attributes of a bound operator do not change.
        """
        last = self._settled
        if last is None or last[0] != key:
            last = self._settled = key, settle()
        found: T = last[1]
        return found

    # -- arrays and devices
    @property
    def xp(self) -> Any:
        """The array library of the device: numpy or cupy."""
        return self.runtime.device.xp

    @property
    def np(self) -> Any:
        """numpy, for work on the host."""
        return self.runtime.host.xp

    @property
    def place(self) -> Place:
        """Where this run computes."""
        place: Place = self.runtime.place
        return place

    def add_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows[i]] += values[i], in this order; an array, and row numbers of it on its device."""
        self.runtime.add_rows(total, rows, values)

    def add_at(self, total: Any, key: Any, values: Any) -> None:
        """total[key] += values, where repeated elements are added in order, on every device."""
        self.runtime.device.add_at(total, key, values)

    def sums_at(self, places: Any, values: Any, size: int) -> Any:
        """[size]: the sums of the values (float64) at each of the places [n], added in order, on every device."""
        return self.runtime.device.sums_at(places, values, size)

    def require_within(
        self, ids: Any, high: int, message: Callable[[int], str], *, low: int = 0, ignored: int | None = None
    ) -> None:
        """Fail unless all `ids` but the ignored one are in [low, high): the error has the message for the first that is not.

        A GPU raises it later: before parameters are updated, or at the end of the run. Until then, such an id means some
        other element.
        """
        if self.runtime.checks.mark(self, ids, (low, high, ignored), message):
            return
        outside = (ids < low) | (ids >= high)
        if ignored is not None:
            outside &= ids != ignored
        if outside.any():
            raise self.error(message(int(ids[outside][0])))

    def replace_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows[i]] = values[i], in this order: the last of repeated rows wins. `rows` has one axis."""
        self.runtime.device.replace_rows(total, rows, values)

    def host(self, array: Any) -> Any:
        """The array as a numpy array (no copy on the CPU)."""
        return self.runtime.device.host(array)

    def array(self, values: Any, dtype: Any = None) -> Any:
        """An array on the device from an array, a list or a number (no copy on the CPU if it is already an array)."""
        array = self.runtime.device.array(values)
        return array if dtype is None else array.astype(self.dtype(dtype), copy=False)

    def dtype(self, data_type: Any) -> Any:
        """The array library's dtype for a data type number of the format (a dtype is returned unchanged)."""
        return numpy_dtype(data_type) if isinstance(data_type, int) else data_type

    @property
    def special(self) -> Any:
        """Special functions that numpy lacks: erf."""
        return self.runtime.device.special()

    def generator(self, seed: int = 0) -> Any:
        """A numpy Generator: fresh and repeatable for seed != 0, the run's own for 0. Draws on the host."""
        return self.runtime.generator(seed)

    def random(self, shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
        """Numbers drawn evenly from [0, 1), on the device; they are those of `generator(seed).random` on every device."""
        return self.runtime.device.random(self.runtime.generator(seed), shape, dtype)

    # -- variables
    def has(self, slot: str) -> bool:
        """Whether the slot has a variable with a value."""
        holders = self.inputs.get(slot, ())
        return bool(holders) and holders[0] is not None and holders[0].value is not None

    def wants(self, slot: str) -> bool:
        """Whether the program names a variable for this output slot."""
        return bool(self.outputs.get(slot))

    def value(self, slot: str, index: int = 0) -> Any:
        """The value (LoDTensor, SelectedRows, …) of an input; raises UninitializedError if there is none."""
        holders = self.inputs.get(slot, ())
        if index >= len(holders) or holders[index].value is None:
            raise UninitializedError(f"input {slot}[{index}] of operator {self.op.type} holds no value")
        return holders[index].value

    def lod(self, slot: str, index: int = 0) -> LoD:
        """LoD offsets of an input ([] if it has none)."""
        holders = self.inputs.get(slot, ())
        if index >= len(holders):
            return []
        value = holders[index].value
        return value.offsets if isinstance(value, LoDTensor) else []

    def set_lod(self, slot: str, offsets: Sequence[Sequence[int]], index: int = 0) -> None:
        """Set the LoD of an output, whatever the kernel returns."""
        holders = self.outputs.get(slot, ())
        if index < len(holders):
            holders[index].pending_lod = [[int(o) for o in level] for level in offsets]

    def sequences(self, slot: str, index: int = 0) -> list[int]:
        """The offsets of the last LoD level; raises OperatorError if the input has no LoD."""
        lod = self.lod(slot, index)
        if not lod:
            raise self.error(
                f"input {slot} needs a LoD of at least one level, found none; feed it with sequence lengths"
            )
        return lod[-1]

    def dims_only(self, shape: Sequence[int]) -> LoDTensor:
        """A value that has dimensions but no memory (`XShape` of reshape2)."""
        tensor = LoDTensor()
        tensor.set_dims(shape)
        return tensor

    # -- control flow
    def bind_block(
        self, block: int, scope: Any, without: Collection[str] = (), only: Collection[Operator] | None = None
    ) -> BoundBlock:
        """A sub-block bound to the variables of `scope`, for any number of runs; `without`, `only`: as of `BoundBlock`."""
        bound: BoundBlock = self.runtime.bind_block(block, scope, without, only)
        return bound

    def compiled_loop(self, key: Any, describe: Callable[[], Any]) -> Any:
        """A loop that the engine runs in one call, a `CompiledLoop` (control_flow/compiled.py); None if it does not.

        describe: makes its LoopSpec, the first time that a plan asks by this key.
        """
        return self.runtime.loop((self.op, key), describe)

    def run_block(self, block: int, scope: Any) -> None:
        """Run a sub-block once in `scope`; the values are kept there."""
        self.runtime.bind_block(block, scope).run()

    # -- attributes and errors
    def attr(self, name: str) -> Any:
        """The value of an attribute: the program's, else the declared default."""
        if self.op.has_attr(name):
            return self.op.attr(name)
        spec = self.info.attrs.get(name) or FRAMEWORK_ATTRS[name]
        if spec.required:
            raise self.error(f"lacks the required attribute {name}")
        return spec.default

    def error(self, what: str) -> OperatorError:
        """The error to raise: `what` is the input or attribute, what was expected, what was found, and how to fix it."""
        return OperatorError(f"operator {self.op.type}: {what}")


class InferContext:
    """The context of an inference function: attributes, the number of variables per slot, and errors."""

    __slots__ = ("info", "lookup", "op")

    def __init__(self, op: Operator, info: OpInfo, lookup: Any = None) -> None:
        self.op, self.info, self.lookup = op, info, lookup

    def meta(self, name: str) -> Any:
        """The metadata of a variable by its name (TensorMeta or None); for operators declared raw."""
        return self.lookup(name) if self.lookup is not None else None

    def count(self, slot: str) -> int:
        """How many variables the program names for an output slot."""
        return len(self.op.outputs.get(slot, []))

    def wants(self, slot: str) -> bool:
        """Whether the program names a variable for this output slot."""
        return bool(self.op.outputs.get(slot))

    def declared_dtype(self, slot: str, otherwise: VarType) -> VarType:
        """The data type that the program already declares for an output.

        Paddle keeps the layer's declaration if only the kernel knows the type.
        """
        names = self.op.outputs.get(slot)
        var = self.op.block.find_var_recursive(names[0]) if names else None
        return otherwise if var is None or var.dtype is None else var.dtype

    def attr(self, name: str) -> Any:
        """The value of an attribute: the program's, else the declared default."""
        if self.op.has_attr(name):
            return self.op.attr(name)
        spec = self.info.attrs.get(name) or FRAMEWORK_ATTRS[name]
        return spec.default

    def error(self, what: str) -> OperatorError:
        """The error to raise if the shapes are invalid."""
        return OperatorError(f"operator {self.op.type}: {what}")
