"""Executor: feed, run a plan, fetch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from fluidtool import locks
from fluidtool.errors import LIST_VARIABLES, FeedError, FetchError, Location
from fluidtool.ir import Operator, Program
from fluidtool.ops.concurrency import HOLDER
from fluidtool.ops.context import Device, OpContext, Remote
from fluidtool.runtime.block import BoundBlock
from fluidtool.runtime.checks import Checks
from fluidtool.runtime.engines.numpy import NUMPY
from fluidtool.runtime.engines.registry import device_for, engine_for
from fluidtool.runtime.ownership import is_alone
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.remote import Servers
from fluidtool.runtime.scope import Scope
from fluidtool.runtime.step import BoundStep
from fluidtool.runtime.straight import run_straight
from fluidtool.runtime.transfer import may_be_elsewhere, move_here
from fluidtool.tensor import CPUPlace, LoDTensor, LoDTensorArray, Place, SelectedRows

if TYPE_CHECKING:
    from fluidtool.ops.control_flow.compiled import CompiledLoop, LoopSpec
    from fluidtool.runtime.communicators import Communicators

Observer = Callable[[BoundStep, int], None]
PLANS_KEPT = 16
_JOINING = locks.lock()  # held while the rings of a scope are created


class Runtime:
    """One run: what kernels reach through their context."""

    __slots__ = (
        "_communicators",
        "_generator",
        "_scope",
        "checks",
        "device",
        "fed_ids",
        "host",
        "observer",
        "place",
        "plan",
        "policy",
        "remote",
        "same_arrays",
        "talk",
    )

    place: Place
    device: Device
    checks: Checks
    policy: Policy
    remote: Remote
    observer: Observer | None
    fed_ids: Mapping[str, tuple[Any, Any]]
    same_arrays: object  # this run, in which arrays keep their numbers; None if a script's functions may change them
    _scope: Scope | None
    _generator: Callable[[], np.random.Generator] | None
    _communicators: Communicators | None

    def __init__(self, plan: Plan) -> None:
        self.plan, self.host, self.talk = plan, NUMPY, _to_stderr
        self.rest()

    def begin(
        self,
        executor: Executor,
        scope: Scope,
        generator: Callable[[], np.random.Generator],
        observer: Observer | None,
        communicators: Communicators | None,
        fed_ids: Mapping[str, tuple[Any, Any]],
    ) -> None:
        """Start a run in `scope`. communicators: None for those of the scope, looked up on first use.

        fed_ids: by name, whole numbers on a GPU that were fed from the host, and the array there.
        """
        if not hasattr(self, "checks") or self.device is not executor.device:
            self.checks = Checks(executor.device)
        self.place, self.device, self.policy = executor.place, executor.device, executor.policy
        self.remote = executor.servers
        self._scope, self._generator, self.observer = scope, generator, observer
        self._communicators, self.fed_ids = communicators, fed_ids
        self.same_arrays = None if self.plan.calls_python else object()

    def rest(self) -> None:
        """Release what belongs to one run."""
        self.fed_ids = {}
        self.same_arrays = None
        self._scope = self._generator = self.observer = self._communicators = None

    @property
    def scope(self) -> Scope:
        """The scope of the run."""
        assert self._scope is not None
        return self._scope

    @property
    def communicators(self) -> Communicators:
        """The rings that programs joined in this scope."""
        if self._communicators is None:
            self._communicators = communicators_of(self.scope, self.place, self.policy)
        return self._communicators

    def give_up(self, error: BaseException) -> None:
        """After a failure: other ranks that wait for this one get an error, if it has communicated with them."""
        if self._communicators is not None:
            self._communicators.abort(f"another rank failed: {error}")

    def generator(self, seed: int) -> np.random.Generator:
        """A repeatable generator for seed != 0, else the generator of the run."""
        if seed:
            return np.random.default_rng(seed % 2**64)  # negative ones are seeds as well
        assert self._generator is not None
        return self._generator()

    def add_rows(self, total: Any, rows: Any, values: Any) -> None:
        """total[rows[i]] += values[i], in this order, by the engine if it can."""
        engine = self.plan.engine
        if engine is not None and engine.add_rows(total, rows, values):
            return
        self.device.add_at(total, rows, values)

    def bind_block(
        self, block: int, scope: Scope, without: Collection[str] = (), only: Collection[Operator] | None = None
    ) -> BoundBlock:
        """A sub-block bound to `scope`; `without`, `only`: as of `BoundBlock`."""
        return BoundBlock(self.plan.block(block), scope, self, without=without, only=only)

    def loop(self, key: Any, describe: Callable[[], LoopSpec]) -> CompiledLoop | None:
        """A loop that the engine runs in one call; None where it does not, or where somebody looks at every step."""
        engine = self.plan.engine
        compiler = None if engine is None or self.observer is not None else engine.loops
        if compiler is None:
            return None
        loops = self.plan.loops
        if key not in loops:
            loops[key] = compiler.compile(describe())
        return loops[key]

    def file_path(self, path: str, op: Operator) -> str:
        """The path that a file operator may use; raises PolicyError otherwise."""
        return str(self.policy.path(path, op.type))

    def serve(self, context: OpContext) -> None:
        """Run the parameter server that an operator describes; returns when the job has finished."""
        from fluidtool.distribute.pserver.serving import serve_parameters

        serve_parameters(context)


class Executor:
    """Runs programs at one place. Plans and random state are kept between runs.

    seed != 0 makes random operators without a seed repeatable; else the program's `random_seed` does;
    without either, every process draws different numbers. engine: 'numpy'; 'native' (raises DeviceError if it is not built);
    'auto', which uses the native engine if it is available and applies; 'onnxruntime' and 'openvino', which run the regions
    that they support (raise DeviceError if not installed). precision: 'bf16' makes the native engine round the operands of
    products and convolutions to bfloat16 (docs/native.md; raises DeviceError if not supported).
    servers: connections to parameter servers, shared with another executor of the same trainer.
    """

    def __init__(
        self,
        place: Place | None = None,
        *,
        policy: Policy | None = None,
        seed: int = 0,
        engine: str = "auto",
        precision: str = "float32",
        servers: Servers | None = None,
    ) -> None:
        self.place: Place = CPUPlace() if place is None else place
        self.device = device_for(self.place)
        self.policy = Policy() if policy is None else policy
        self.seed = seed
        self.engine = engine_for(engine, self.place, precision)
        self.servers = Servers(self.policy) if servers is None else servers
        self._plans: WeakKeyDictionary[Program, dict[Any, Plan]] = WeakKeyDictionary()
        self._generators: WeakKeyDictionary[Program, np.random.Generator] = WeakKeyDictionary()
        self._scopes: WeakSet[Scope] = WeakSet()
        self._lock = locks.lock()  # held while plans and generators are created

    def run(
        self,
        program: Program,
        feed: Mapping[str, Any],
        fetch: Sequence[str],
        scope: Scope,
        *,
        needed_only: bool = False,
        observer: Observer | None = None,
        optional: Collection[str] = (),
        generator: np.random.Generator | None = None,
        communicators: Communicators | None = None,
    ) -> list[Any]:
        """Run block 0 once and return the fetched values (LoDTensor, SelectedRows or LoDTensorArray), in order.

        Fed values and temporaries live in a child of `scope` during the run; persistable variables live in
        `scope`. An `optional` fetch without a value after the run gives None. Random operators draw from
        `generator`, by default the one kept for the program. Collective operators use `communicators`, else the scope's.
        Raises FeedError, FetchError, OperatorError, UnsupportedOperatorError, DeviceError for a GPU that has failed.
        """
        plan = self.plan(program, fetch, needed_only)
        try:
            if observer is None:
                repeat = None
                if self.device is not NUMPY:  # where runs go on before anybody knows whether ids were in range
                    repeat = partial(self._repeat, program, plan, fetch, scope, optional, generator, communicators)
                values = run_straight(plan, feed, scope, self.device, not may_be_elsewhere(), repeat)
                if values is not None:
                    _raise_failed(scope)
                    return values
            with self.device.active():
                return self._run_steps(program, plan, feed, fetch, scope, observer, optional, generator, communicators)
        except RuntimeError as error:
            failure = self.device.failure(error)
            if failure is None:
                raise
            raise failure from error

    def _repeat(
        self,
        program: Program,
        plan: Plan,
        fetch: Sequence[str],
        scope: Scope,
        optional: Collection[str],
        generator: np.random.Generator | None,
        communicators: Communicators | None,
        feed: Mapping[str, Any],
    ) -> None:
        """Run a feed once more, one step after another, for the error of the operator that fails."""
        with self.device.active():
            self._run_steps(program, plan, feed, fetch, scope, None, optional, generator, communicators)

    def _run_steps(
        self,
        program: Program,
        plan: Plan,
        feed: Mapping[str, Any],
        fetch: Sequence[str],
        scope: Scope,
        observer: Observer | None,
        optional: Collection[str],
        generator: np.random.Generator | None,
        communicators: Communicators | None,
    ) -> list[Any]:
        """Run the plan step by step, its regions in one."""
        fed = self._fed(program, feed, scope)
        block = plan.wake(scope, fed) if observer is None else None
        local = scope.new_scope() if block is None else block.scope
        try:

            def own() -> np.random.Generator:  # most programs draw nothing, and numpy.random is slow to import
                return self.generator(program) if generator is None else generator

            self._scopes.add(scope.root())
            for name, value in fed.items():
                local.var(name).value = value
            if block is None:
                block = BoundBlock(plan.block(0), local, Runtime(plan), plan.bindings(scope))
            if may_be_elsewhere():
                move_here(block.others if observer is None else block.bindings.holders.values(), self.device)
            ids = {} if self.device is NUMPY else ids_of_host(feed, fed)
            block.runtime.begin(self, scope, own, observer, communicators, ids)
            try:
                with np.errstate(all="ignore"):
                    block.run()
                    block.runtime.checks.settle()
            except BaseException as error:
                block.runtime.checks.forget()
                block.runtime.give_up(error)
                raise
            self.servers.flush()
            _raise_failed(scope)
            results = [self._fetch(program, name, local, name in optional) for name in fetch]
        finally:
            local.drop_kids()
            scope.drop_kid(local)
        if observer is None:
            plan.rest(block, scope)
        return results

    def plan(self, program: Program, fetch: Sequence[str], needed_only: bool = False) -> Plan:
        """The plan for these fetches: from an earlier run unless the program has changed."""
        key = (program.mutation, tuple(fetch), needed_only)
        plans = self._plans.get(program)
        plan = None if plans is None else plans.get(key)
        return self._new_plan(program, key) if plan is None else plan

    def _new_plan(self, program: Program, key: tuple[int, tuple[str, ...], bool]) -> Plan:
        """The plan for this key, compiled unless another thread has done so meanwhile."""
        with self._lock:
            plans = self._plans.setdefault(program, {})
            plan = plans.get(key)
            if plan is None:
                plan = Plan(program, *key[1:], self.engine)
                for old in [k for k in plans if k[0] != key[0]] or list(plans)[: -PLANS_KEPT + 1]:
                    del plans[old]
                plans[key] = plan
            return plan

    def generator(self, program: Program) -> np.random.Generator:
        """The generator for random operators of a program without a seed; kept across runs."""
        found = self._generators.get(program)
        if found is None:
            with self._lock:
                found = self._generators.get(program)
                if found is None:
                    found = self._generators[program] = self.new_generator(program)
        return found

    def new_generator(self, program: Program) -> np.random.Generator:
        """A new generator, with the seed of this executor, else of the program, else a random one."""
        return np.random.default_rng(self.seed or program.random_seed or None)

    def close(self) -> None:
        """Tell the parameter servers that this trainer has finished (as Paddle's Executor.close), and leave the rings that
        programs joined in the scopes where they ran. Raises RemoteError.
        """
        for scope in self._scopes:
            if scope.communicators is not None:
                scope.communicators.close()
                scope.communicators = None
        self.servers.complete()

    def _fed(self, program: Program, feed: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
        """The feed as values of the engine, without persistable variables, which go into the scope."""
        block, values = program.global_block(), {}
        for name, value in feed.items():
            var = block.vars.get(name)
            if var is not None and var.persistable:
                scope.var(name).value = self._value(name, value)
            else:
                values[name] = self._value(name, value)
        return values

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, LoDTensor):
            return LoDTensor(None if value.array is None else self.device.array(value.array), value.lod())
        if isinstance(value, SelectedRows):
            return SelectedRows(value.row_ids, value.table_height, self.device.array(value.value))
        if isinstance(value, (LoDTensorArray, list, tuple)) and not _is_numbers(value):
            return LoDTensorArray(self._value(name, item) for item in value)
        try:
            array = self.device.array(value)
        except ValueError as error:
            raise FeedError(
                f"feed {name}: {error}; rows of different lengths need a LoDTensor (create_lod_tensor)"
            ) from error
        if array.dtype.kind in "US":
            raise FeedError(f"feed {name} is text, but tensors hold numbers: {value!r:.60}")
        if array.dtype == object:
            raise FeedError(f"feed {name}: rows have different lengths; feed a LoDTensor (create_lod_tensor)")
        return LoDTensor(array)

    def _fetch(self, program: Program, name: str, scope: Scope, optional: bool = False) -> Any:
        holder = scope.find_var(name)
        value = holder.value if holder is not None else None
        if value is None and optional:
            return None
        if value is None:
            if any(name in op.output_arg_names for block in program.blocks for op in block.ops):
                return LoDTensor()  # an operator did not compute this output, as in Paddle: it has no memory
            raise _not_fetched(program, name)
        if isinstance(value, LoDTensor):
            if value.array is None:
                empty = LoDTensor(None, value.lod())
                empty.set_dims(value.shape())
                return empty
            is_free = scope.find_local_var(name) is holder and is_alone(value)  # it would go with the scope of the run
            return LoDTensor(value.array if is_free else value.array.copy(), value.lod())
        return value


def ids_of_host(feed: Mapping[str, Any], fed: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By name, the whole numbers that were fed from the host: their array on the GPU, and the one that was fed."""
    found = {}
    for name, value in fed.items():
        given = feed[name].array if isinstance(feed[name], LoDTensor) else feed[name]
        if type(given) is np.ndarray and given.dtype.kind == "i" and isinstance(value, LoDTensor):
            found[name] = value.array, given
    return found


def _not_fetched(program: Program, name: str) -> FetchError:
    from difflib import get_close_matches

    known = {n for block in program.blocks for n in block.vars}
    near = get_close_matches(name, known - {name}, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else LIST_VARIABLES
    why = "no operator computes it and nothing was fed" if name in known else "the program has no such variable"
    return FetchError(f"cannot fetch {name}: {why}", hint=hint, location=Location(variable=name))


def communicators_of(scope: Scope, place: Place, policy: Policy) -> Communicators:
    """The rings that a scope shares with its parents and children."""
    from fluidtool.runtime.communicators import Communicators

    with _JOINING:
        root = scope.root()
        if root.communicators is None:
            root.communicators = Communicators(place, policy)
        return root.communicators


def _is_numbers(value: Any) -> bool:
    return not any(isinstance(item, (LoDTensor, np.ndarray)) for item in value) and len(value) > 0


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")


def _raise_failed(scope: Scope) -> None:
    """Raise the errors of go blocks, if the program has any."""
    if scope.find_var(HOLDER) is not None:
        from fluidtool.ops.concurrency.goroutines import raise_failed

        raise_failed(scope)
