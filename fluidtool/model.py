"""`fluidtool.load(path)`: a program with its parameters, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from fluidtool import locks
from fluidtool.errors import FeedError, FluidError, Hint, Location
from fluidtool.outputs import Outputs
from fluidtool.records import dataclass
from fluidtool.runtime.policy import Policy
from fluidtool.starts import ENGINES, Declared, Origin, Start, found_start, keep_start, origin_of
from fluidtool.tensor import CPUPlace, LoDTensor, Place, SelectedRows, numpy_dtype

if TYPE_CHECKING:
    from fluidtool.io.layout import ModelFiles
    from fluidtool.io.parameters import Value
    from fluidtool.ir import Program, Variable
    from fluidtool.runtime.executor import Executor, Observer
    from fluidtool.runtime.scope import Scope, ScopeVariable, Stock

# A start from the cache (starts.py) opens no file and needs no operator: what these take is imported where they are needed.


@dataclass(slots=True)
class Known:
    """What was found out about a program, for as long as it stays as it is: names by what they are; by feed, the type
    of a value that fitted.
    """

    program: Program
    mutation: int
    names: dict[str, list[str]] = field(default_factory=dict)
    fitting: dict[str, Any] = field(default_factory=dict)


LISTS = frozenset({list, tuple, int, float, bool})


@dataclass(slots=True, repr=False, eq=False)
class Model:
    """A program, its inputs and outputs, and its parameters in a scope.

    A model with a start opens its files when more is asked of it than its names and its outputs.
    """

    _program: Program | None
    _files: ModelFiles | None
    _scope: Scope | None = None
    place: Place = field(default_factory=CPUPlace)
    policy: Policy = field(default_factory=Policy)
    seed: int = 0
    engine: str = "auto"
    precision: str = "float32"
    _start: Start | None = None
    _reopen: Callable[[], ModelFiles] | None = None
    _origin: Origin | None = None  # where the first run leaves a start; None once that cannot be
    _mutation: int = 0  # of the program when it was loaded
    _executor: Executor | None = None
    _known: Known | None = None
    _first: Lock = field(default_factory=locks.lock, init=False)  # of who opens the files, or makes the executor

    @property
    def start(self) -> Start | None:
        """What runs it without opening its files, as long as nobody has asked for them."""
        return self._start

    @property
    def files(self) -> ModelFiles:
        """Its files; raises what `load` raises if they are opened now."""
        files = self._files
        if files is None:
            with self._first:
                files = self._files
                if files is None:
                    assert self._reopen is not None
                    files = self._reopen()
                    self._program, self._files, self._mutation = files.program, files, files.program.mutation
        self._leave_start()
        return files

    def _leave_start(self) -> None:
        """Be an ordinary model from now on, with the parameters in the scope if there has been a run."""
        start, self._start = self._start, None
        if start is not None and start.regions:
            _ = self.executor

    @property
    def program(self) -> Program:
        """Its program."""
        if self._program is None:
            return self.files.program
        return self._program

    @program.setter
    def program(self, program: Program) -> None:
        _ = self.files
        self._program, self._origin = program, None

    @property
    def scope(self) -> Scope:
        """The scope of its parameters, which enter it at the first run."""
        self._leave_start()
        self._origin = None  # parameters that are set there count
        return self._parameters

    @property
    def _parameters(self) -> Scope:
        scope = self._scope
        if scope is None:
            from fluidtool.runtime.scope import Scope

            with self._first:
                scope = self._scope = Scope() if self._scope is None else self._scope
        return scope

    @property
    def fault(self) -> FluidError | None:
        """Why parameters are missing; None if there are all."""
        return None if self._start is not None else self.files.fault

    def with_program(self, program: Program) -> Model:
        """The same files and parameters with another program."""
        return Model(
            program, self.files, self.scope, self.place, self.policy, self.seed, self.engine, self.precision,
            _executor=self._executor,
        )  # fmt: skip

    @property
    def known(self) -> Known:
        """What has been found out about the program as it is now."""
        known = self._known
        if known is None or known.program is not self.program or known.mutation != self.program.mutation:
            known = self._known = Known(self.program, self.program.mutation)
        return known

    def names(self, what: str) -> list[str]:
        """What one of the `FINDERS` finds in the program, computed once until the program changes."""
        names = self.known.names
        if what not in names:
            from fluidtool.feeding import FINDERS

            names[what] = FINDERS[what](self.program)
        return list(names[what])

    @property
    def feeds(self) -> list[str]:
        """The names of the inputs: those of the feed operators, or else variables that are not computed."""
        if (start := self._start) is not None:
            return [each.name for each in start.declared]
        return self.names("fed") or self.names("free")

    @property
    def fetches(self) -> list[str]:
        """The names of the outputs: those of the fetch operators, or else variables that are never read."""
        if (start := self._start) is not None:
            return list(start.fetches)
        return self.names("fetched") or self.names("final")

    def has_variable(self, name: str) -> bool:
        """Whether block 0 of the program has a variable of that name, or blocks around it."""
        if (start := self._start) is not None and any(each.name == name for each in start.declared):
            return True
        return self.program.global_block().has_var(name)

    def declared(self, name: str) -> Declared:
        """What the program declares of a variable of block 0; raises KeyError if there is none."""
        for each in () if self._start is None else self._start.declared:
            if each.name == name:
                return each
        var = self.program.global_block().vars[name]
        dtype, shape = None if var.dtype is None else int(var.dtype), tuple(var.shape) if var.has_shape else None
        return Declared(name, int(var.type), dtype, shape, var.lod_level)

    @property
    def executor(self) -> Executor:
        """The executor of this model, made when first needed; the parameters are in the scope by then."""
        executor = self._executor
        if executor is None:
            _ = self.files
            _ = self._parameters
            with self._first:
                executor = self._executor
                if executor is None:
                    executor = self._executor = self._with_parameters()
        return executor

    def _with_parameters(self) -> Executor:
        """A new executor, with all parameters in the scope."""
        from fluidtool.runtime.executor import Executor
        from fluidtool.runtime.scope import Stock

        executor = Executor(
            self.place, policy=self.policy, seed=self.seed, engine=self.engine, precision=self.precision
        )
        stock = Stock()
        for variable in [self._parameter(name, executor, stock) for name in self.files.parameters]:
            self._parameters.hold(variable)
        return executor

    def _parameter(self, name: str, executor: Executor, stock: Stock) -> ScopeVariable:
        """A parameter as a variable: read when it is needed, where it is needed on the host."""
        from fluidtool.runtime.scope import ScopeVariable, StoredVariable

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
        if (start := self._start) is not None:
            asked = self.precision == start.precision and self.engine in ENGINES and type(self.place) is CPUPlace
            if observer is None and asked and (found := start.run(feed, names)) is not None:
                return Outputs(zip(names, found, strict=True))
            _ = self.files  # opens them
        if any(type(value) in LISTS for value in feed.values()):
            feed = {name: self._as_array(name, value) for name, value in feed.items()}
        self.check_feed(feed, names)
        values = self.executor.run(
            self.program, feed, names, self._parameters, needed_only=True, observer=observer, optional=optional
        )
        if self._origin is not None:
            self._keep_start(names, feed)
        return Outputs((name, value) for name, value in zip(names, values, strict=True) if value is not None)

    def _keep_start(self, names: Sequence[str], feed: Mapping[str, Any]) -> None:
        """Keep a start after the first run, if that was of the loaded program as it is, and all of one region."""
        origin, self._origin = self._origin, None
        program, files = self.program, self.files
        region = self.executor.plan(program, names, True).block(0).sole
        if origin is None or region is None or names != self.fetches or program.mutation != self._mutation:
            return
        if all(name in program.global_block().vars for name in self.feeds):
            keep_start(origin, files, [self.declared(name) for name in self.feeds], names, region, feed)

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
        from fluidtool.io.parameters import persistables
        from fluidtool.io.saving import layout_like, save_model
        from fluidtool.runtime.persistent import values_of

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
        if type(value) not in LISTS:
            return value
        from fluidtool.ir.variable import data_type_name
        from fluidtool.proto.enums import VarType

        var = self.program.global_block().vars.get(name)
        if var is None or var.type != VarType.LOD_TENSOR or var.dtype is None:
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
        from fluidtool.html_table import html_table
        from fluidtool.ir.variable import data_type_name

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
        from fluidtool.runtime.dependencies import names_used

        names = self.fetches if fetch is None else fetch
        steps = self.executor.plan(self.program, names, True).block(0).steps
        used = {name for step in steps for name in names_used(self.program, step.op)} | set(names)
        return [name for name in self.feeds if name in used]

    def check_feed(self, feed: Mapping[str, Any], fetch: Sequence[str] | None = None) -> None:
        """Raise FeedError naming the input, what was expected and what was found."""
        block = self.program.global_block()
        unknown = [name for name in feed if name not in block.vars]
        if unknown:
            from difflib import get_close_matches

            near = get_close_matches(unknown[0], block.vars, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the inputs are {', '.join(self.feeds) or 'none'}"
            text = f"the program has no variable {unknown[0]!r} to feed"
            raise FeedError(text, hint=hint, location=Location(variable=unknown[0]))
        missing = [name for name in self.names("fed") if name not in feed]
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
                from fluidtool.feeding import check_value

                check_value(block.vars[name], value)
                fitting[name] = found

    def describe_inputs(self) -> str:
        """'image float32 (-1, 1, 28, 28), label int64 (-1, 1)'."""
        from fluidtool.feeding import describe_variable

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
    settings: dict[str, Any] = {
        "place": place,
        "policy": Policy() if policy is None else policy,
        "seed": seed,
        "engine": engine,
        "precision": precision,
    }
    origin = None
    if need_parameters and validate:
        origin = origin_of(source, model_filename, params, place, engine, precision)
    start = None if origin is None else found_start(origin, precision)
    if start is not None:
        unchanged = start.require_unchanged

        def reopen() -> ModelFiles:
            unchanged()
            return opened(source, model_filename, params, need_parameters, validate)

        return Model(None, None, **settings, _start=start, _reopen=reopen, _origin=origin)
    if engine != "auto" or precision != "float32":
        from fluidtool.runtime.engines.registry import engine_for

        engine_for(engine, place, precision)
    files = opened(source, model_filename, params, need_parameters, validate)
    return Model(files.program, files, **settings, _origin=origin, _mutation=files.program.mutation)


def opened(source: Any, model_filename: str | None, params: Any, need_parameters: bool, validate: bool) -> ModelFiles:
    """The files of a model, whose operators fit their schemas if they are to be validated."""
    from fluidtool.io.layout import open_model
    from fluidtool.ops.validation import require_valid

    files = open_model(source, model_filename=model_filename, params=params, need_parameters=need_parameters)
    if validate:
        require_valid(files.program, files.program_source)
    return files


def array_type(value: Any) -> tuple[Any, ...] | None:
    """All of an array or a LoDTensor that `check_value` looks at; None for other values."""
    tensor = type(value) is LoDTensor
    array = value.array if tensor else value
    if type(array) is not np.ndarray and (not tensor or array is None):
        return None
    return array.dtype, array.shape, tensor and bool(value.offsets)


def _on_device(value: Any, executor: Executor) -> Any:
    if isinstance(value, LoDTensor):
        return LoDTensor(executor.device.array(value.numpy()), value.lod())
    return SelectedRows(value.row_ids, value.table_height, executor.device.array(value.value))


__all__ = ["Model", "load"]
