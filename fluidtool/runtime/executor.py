"""Executor: feeds in, a plan run, fetches out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluidtool.errors import FeedError, FetchError
from fluidtool.ir import Operator, Program
from fluidtool.ops.concurrency.goroutines import raise_failed
from fluidtool.ops.context import Device
from fluidtool.runtime.engines import device_for, native_library
from fluidtool.runtime.engines.numpy import NUMPY
from fluidtool.runtime.plan import BoundBlock, BoundStep, Plan
from fluidtool.runtime.policy import Policy
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, LoDTensor, LoDTensorArray, Place, SelectedRows

Observer = Callable[[BoundStep, int], None]
PLANS_KEPT = 16


class Runtime:
    """One run: what operator bodies reach through their context."""

    __slots__ = ("_generator", "device", "host", "observer", "place", "plan", "policy", "talk")

    def __init__(
        self,
        plan: Plan,
        place: Place,
        device: Device,
        policy: Policy,
        generator: np.random.Generator,
        talk: Callable[[str], None],
        observer: Observer | None,
    ) -> None:
        self.plan, self.place, self.device, self.policy = plan, place, device, policy
        self.host = NUMPY
        self._generator, self.talk, self.observer = generator, talk, observer

    def generator(self, seed: int) -> np.random.Generator:
        """A repeatable generator for seed != 0, else the run's own."""
        return np.random.default_rng(seed) if seed else self._generator

    def bind_block(self, block: int, scope: Scope) -> BoundBlock:
        """A sub-block bound to `scope`."""
        return BoundBlock(self.plan.block(block), scope, self)

    def file_path(self, path: str, op: Operator) -> str:
        """The path that a file operator may use; raises PolicyError otherwise."""
        return str(self.policy.path(path, op.type))


class Executor:
    """Runs programs at one place. Plans and random state are kept between runs.

    seed != 0 makes random operators without a seed of their own repeatable; else the program's `random_seed` does, and
    without either every process draws anew. engine: 'numpy', 'native' (raises DeviceError where it is not built), or
    'auto', which takes the native engine where it is there and fits.
    """

    def __init__(
        self, place: Place | None = None, *, policy: Policy | None = None, seed: int = 0, engine: str = "auto"
    ) -> None:
        self.place: Place = CPUPlace() if place is None else place
        self.device = device_for(self.place)
        self.policy = Policy() if policy is None else policy
        self.seed = seed
        self.native = native_library(engine, self.place)
        self._plans: WeakKeyDictionary[Program, dict[Any, Plan]] = WeakKeyDictionary()
        self._generators: WeakKeyDictionary[Program, np.random.Generator] = WeakKeyDictionary()

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
    ) -> list[Any]:
        """Run block 0 once and return the fetched values (LoDTensor, SelectedRows or LoDTensorArray), in order.

        Fed values and temporaries live in a scope below `scope` for the time of the run; persistable variables live in
        `scope`. A fetch that is `optional` and has no value after the run gives None. Random operators draw from
        `generator`, or from the one kept for the program. Raises FeedError, FetchError, OperatorError,
        UnsupportedOperatorError.
        """
        plan = self.plan(program, fetch, needed_only)
        local = scope.new_scope()
        try:
            generator = self.generator(program) if generator is None else generator
            runtime = Runtime(plan, self.place, self.device, self.policy, generator, _to_stderr, observer)
            self._feed(program, feed, scope, local)
            with np.errstate(all="ignore"):
                BoundBlock(plan.block(0), local, runtime).run()
            raise_failed(scope)
            return [self._fetch(program, name, local, name in optional) for name in fetch]
        finally:
            local.drop_kids()
            scope.drop_kid(local)

    def plan(self, program: Program, fetch: Sequence[str], needed_only: bool = False) -> Plan:
        """The plan for these fetches: kept from an earlier run unless the program changed since."""
        plans = self._plans.setdefault(program, {})
        key = (program.mutation, tuple(fetch), needed_only)
        plan = plans.get(key)
        if plan is None:
            for old in [k for k in plans if k[0] != program.mutation] or list(plans)[: -PLANS_KEPT + 1]:
                del plans[old]
            plan = plans[key] = Plan(program, tuple(fetch), needed_only, self.native)
        return plan

    def generator(self, program: Program) -> np.random.Generator:
        """What random operators of a program draw from when they have no seed of their own; kept from run to run."""
        found = self._generators.get(program)
        if found is None:
            found = self._generators[program] = self.new_generator(program)
        return found

    def new_generator(self, program: Program) -> np.random.Generator:
        """A generator at the start: seeded by this executor, else by the program, else by chance."""
        return np.random.default_rng(self.seed or program.random_seed or None)

    def _feed(self, program: Program, feed: Mapping[str, Any], scope: Scope, local: Scope) -> None:
        block = program.global_block()
        for name, value in feed.items():
            var = block.vars.get(name)
            target = scope if var is not None and var.persistable else local
            target.var(name).value = self._value(name, value)

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
                f"feed {name}: {error}; rows of different lengths do not make an array, but a LoDTensor "
                "(create_lod_tensor)"
            ) from error
        if array.dtype.kind in "US":
            raise FeedError(f"feed {name} holds text, but tensors hold numbers: {value!r:.60}")
        if array.dtype == object:
            raise FeedError(
                f"feed {name}: rows of different lengths do not make an array; feed a LoDTensor (create_lod_tensor)"
            )
        return LoDTensor(array)

    def _fetch(self, program: Program, name: str, scope: Scope, optional: bool = False) -> Any:
        holder = scope.find_var(name)
        value = holder.value if holder is not None else None
        if value is None and optional:
            return None
        if value is None:
            if any(name in op.output_arg_names for block in program.blocks for op in block.ops):
                return LoDTensor()  # an operator left this output out, as Paddle's kernels do: there is no memory
            raise FetchError(f"cannot fetch {name}: {self._why_not_fetched(program, name)}")
        if isinstance(value, LoDTensor):
            copy = LoDTensor(None if value.array is None else value.array.copy(), value.lod())
            if value.array is None:
                copy.set_dims(value.shape())
            return copy
        return value

    def _why_not_fetched(self, program: Program, name: str) -> str:
        from difflib import get_close_matches

        known = {n for block in program.blocks for n in block.vars}
        near = get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; 'fluidtool inspect --vars' lists what there is"
        return (
            "no operator computes it and nothing was fed" if name in known else "the program has no such variable"
        ) + hint


def _is_numbers(value: Any) -> bool:
    return not any(isinstance(item, (LoDTensor, np.ndarray)) for item in value) and len(value) > 0


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
