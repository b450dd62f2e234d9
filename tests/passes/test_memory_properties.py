"""Random programs through the memory passes, prune and clone, in any order: no value changes by a bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.ir import Program
from fluidtool.ops.registry import find_op
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.release_memory import release_memory
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from tests.support.random_programs import RandomProgram, programs

Step = Callable[[Program, set[str]], Program]


def in_place(run: Callable[..., Any], **options: Any) -> Step:
    """A step that changes the program it is given; a second time it must change nothing."""

    def step(program: Program, skip: set[str]) -> Program:
        run(program, skip, **options)
        once = program.serialize_to_string()
        assert not run(program, skip, **options).changed
        assert program.serialize_to_string() == once
        return program

    return step


def saved_and_loaded(program: Program, skip: set[str]) -> Program:
    return Program.parse_from_string(program.serialize_to_string())


KEEPING: dict[str, Step] = {
    "level 0": in_place(memory_optimize),
    "level 1": in_place(memory_optimize, level=1),
    "skip_grads": in_place(memory_optimize, skip_grads=True),
    "release": in_place(release_memory),
    "clone": lambda program, skip: program.clone(),
    "save and load": saved_and_loaded,
}
sequences = st.lists(st.sampled_from(sorted(KEEPING)), min_size=1, max_size=4)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(case: RandomProgram, steps: list[str], named: bool) -> None:
    """named: whether the caller skips what is fetched; else it is fetched by names that may share memory."""
    before = case.run(case.program.clone())
    program = case.program
    for step in steps:
        program = KEEPING[step](program, set(case.fetches) if named else set())
    assert [finding for finding in verify(program) if finding.code != "FC103"] == []
    after = case.run(program)
    assert [array.tobytes() for array in after] == [array.tobytes() for array in before]
    assert [array.shape for array in after] == [array.shape for array in before]


@quick
@given(programs(), sequences, st.booleans())
def test_inference_programs(case: RandomProgram, steps: list[str], named: bool) -> None:
    check(case, steps, named)


@quick
@given(programs(blocks=True), sequences, st.booleans())
def test_programs_with_loops_and_branches(case: RandomProgram, steps: list[str], named: bool) -> None:
    check(case, steps, named)


@quick
@given(programs(trains=True, in_place=False), sequences, st.booleans())
def test_training_programs(case: RandomProgram, steps: list[str], named: bool) -> None:
    check(case, steps, named)


@quick
@given(programs(feed_fetch=True, blocks=True), sequences)
def test_programs_with_feed_and_fetch_operators(case: RandomProgram, steps: list[str]) -> None:
    check(case, steps, named=False)


@quick
@given(programs(blocks=True), sequences, st.booleans())
def test_pruned_programs_still_compute_what_they_were_pruned_for(
    case: RandomProgram, steps: list[str], named: bool
) -> None:
    fetches = [name for name in case.fetches if name not in case.feeds]
    want = Executor(seed=5).run(case.program.clone(), case.feeds, fetches, case.scope())
    program = case.program
    for step in steps:
        program = KEEPING[step](program, set(fetches) if named else set())
    got = Executor(seed=5).run(program.prune(fetches), case.feeds, fetches, case.scope())
    assert [value.numpy().tobytes() for value in got] == [value.numpy().tobytes() for value in want]


@quick
@given(programs(trains=True, in_place=False), sequences)
def test_a_clone_for_testing_computes_the_forward_pass(case: RandomProgram, steps: list[str]) -> None:
    fetches = list(case.fetches)
    want = Executor(seed=5).run(case.program.clone(for_test=True), case.feeds, fetches, case.scope())
    program = case.program
    for step in steps:
        program = KEEPING[step](program, set(fetches))
    got = Executor(seed=5).run(program.clone(for_test=True), case.feeds, fetches, case.scope())
    assert [value.numpy().tobytes() for value in got] == [value.numpy().tobytes() for value in want]


@quick
@given(programs(blocks=True), st.sampled_from([0, 1]))
def test_every_variable_of_block_0_can_be_fetched_afterwards(case: RandomProgram, level: int) -> None:
    block = case.program.global_block()
    tensors = [
        name
        for name, var in block.vars.items()
        if var.type == VarType.LOD_TENSOR and not var.persistable and 0 not in var.shape
    ]
    written = [name for name in tensors if any(name in op.output_arg_names for op in block.ops if find_op(op.type))]
    want = Executor(seed=5).run(case.program.clone(), case.feeds, written, case.scope())
    memory_optimize(case.program, level=level)
    release_memory(case.program)
    got = Executor(seed=5).run(case.program, case.feeds, written, case.scope())
    for a, b in zip(got, want, strict=True):
        assert (a.array is None) == (b.array is None)
        assert a.array is None or a.numpy().tobytes() == b.numpy().tobytes()
