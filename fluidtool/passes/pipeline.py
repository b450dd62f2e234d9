"""A row of passes over one program: planned from names, run in the order given, and what each did.

    plan = plan_passes(["fuse-batch-norm", "memory-optimize"])
    after, scope, stages = plan.run(program, scope, keep=["probability"])

The program and the scope that are given stay as they are. `comparison.py` beside this one runs the two and compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from importlib import import_module
from typing import NamedTuple

from fluidtool.errors import FluidError, Hint, ProgramError
from fluidtool.ir import Program
from fluidtool.ir.reuse import restore_names, shares_names
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ops.validation import require_valid
from fluidtool.passes.catalogue import INFERENCE_PASSES, InferencePass
from fluidtool.passes.findings import Finding
from fluidtool.passes.result import Decision, PassResult
from fluidtool.passes.verify import verify
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import LoDTensor

ALL_INFERENCE, MEMORY_OPTIMIZE, RELEASE_MEMORY = "all-inference", "memory-optimize", "release-memory"
TRAINS = int(OpRole.Backward) | int(OpRole.Optimize)
ROUNDS = 10
Run = Callable[[Program, Scope, Collection[str]], PassResult]


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """One pass with its options: whether results stay bit-equal, and whether it is for inference programs only.

    left_out: the rewrites that a name for several, such as `all-inference`, does not mean.
    """

    name: str
    run: Run
    exact: bool
    inference: bool
    left_out: tuple[InferencePass, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """What one pass did: its decisions, the number of operators before and after it, and the rewrites it left out."""

    name: str
    result: PassResult
    before: int
    after: int
    left_out: tuple[InferencePass, ...] = ()


class Outcome(NamedTuple):
    """The program after all passes, the scope with its parameters, and what each pass did."""

    program: Program
    scope: Scope
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class PassPlan:
    """Passes in the order in which they run."""

    passes: tuple[PlannedPass, ...]

    @property
    def exact(self) -> bool:
        """Whether every pass keeps results bit-equal."""
        return all(planned.exact for planned in self.passes)

    @property
    def for_inference(self) -> bool:
        """Whether a pass is for inference programs only, and needs the values of parameters."""
        return any(planned.inference for planned in self.passes)

    def run(self, program: Program, scope: Scope, keep: Collection[str] = ()) -> Outcome:
        """Run the passes over a copy; `keep` names what is fetched from outside.

        Raises ProgramError for a training program when a pass is for inference, OperatorError for an operator that is not
        what its schema says, and FluidError when a pass left a fault behind that was not there before.
        """
        self.check(program)
        require_valid(program)
        after, values, stages = program.clone(), copy_scope(scope, program), []
        sharing: PlannedPass | None = None
        for planned in self.passes:
            before = count_operators(after)
            result = _apart(planned, sharing, after, values, keep)
            after.forget()
            stages.append(Stage(planned.name, result, before, count_operators(after), planned.left_out))
            sharing = planned if planned.name == MEMORY_OPTIMIZE else sharing
            _check(planned.name, program, verify(after))
        return Outcome(after, values, tuple(stages))

    def check(self, program: Program) -> None:
        """Raise ProgramError for a training program when a pass would break its training by taking parameters for constants."""
        if self.for_inference and trains(program):
            names = ", ".join(planned.name for planned in self.passes if planned.inference)
            raise ProgramError(
                f"{names}: inference rewrites may treat parameters as constants, but this program trains them",
                hint=Hint(
                    "extract the inference part first: fluidtool.prune, or program.clone(for_test=True)",
                    "extract the inference part first: fluidtool prune MODEL --targets NAME -o OUT",
                ),
            )


def _apart(
    planned: PlannedPass, sharing: PlannedPass | None, program: Program, scope: Scope, keep: Collection[str]
) -> PassResult:
    """Run a pass; one that makes new operators of old ones sees variables that share memory by names of their own.

    They share anew afterwards if `sharing`, the pass that let them, was among those before.
    """
    if not (planned.inference and shares_names(program)):
        return planned.run(program, scope, keep)
    restore_names(program)
    result = planned.run(program, scope, keep)
    if sharing is not None:
        sharing.run(program, scope, keep)
        return result
    note = Decision(planned.name, 0, "", "", True, "variables that shared memory no longer do")
    return PassResult((note, *result.decisions))


# ---------------------------------------------------------------- planning
def plan_passes(names: Iterable[str], *, level: int = 0, skip: Collection[str] = ()) -> PassPlan:
    """The passes of these names, in this order.

    names: those of `catalogue.py`, `all-inference` (all of them, in the order of the catalogue), `memory-optimize` (with
    `level` 0 or 1) and `release-memory`; the last two leave the variables of `skip` alone.
    Raises ProgramError for another name.
    """
    planned: list[PlannedPass] = []
    names = tuple(names)
    for name in names:
        if name == ALL_INFERENCE:
            planned.append(_all_inference(names))
        elif name == MEMORY_OPTIMIZE:
            planned.append(PlannedPass(name, partial(_memory_optimize, skip=skip, level=level), True, False))
        elif name == RELEASE_MEMORY:
            planned.append(PlannedPass(name, partial(_release_memory, skip=skip), True, False))
        else:
            planned.append(_inference(find(name)))
    return PassPlan(tuple(planned))


def find(name: str) -> InferencePass:
    """The inference rewrite of that name; raises ProgramError with near names, or how to see all."""
    from difflib import get_close_matches

    known = {each.name: each for each in INFERENCE_PASSES}
    if name in known:
        return known[name]
    near = get_close_matches(_usual(name), known, n=2)
    listed = Hint(f"they are {', '.join(known)}", "'fluidtool transpile --fuse help' lists them")
    raise ProgramError(f"there is no pass {name!r}", hint=f"did you mean {' or '.join(near)}?" if near else listed)


def _usual(name: str) -> str:
    """A name in our words: hyphens, no 'pass' at the end as Paddle's have, and 'batch-norm' for 'bn'."""
    words = re.split(r"[-_ ]+", re.sub(r"(?<=[a-z])(?=\d)", "-", name.lower()).removesuffix("_pass"))
    known = {
        "bn": "batch-norm",
        "batchnorm": "batch-norm",
        "ln": "layer-norm",
        "layernorm": "layer-norm",
        "act": "activation",
    }
    return "-".join(sorted((known.get(word, word) for word in words), key=lambda word: word != "fuse"))


