"""`fluidtool.load(path)`: a program with its parameters, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from fluidtool import locks
from fluidtool.errors import ArgumentTypeError, FeedError, Hint, Location
from fluidtool.html_table import html_table
from fluidtool.io.inference import feed_names, fetch_names
from fluidtool.io.layout import ModelFiles, open_model
from fluidtool.io.parameters import Value, persistables
from fluidtool.io.saving import layout_like, save_model
from fluidtool.ir import Program, Variable
from fluidtool.ir.dataflow import block_flow
from fluidtool.ir.variable import data_type_name
from fluidtool.ops.validation import require_valid
from fluidtool.outputs import Outputs
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.runtime.dependencies import names_used
from fluidtool.runtime.engines.registry import engine_for
from fluidtool.runtime.executor import Observer
from fluidtool.runtime.persistent import values_of
from fluidtool.runtime.scope import ScopeVariable, Stock, StoredVariable
from fluidtool.tensor import CPUPlace, LoDTensor, LoDTensorArray, Place, SelectedRows, numpy_dtype, var_type_of


@dataclass(slots=True)
class Known:
    """What was found out about a program, for as long as it stays as it is: names by who found them; by feed, the type
    of a value that fitted.
    """

    program: Program
    mutation: int
    names: dict[Callable[[Program], list[str]], list[str]] = field(default_factory=dict)
    fitting: dict[str, Any] = field(default_factory=dict)


LISTS = frozenset({list, tuple, int, float, bool})


@dataclass(slots=True, repr=False)
class Model:
    """A program, its inputs and outputs, and its parameters in a scope."""

    program: Program
    files: ModelFiles
    scope: Scope = field(default_factory=Scope)
    place: Place = field(default_factory=CPUPlace)
    policy: Policy = field(default_factory=Policy)
    seed: int = 0
    engine: str = "auto"
    precision: str = "float32"
    _executor: Executor | None = None
    _known: Known | None = field(default=None, repr=False, compare=False)
    _first: Lock = field(default_factory=locks.lock, init=False, repr=False, compare=False)  # of who makes the executor

    @property
    def known(self) -> Known:
        """What has been found out about the program as it is now."""
        known = self._known
        if known is None or known.program is not self.program or known.mutation != self.program.mutation:
            known = self._known = Known(self.program, self.program.mutation)
        return known

    def names(self, find: Callable[[Program], list[str]]) -> list[str]:
        """What a function finds in the program, computed once until the program changes."""
        found = self.known.names
        if find not in found:
            found[find] = find(self.program)
        return list(found[find])

    @property
    def feeds(self) -> list[str]:
        """The names of the inputs: those of the feed operators, or else variables that are not computed."""
        return self.names(feed_names) or self.names(free_inputs)

    @property
    def fetches(self) -> list[str]:
        """The names of the outputs: those of the fetch operators, or else variables that are never read."""
        return self.names(fetch_names) or self.names(final_outputs)

    @property
    def executor(self) -> Executor:
        """The executor of this model, made when first needed; the parameters are in the scope by then."""
        executor = self._executor
        if executor is None:
            with self._first:
                executor = self._executor
                if executor is None:
                    executor = self._executor = self._with_parameters()
        return executor

    def _with_parameters(self) -> Executor:
        """A new executor, with all parameters in the scope."""
        executor = Executor(
            self.place, policy=self.policy, seed=self.seed, engine=self.engine, precision=self.precision
        )
        stock = Stock()
        for variable in [self._parameter(name, executor, stock) for name in self.files.parameters]:
            self.scope.hold(variable)
        return executor

    def _parameter(self, name: str, executor: Executor, stock: Stock) -> ScopeVariable:
        """A parameter as a variable: read when it is needed, where it is needed on the host."""
        parameters = self.files.parameters
        mapped = parameters.mapped(name) if isinstance(self.place, CPUPlace) else None
        if mapped is not None:
            return StoredVariable(name, mapped, lambda: _on_device(parameters.private(name), executor), stock)
        variable = ScopeVariable(name)
        variable.value = _on_device(parameters.private(name), executor)
        return variable

    def run(
        self,
        feed: Mapping[str, Any],
        fetch: Sequence[str] | None = None,
        *,
        optional: Collection[str] = (),
        observer: Observer | None = None,
    ) -> Outputs:
        """Outputs by name as LoDTensor, SelectedRows or LoDTensorArray; `numpy.asarray` gives a LoDTensor's array.

        feed: arrays or LoDTensors by name; numbers and lists become arrays of the declared data type.
        optional: fetches that are left out if they have no value.
        observer: called in place of each step, which it must run (`fluidtool.runtime.finite` has one).
        Raises FeedError when the feed does not fit the declared inputs, FetchError for names that are not computed.
        """
        names = list(self.fetches if fetch is None else fetch)
        if any(type(value) in LISTS for value in feed.values()):
            feed = {name: self._as_array(name, value) for name, value in feed.items()}
        self.check_feed(feed, names)
        values = self.executor.run(
            self.program, feed, names, self.scope, needed_only=True, observer=observer, optional=optional
        )
        return Outputs((name, value) for name, value in zip(names, values, strict=True) if value is not None)

    def __call__(self, *values: Any, **feed: Any) -> Outputs:
        """The outputs for `model(x)`, `model(image=x)` or `model({"image": x})`; values by position are the inputs in order.

        Raises FeedError for more values than inputs, and what `run` raises.
        """
        if len(values) == 1 and isinstance(values[0], Mapping):
            return self.run({**values[0], **feed})
        if len(values) > len(self.feeds):
            raise FeedError(f"{len(values)} values are given; the inputs are {self.describe_inputs() or 'none'}")
        return self.run({**dict(zip(self.feeds, values, strict=False)), **feed})

    def save(self, path: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Save the program, and the parameters as they are now, in the layout that was loaded; all files or none.

        Raises OutputExistsError, OutputError, and ParameterFileError for a parameter that has no value.
        """
        wanted = persistables(self.program)
        values = values_of(self.scope, wanted, "the model") if self._executor else self._loaded(wanted)
        return save_model(self.program, values, layout_like(self.files, Path(path), bool(values)), overwrite=overwrite)

    def _loaded(self, wanted: Iterable[Variable]) -> dict[str, Value]:
        """The parameters of the files."""
        if self.files.fault is not None:
            raise self.files.fault
        return {var.name: self.files.parameters[var.name] for var in wanted}

    def tensors(self, values: Mapping[str, Any]) -> dict[str, LoDTensor]:
        """Values for inputs as LoDTensors: arrays, LoDTensors, numbers and lists; raises FeedError."""
        found = {}
        for name, value in values.items():
            array = self._as_array(name, value)
            found[name] = array if isinstance(array, LoDTensor) else LoDTensor(np.asarray(array))
        self.check_feed(found, [])
        return found

    def _as_array(self, name: str, value: Any) -> Any:
        """A number or nested list as an array of the declared data type, where it can mean only one."""
        var = self.program.global_block().vars.get(name)
        if type(value) not in LISTS or var is None or var.type != VarType.LOD_TENSOR or var.dtype is None:
            return value
        place = Location(variable=name)
        if var.lod_level:
            hint = "give a LoDTensor: fluidtool.fluid.create_lod_tensor(array, lengths)"
            raise FeedError(
                f"input {name} contains sequences, and a list does not say where they end", hint=hint, location=place
            )
        wanted = numpy_dtype(var.dtype)
        try:
            found = np.array(value)
        except ValueError as error:
            raise FeedError(f"input {name}: the list is not rectangular: {error}", location=place) from error
        if found.size and not np.can_cast(found.dtype, wanted, "same_kind"):
            text = f"input {name} takes {data_type_name(var.dtype)}, found a list of {found.dtype}"
            raise FeedError(text, hint="convert its elements", location=place)
        return found.astype(wanted)

    def __repr__(self) -> str:
        outputs = ", ".join(self.fetches)
        return (
            f"Model({self.files.program_source}: {self.describe_inputs() or 'no inputs'} -> {outputs or 'no outputs'})"
        )

    def _repr_html_(self) -> str:
        variables = self.program.global_block().vars
        rows = []
        for kind, names in (("input", self.feeds), ("output", self.fetches)):
            for name in names:
                var = variables.get(name)
                shape = list(var.shape) if var is not None and var.has_shape else "?"
                rows.append((kind, name, data_type_name(var.dtype) if var is not None else "?", shape))
        count = sum(len(block.ops) for block in self.program.blocks)
        title = f"{self.files.program_source}: {count} operators, {len(self.files.parameters)} parameters"
        return html_table(title, ("", "name", "type", "shape"), rows)

    def needed_inputs(self, fetch: Sequence[str] | None = None) -> list[str]:
        """The inputs that these outputs depend on (all outputs without `fetch`)."""
        names = self.fetches if fetch is None else fetch
        steps = self.executor.plan(self.program, names, True).block(0).steps
        used = {name for step in steps for name in names_used(self.program, step.op)} | set(names)
        return [name for name in self.feeds if name in used]

    def check_feed(self, feed: Mapping[str, Any], fetch: Sequence[str] | None = None) -> None:
        """Raise FeedError naming the input, what was expected and what was found."""
        block = self.program.global_block()
        unknown = [name for name in feed if name not in block.vars]
        if unknown:
            near = get_close_matches(unknown[0], block.vars, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the inputs are {', '.join(self.feeds) or 'none'}"
            text = f"the program has no variable {unknown[0]!r} to feed"
            raise FeedError(text, hint=hint, location=Location(variable=unknown[0]))
        missing = [name for name in self.names(feed_names) if name not in feed]
        if missing:
            needed = set(self.needed_inputs(fetch))
            missing = [name for name in missing if name in needed]
        if missing:
            raise FeedError(
                f"no value for the input {', '.join(missing)}; the inputs are {self.describe_inputs()}",
                hint=Hint(
                    f"feed them, as in {{{missing[0]!r}: array}}",
                    "feed them (--feed NAME=FILE, or --random to try the model)",
                ),
                location=Location(variable=missing[0]),
            )
        fitting = self.known.fitting
        for name, value in feed.items():
            found = array_type(value)
            if found is None or fitting.get(name) != found:
                check_value(block.vars[name], value)
                fitting[name] = found

    def describe_inputs(self) -> str:
        """'image float32 [-1, 1, 28, 28], label int64 [-1, 1]'."""
        block = self.program.global_block()
        return ", ".join(describe_variable(block.vars[name]) for name in self.feeds if name in block.vars)


def load(
    source: Any,
    *,
    model_filename: str | None = None,
    params: Any = None,
    place: Place | None = None,
    policy: Policy | None = None,
    seed: int = 0,
    engine: str = "auto",
    precision: str = "float32",
    need_parameters: bool = True,
    validate: bool = True,
) -> Model:
    """Open a model of any layout: a folder, a program file, a `.pdmodel` prefix, bytes or a file object.

    Parameters are memory-mapped and enter the scope at the first run. engine: the engine on the CPU: 'native', 'numpy' or
    'auto' (docs/native.md). precision: 'float32', or 'bf16' for products and convolutions of 16-bit numbers (native only).
    validate: refuse operators that break their schemas; turn it off to only look at such a program. Raises
    ModelNotFoundError, UnreadableError, ParameterFileError, OperatorError; UsageError for an unknown engine or precision,
    DeviceError when the native engine is requested but not available.
    """
    place = CPUPlace() if place is None else place
    if engine != "auto" or precision != "float32":
        engine_for(engine, place, precision)
    files = open_model(source, model_filename=model_filename, params=params, need_parameters=need_parameters)
    if validate:
        require_valid(files.program, files.program_source)
    return Model(
        files.program,
        files,
        place=place,
        policy=Policy() if policy is None else policy,
        seed=seed,
        engine=engine,
        precision=precision,
    )


def _on_device(value: Any, executor: Executor) -> Any:
    if isinstance(value, LoDTensor):
        return LoDTensor(executor.device.array(value.numpy()), value.lod())
    return SelectedRows(value.row_ids, value.table_height, executor.device.array(value.value))


def describe_variable(var: Variable) -> str:
    """'image float32 [-1, 1, 28, 28]'."""
    shape = str(list(var.shape)) if var.has_shape else "[?]"
    level = f" LoD {var.lod_level}" if var.lod_level else ""
    return f"{var.name} {data_type_name(var.dtype)} {shape}{level}"


def array_type(value: Any) -> tuple[Any, ...] | None:
    """All of an array or a LoDTensor that `check_value` looks at; None for other values."""
    tensor = type(value) is LoDTensor
    array = value.array if tensor else value
    return (array.dtype, array.shape, tensor and bool(value.offsets)) if type(array) is np.ndarray else None


def check_value(var: Variable, value: Any) -> None:
    """Raise FeedError when a value is not of the data type and rank that the variable declares, or not of its sizes.

    A declared size of -1 takes anything; a variable with LoD takes any number of rows.
    """
    if isinstance(value, (LoDTensorArray, SelectedRows, list, tuple)) or var.type != VarType.LOD_TENSOR:
        return
    found = value.numpy().dtype if isinstance(value, LoDTensor) else value.dtype
    try:
        dtype = var_type_of(found)
    except ArgumentTypeError as error:
        text = f"input {var.name} takes {data_type_name(var.dtype)}, found {found}; {error}"
        raise FeedError(text, location=Location(variable=var.name)) from error
    shape = tuple(value.shape()) if isinstance(value, LoDTensor) else tuple(value.shape)
    if var.dtype is not None and dtype != var.dtype:
        raise FeedError(
            f"input {var.name} takes {data_type_name(var.dtype)}, found {data_type_name(dtype)} of shape {list(shape)}",
            hint=f"convert it: array.astype('{data_type_name(var.dtype)}')",
            location=Location(variable=var.name),
        )
    if not var.has_shape:
        return
    declared = var.shape
    rows_free = var.lod_level > 0 or (isinstance(value, LoDTensor) and bool(value.offsets))
    fits = len(declared) == len(shape) and all(
        want < 0 or want == got or (axis == 0 and rows_free)
        for axis, (want, got) in enumerate(zip(declared, shape, strict=True))
    )
    if not fits:
        raise FeedError(
            f"input {var.name} takes shape {list(declared)} (-1: any size), found {list(shape)}",
            hint="reshape it",
            location=Location(variable=var.name),
        )


def free_inputs(program: Program) -> list[str]:
    """The non-persistable variables of block 0 that are read before they are written, in order of use."""
    block = program.global_block()
    flow = block_flow(block)
    names: dict[str, None] = {}
    for position, op in enumerate(block.ops):
        for name in _in_order(op.input_arg_names, flow.effects[position].reads):
            var = block.vars.get(name)
            if var is None or var.persistable or flow.reads[position][name].number != 0 or name in names:
                continue
            if name not in op.output_arg_names or var.need_check_feed:
                names[name] = None
    return list(names)


def final_outputs(program: Program) -> list[str]:
    """The variables of block 0 that are written last and never read after, in order."""
    block = program.global_block()
    flow = block_flow(block)
    names = []
    for position in range(len(block.ops)):
        for name in flow.writes[position]:
            var = block.vars.get(name)
            if (
                var is not None
                and not var.persistable
                and var.type == VarType.LOD_TENSOR
                and flow.is_last_write(position, name)
                and not flow.consumers(position, name)
                and not name.endswith(("XShape", ".tmp_xshape"))
            ):
                names.append(name)
    return names


def _in_order(names: Iterable[str], also: Iterable[str]) -> list[str]:
    first = [name for name in names if name in also]
    return first + sorted(set(also) - set(first))


__all__ = ["Model", "load"]
