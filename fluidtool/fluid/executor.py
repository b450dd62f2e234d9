"""`fluid.Executor` and the global scope, on top of `fluidtool.runtime`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fluidtool import runtime
from fluidtool.errors import ArgumentTypeError, AssertedError, ClosedError, FeedError, FetchedLoDError, with_short_names
from fluidtool.fluid.compiler import CompiledProgram
from fluidtool.fluid.dataset_runs import FetchHandler, run_from_dataset
from fluidtool.fluid.fetched import fetched_array
from fluidtool.fluid.framework import default_main_program
from fluidtool.fluid.places import as_place
from fluidtool.fluid.profiler import active_observer
from fluidtool.fluid.pruning import PrunedPrograms, Runnable, cache_key, pruned, split_optimizers, without_pruned
from fluidtool.io.inference import feed_names, fetch_names
from fluidtool.ir import Operator, Program, Variable
from fluidtool.ir.variable import data_type, data_type_name
from fluidtool.proto.enums import VarType
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, LoDTensor, Place, numpy_dtype, var_type_of


class _Current:
    scope = Scope()


def global_scope() -> Scope:
    """The scope that runs use by default."""
    return _Current.scope


def switch_scope(scope: Scope) -> Scope:
    """Set the global scope and return the previous one; raises ArgumentTypeError unless it is a Scope."""
    if not isinstance(scope, Scope):
        raise ArgumentTypeError(f"a run takes its variables from a Scope, found {type(scope).__name__}")
    old = _Current.scope
    _Current.scope = scope
    return old


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Within the block `scope` is the global scope."""
    old = switch_scope(scope)
    try:
        yield
    finally:
        switch_scope(old)


def as_numpy(value: Any) -> Any:
    """A fetched value as numpy: LoDTensor (without LoD) -> FetchedArray, a list item by item; others unchanged."""
    if isinstance(value, LoDTensor):
        if value.offsets:
            raise FetchedLoDError(
                "Some of your fetched tensors hold LoD information. They can not be completely cast to Python ndarray. "
                "Please set the parameter 'return_numpy' as 'False' to return LoDTensor itself directly."
            )
        return fetched_array(value.numpy()) if value.is_initialized() else None
    if isinstance(value, list):
        return [as_numpy(item) for item in value]
    return value


def fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """The value of a variable of a scope (persistable ones stay there); raises AssertedError if it does not exist."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"fetch_var takes a name, found {type(name).__name__}")
    var = (global_scope() if scope is None else scope).find_var(name)
    if var is None:
        raise AssertedError(
            f"Cannot find {name} in scope. Perhaps you need to make the variable persistable by using "
            "var.persistable = True in your program."
        )
    return as_numpy(var.value) if return_numpy else var.value


_fetch_var = fetch_var
_switch_scope = switch_scope


class Executor:
    """Runs programs at one place (arguments as in Paddle 1.8.5)."""

    def __init__(self, place: Place | str | None = None, *, policy: Policy | None = None, seed: int = 0) -> None:
        place = None if place is None else as_place(place)
        policy = Policy(endpoints=None) if policy is None else policy  # a script's own program may contact any endpoint
        self._runtime = runtime.Executor(place, policy=policy, seed=seed)
        self.place = self._runtime.place
        self._closed = False
        self._pruned = PrunedPrograms()

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        fetch_list: Sequence[Any] | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run block 0 of `program` once and return the values of `fetch_list`.

        feed: ndarray, LoDTensor, SelectedRows or a list for a LoDTensorArray, by name. Without fetch_list, the program's
        own fetch operators select the results. A CompiledProgram runs on all its devices: a dict is split over them, a
        list has one dict per device; results are merged, or listed by device if return_merged is not set.
        use_prune leaves out what neither the fetches nor an optimizer need; what `minimize` returned in fetch_list leaves
        out all other optimizers as well.
        Raises FeedError, FetchError, OperatorError.
        """
        if self._closed:
            raise ClosedError("Attempted to use a closed Executor", hint="make a new one")
        if program is None:
            program = default_main_program()
        if not isinstance(program, (Program, CompiledProgram)):
            raise ArgumentTypeError(f"Executor requires Program as its Parameter. But you passed in {type(program)}")
        fetch_list, optimizers = split_optimizers(fetch_list)
        if use_prune or optimizers:
            program = self._pruned_program(program, feed, fetch_list, optimizers)
            feed = without_pruned(program, feed)
        if isinstance(program, CompiledProgram):
            return self._run_compiled(program, feed, fetch_list, scope, return_numpy, return_merged)
        feed = _only_feed(feed)
        names = fetched_names(fetch_list) or fetch_names(program)
        feed = with_arrays(program, feed)
        check_feed(program, feed)
        values = self._runtime.run(
            program,
            feed,
            names,
            global_scope() if scope is None else scope,
            observer=active_observer(),
        )
        values = [_fetched(value) for value in values]
        return [as_numpy(value) for value in values] if return_numpy else values

    def _pruned_program(
        self, program: Runnable, feed: Any, fetch_list: Sequence[Any], optimizers: list[Operator]
    ) -> Runnable:
        """The pruned copy of a program, made when it runs first."""
        names = fetched_names(fetch_list)
        key = cache_key(program, feed, names, optimizers)
        return self._pruned.get(program, key, lambda: self._prune_program(program, feed, names, optimizers))

    def _prune_program(
        self, program: Runnable, feed: Any, fetch_list: Sequence[str], optimize_ops: list[Operator]
    ) -> Runnable:
        """A copy of the program with what these fetches and optimizers need."""
        copy = pruned(program, feed, fetch_list, optimize_ops)
        return program.with_program(copy) if isinstance(program, CompiledProgram) else copy

    def _run_compiled(
        self,
        compiled: CompiledProgram,
        feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        fetch_list: Sequence[Any] | None,
        scope: Scope | None,
        return_numpy: bool,
        return_merged: bool,
    ) -> list[Any]:
        feed = {} if feed is None else feed
        if not isinstance(feed, (Mapping, list, tuple)):
            raise ArgumentTypeError(f"feed requires dict or list as its Parameter. But you passed in {type(feed)}")
        feed = _each(feed, lambda one: with_arrays(compiled.program, one))
        devices = len(compiled.devices(self.place))
        for one in [feed] if isinstance(feed, Mapping) else feed:
            if isinstance(one, Mapping):
                check_feed(compiled.program, one, devices if one is feed else 1)
        names = fetched_names(fetch_list) or fetch_names(compiled.program)
        scope = global_scope() if scope is None else scope
        values = compiled.run(self._runtime, feed, names, scope, return_merged, active_observer())
        values = [[_fetched(v) for v in value] if type(value) is list else _fetched(value) for value in values]
        return [as_numpy(value) for value in values] if return_numpy else values

    def train_from_dataset(
        self,
        program: Program | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Any] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run all operators of `program` for every mini-batch of an InMemoryDataset or QueueDataset.

        After each `print_period` batches the variables of fetch_list are written to stdout, each with its text of
        fetch_info. thread: how many readers take turns (0: the data set's setting). debug has no effect here.
        Raises UsageError, UnreadableError for a line that is not a sample, OperatorError.
        """
        if self._closed:
            raise ClosedError("Attempted to use a closed Executor", hint="make a new one")
        run_from_dataset(
            self._runtime,
            default_main_program() if program is None else program,
            dataset,
            global_scope() if scope is None else scope,
            thread=thread,
            fetch_list=fetch_list,
            fetch_info=fetch_info,
            print_period=print_period,
            fetch_handler=fetch_handler,
            observer=active_observer(),
        )

    # As in Paddle: only pushes to parameter servers are left out, so a program that trains continues to train.
    infer_from_dataset = train_from_dataset

    def as_lodtensor(self, data: Any) -> LoDTensor:
        """A LoDTensor of an array, at this executor's place; lists are refused, they may need a LoD."""
        return _as_lodtensor(data, self.place)

    def to_device(self, array: Any) -> Any:
        """The array at this executor's place."""
        return self._runtime.device.array(array)

    def generators(self, program: Program | CompiledProgram, scope: Scope | None = None) -> list[np.random.Generator]:
        """The random generators for a program, one per device; kept across runs."""
        if isinstance(program, CompiledProgram):
            return program.generators(self._runtime, global_scope() if scope is None else scope)
        return [self._runtime.generator(program)]

    def device_scopes(self, program: Program | CompiledProgram, scope: Scope | None = None) -> list[Scope]:
        """The scope of each device; all but the first hold only per-device variables (statistics of batch_norm)."""
        scope = global_scope() if scope is None else scope
        return program.scopes(self._runtime, scope) if isinstance(program, CompiledProgram) else [scope]

    def close(self) -> None:
        """Tell parameter servers that this trainer has finished, and release plans; the executor cannot run any more."""
        if not self._closed:
            self._closed = True
            self._runtime.close()


def _only_feed(feed: Any) -> dict[str, Any]:
    if isinstance(feed, (list, tuple)):
        if len(feed) != 1:
            raise AssertedError(
                f"Not compiled with data parallel: one program takes one dict of values, found {len(feed)}"
            )
        feed = feed[0]
    if feed is not None and not isinstance(feed, Mapping):
        raise ArgumentTypeError(f"feed requires dict as its Parameter. But you passed in {type(feed)}")
    return dict(feed or {})


def _fetched(value: Any) -> Any:
    """Paddle returns an empty tensor without memory, with dimensions [0]."""
    if isinstance(value, LoDTensor) and value.is_initialized() and 0 in value.shape():
        return LoDTensor(None, value.lod())
    return value


def fetched_names(fetch_list: Any) -> list[str]:
    """The names of a fetch list; what `Optimizer.minimize` returned has none."""
    return [fetch_name(item) for item in split_optimizers(fetch_list)[0]]


def fetch_name(item: Any) -> str:
    """The name of an entry of a fetch list: a Variable, a name, or anything with a name."""
    if isinstance(item, str):
        return item
    if isinstance(item, Variable) or hasattr(item, "name"):
        return str(item.name)
    raise ArgumentTypeError(f"The item in fetch_list should be str or Variable, found {type(item).__name__}: {item!r}")


def _each(feed: Any, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    """A feed of one or several devices, with each dict changed."""
    if isinstance(feed, Mapping):
        return change(feed)
    return [change(one) if isinstance(one, Mapping) else one for one in feed]


def with_arrays(program: Program, feed: Mapping[str, Any]) -> dict[str, Any]:
    """The feed, where a number is an array of one element in the data type of its variable (Paddle 1.8.5 executor.py)."""
    block = program.global_block()
    return {
        name: _as_lodtensor(value, CPUPlace(), block.vars[name].dtype)
        if _is_number(value) and name in block.vars
        else value
        for name, value in feed.items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.generic))


def _as_lodtensor(data: Any, place: Place, dtype: Any = None) -> LoDTensor:
    """A LoDTensor of an array, or of a number in a data type; raises AssertedError for a number without one.

    Lists are refused, they may need a LoD.
    """
    if isinstance(data, list):
        raise ArgumentTypeError(
            "Some of your feed data hold LoD information. They can not be completely cast from a list of Python "
            "ndarray to LoDTensor. Please convert data to LoDTensor directly before feeding the data."
        )
    if _is_number(data):
        if dtype is None:
            raise AssertedError("dtype should be given when casting python scalar to tensor")
        data = np.array([data]).astype(numpy_dtype(data_type(dtype)))
    tensor = LoDTensor()
    tensor.set(np.asarray(data), place)
    return tensor


def check_feed(program: Program, feed: Mapping[str, Any], devices: int = 1) -> None:
    """Raise FeedError if a fed value contradicts a variable that requests the check; warn about unknown names.

    devices: among how many the rows are divided.
    """
    block = program.global_block()
    missing = [name for name in feed_names(program) if name not in feed]
    if missing:
        raise FeedError(f"the program feeds {', '.join(feed_names(program))}, but {', '.join(missing)} got no value")
    for name, value in feed.items():
        var = block.vars.get(name)
        if var is None:
            text = f"The variable {name} is not found in program. It is not declared or is pruned."
            warnings.warn(with_short_names(text), stacklevel=3)
        elif var.need_check_feed:
            _check_value(var, value, devices)


def _check_value(var: Variable, value: Any, devices: int) -> None:
    if isinstance(value, (list, tuple, str)) or var.type != VarType.LOD_TENSOR:
        return
    dtype = value.dtype() if isinstance(value, LoDTensor) else var_type_of(np.asarray(value).dtype)
    for shape in _shapes_on_devices(value, devices):
        if not _fits(shape, var.shape):
            raise FeedError(
                f"The fed Variable {var.name!r} should have dimensions = {len(var.shape)}, shape = {var.shape}, "
                f"but received fed shape {list(shape)} on each device"
            )
    if var.dtype is not None and dtype != var.dtype:
        raise FeedError(
            f"The data type of fed Variable {var.name!r} must be {data_type_name(var.dtype)!r}, "
            f"but received {data_type_name(dtype)!r}; convert it with array.astype"
        )


def _shapes_on_devices(value: Any, devices: int) -> Iterator[tuple[int, ...]]:
    """The shapes of the first device's part and of the last one's; rows in sequences count as -1 (Paddle 1.8.5 pybind.cc)."""
    shape = tuple(value.shape() if isinstance(value, LoDTensor) else np.shape(value))
    if not shape:
        yield shape
    elif isinstance(value, LoDTensor) and value.offsets:
        yield (-1, *shape[1:])
    else:
        rows = -(-shape[0] // devices)
        yield (rows, *shape[1:])
        if rows and shape[0] % rows:
            yield (shape[0] % rows, *shape[1:])


def _fits(shape: tuple[int, ...], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(min(w, s) < 0 or w == s for w, s in zip(declared, shape, strict=True))