def _inference(known: InferencePass) -> PlannedPass:
    return PlannedPass(known.name, known.run, known.exact, True)


def _all_inference(asked: Collection[str]) -> PlannedPass:
    """Those whose result every Paddle can run, again and again until none finds anything more.

    The others are left out; not told of are those that are `asked` for by name besides.
    """
    passes = [known for known in INFERENCE_PASSES if known.saved]
    left_out = tuple(known for known in INFERENCE_PASSES if not known.saved and known.name not in asked)

    def run(program: Program, scope: Scope, keep: Collection[str]) -> PassResult:
        done: list[Decision] = []
        for _ in range(ROUNDS):
            results = [known.run(program, scope, keep) for known in passes]
            done += [decision for result in results for decision in result.done]
            if not any(result.changed for result in results):
                break
        return PassResult((*done, *(decision for result in results for decision in result.left)))

    return PlannedPass(ALL_INFERENCE, run, all(known.exact for known in passes), True, left_out)


def _memory_optimize(
    program: Program, scope: Scope, keep: Collection[str], *, skip: Collection[str], level: int
) -> PassResult:
    run: Callable[..., PassResult] = import_module("fluidtool.passes.memory_optimize").memory_optimize
    return run(program, {*keep, *skip}, level=level)


def _release_memory(program: Program, scope: Scope, keep: Collection[str], *, skip: Collection[str]) -> PassResult:
    run: Callable[..., PassResult] = import_module("fluidtool.passes.release_memory").release_memory
    return run(program, {*keep, *skip})


# ---------------------------------------------------------------- programs and scopes
def count_operators(program: Program) -> int:
    """The operators of all blocks."""
    return sum(len(block.ops) for block in program.blocks)


def trains(program: Program) -> bool:
    """Whether a program has operators that compute gradients or change parameters by them."""
    return any(
        op.type.endswith("_grad") or int(op.get_attr(ROLE_ATTR, 0) or 0) & TRAINS
        for block in program.blocks
        for op in block.ops
    )


def copy_scope(scope: Scope, program: Program) -> Scope:
    """A new scope with what `scope` has of the program's persistable variables; arrays are shared, not copied."""
    copy = Scope()
    for var in program.list_vars():
        found = scope.find_var(var.name) if var.persistable else None
        if found is not None and found.value is not None:
            value = found.value
            copy.var(var.name).value = LoDTensor(value.array, value.offsets) if type(value) is LoDTensor else value
    return copy


def _identity(found: Finding) -> tuple[str, str]:
    """A finding without its position, which a pass may shift."""
    return found.code, found.variable


def _check(name: str, before: Program, after: list[Finding]) -> None:
    """Raise for a fault that is new: the pass is to blame where the program before had none, else that program."""
    found = _serious(after)
    if not found:
        return
    given = _serious(verify(before))
    known = set(map(_identity, given))
    new = [fault for fault in found if _identity(fault) not in known]
    if not new:
        return
    if given:
        raise ProgramError(
            f"{name} cannot rewrite this program, which already has faults: {given[0].code} {given[0].message}",
            hint=Hint("fluidtool.check lists them", "'fluidtool check' lists them"),
        )
    raise FluidError(
        f"the pass {name} introduced a fault: {new[0].code} {new[0].message}; this is a bug in the pass, please "
        f"report it and run without it"
    )


def _serious(findings: list[Finding]) -> list[Finding]:
    return [found for found in findings if found.code != "FC103"]  # what nothing reads is no fault of the program
