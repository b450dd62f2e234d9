"""A row of passes: planned from names, run in order over copies, checked after each, and compared by running."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluidtool.errors import FluidError, OperatorError, ProgramError
from fluidtool.ir import Block, Program
from fluidtool.ir.dataflow import BlockFlow, block_flow
from fluidtool.ir.reuse import shares_names
from fluidtool.model import load
from fluidtool.passes import catalogue, comparison, pipeline
from fluidtool.passes.catalogue import INFERENCE_PASSES
from fluidtool.passes.comparison import (
    Runnable,
    absolute_tolerance,
    comes_from_suppression,
    compare_runs,
    compare_times,
    floor,
    in_any_order,
    scales_of_removed_quantisers,
)
from fluidtool.passes.inference import common, rewriting
from fluidtool.passes.peak import estimate, until_deleted
from fluidtool.passes.pipeline import ALL_INFERENCE, MEMORY_OPTIMIZE, PassPlan, PlannedPass, copy_scope, plan_passes
from fluidtool.passes.result import PassResult
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import AttrType
from fluidtool.runtime import Scope
from fluidtool.tensor import LoDTensor
from tests.cli.support import BIAS, DIGITS, WEIGHT, linear_program
from tests.support.large_programs import chain, identities
from tests.support.random_programs import RandomProgram, pick_from, programs, random_program

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
NAMES = [known.name for known in INFERENCE_PASSES]
MEMORY = ["memory-optimize", "release-memory"]


def linear_scope() -> Scope:
    scope = Scope()
    for name, array in (("w", WEIGHT), ("b", BIAS)):
        scope.var(name).value = LoDTensor(array.copy())
    return scope


def with_identity() -> Program:
    """The linear program with a `scale` by one between relu and softmax."""
    program = linear_program()
    block = program.global_block()
    block.create_var(name="same", shape=[-1, 3], dtype="float32")
    block.insert_op(4, type="scale", inputs={"X": ["positive"]}, outputs={"Out": ["same"]}, attrs={"scale": 1.0})
    block.ops[5].set_input("X", ["same"])
    return program


def types(program: Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


# ---------------------------------------------------------------- planning
def test_passes_are_planned_in_the_order_of_their_names() -> None:
    names = ["drop-dead", "memory-optimize", "fuse-batch-norm", "drop-dead"]
    assert [planned.name for planned in plan_passes(names).passes] == names


def test_an_unknown_pass_is_answered_with_near_ones() -> None:
    with pytest.raises(ProgramError, match="no pass 'fuse-batchnorm'; did you mean fuse-batch-norm"):
        plan_passes(["fuse-batchnorm"])


def test_an_unknown_pass_without_near_ones_is_answered_with_where_they_are_listed() -> None:
    with pytest.raises(ProgramError, match="no pass 'zzz'; they are "):
        plan_passes(["zzz"])


@pytest.mark.parametrize(("names", "exact"), [(MEMORY, True), (["drop-dead"], True), (["fuse-batch-norm"], False)])
def test_a_plan_is_exact_if_all_its_passes_are(names: list[str], exact: bool) -> None:
    assert plan_passes(names).exact is exact


def test_only_inference_rewrites_need_an_inference_program() -> None:
    assert not plan_passes(MEMORY).for_inference
    assert plan_passes(["memory-optimize", "drop-dead"]).for_inference


# ---------------------------------------------------------------- running
def test_what_is_given_stays_as_it_is() -> None:
    program, scope = with_identity(), linear_scope()
    before = program.serialize_to_string()
    outcome = plan_passes(["all-inference", *MEMORY]).run(program, scope, ["probability"])
    assert "scale" not in types(outcome.program) and "delete_var" in types(outcome.program)
    assert program.serialize_to_string() == before
    assert scope.local_var_names() == ["w", "b"]


def test_each_stage_says_what_it_did() -> None:
    outcome = plan_passes(["drop-identity", "drop-dead"]).run(with_identity(), linear_scope(), ["probability"])
    first, second = outcome.stages
    assert (first.name, first.before, first.after, len(first.result.done)) == ("drop-identity", 7, 6, 1)
    assert (second.name, second.before, second.after, second.result.changed) == ("drop-dead", 6, 6, False)


def test_all_inference_goes_on_until_nothing_is_left_to_do() -> None:
    outcome = plan_passes(["all-inference"]).run(with_identity(), linear_scope(), ["probability"])
    again = plan_passes(["all-inference"]).run(outcome.program, outcome.scope, ["probability"])
    assert outcome.stages[0].result.changed and not again.stages[0].result.changed
    assert again.program.serialize_to_string() == outcome.program.serialize_to_string()


def test_an_inference_rewrite_refuses_a_training_program() -> None:
    training = random_program(pick_from(1), trains=True)
    with pytest.raises(ProgramError, match="drop-dead: inference rewrites may treat parameters as constants"):
        plan_passes(["memory-optimize", "drop-dead"]).run(training.program, training.scope())


def test_variables_that_share_memory_share_it_again_after_a_rewrite() -> None:
    program, scope = with_identity(), linear_scope()
    both = plan_passes(["memory-optimize", "drop-identity"]).run(program, scope, ["probability"])
    other = plan_passes(["drop-identity", "memory-optimize"]).run(program, scope, ["probability"])
    assert both.program.serialize_to_string() == other.program.serialize_to_string()
    assert shares_names(both.program)


def test_a_rewrite_alone_takes_shared_memory_apart_and_says_so() -> None:
    shared = plan_passes(["memory-optimize"]).run(with_identity(), linear_scope(), ["probability"])
    outcome = plan_passes(["drop-identity"]).run(shared.program, shared.scope, ["probability"])
    assert not shares_names(outcome.program)
    assert outcome.stages[0].result.done[0].reason == "variables that shared memory no longer do"


def test_a_pass_that_leaves_a_fault_behind_is_named() -> None:
    def ruin(program: Program, scope: Scope, keep: object) -> PassResult:
        del program.global_block().ops[1]  # what computes `product`
        program.touch()
        return PassResult()

    plan = PassPlan((PlannedPass("ruin", ruin, True, True),))
    with pytest.raises(FluidError, match=r"the pass ruin introduced a fault: FC101 .*product"):
        plan.run(linear_program(), linear_scope(), ["probability"])


def test_a_fault_of_the_program_is_not_blamed_on_the_pass() -> None:
    def rename(program: Program, scope: Scope, keep: object) -> PassResult:
        ops = program.global_block().ops
        ops[2].set_input("X", ["lost as well"])
        return PassResult()

    program = linear_program()
    program.global_block().ops[2].set_input("X", ["lost"])  # FC102
    plan = PassPlan((PlannedPass("rename", rename, True, True),))
    with pytest.raises(
        ProgramError, match=r"rename cannot rewrite this program, which already has faults: FC102 .*lost"
    ):
        plan.run(program, linear_scope(), ["probability"])


def test_a_program_whose_fault_no_pass_touches_is_rewritten() -> None:
    program = linear_program()
    program.global_block().ops[2].set_input("X", ["lost"])
    assert plan_passes(["memory-optimize"]).run(program, linear_scope(), ["probability"]).stages[0].result


def test_a_malformed_operator_is_refused_before_any_pass() -> None:
    program = linear_program()
    program.global_block().ops[1].set_attr("x_num_col_dims", ["1"], AttrType.STRINGS)
    with pytest.raises(
        OperatorError, match="operator mul in block 0 of the program has attribute x_num_col_dims as STRINGS"
    ):
        plan_passes(["memory-optimize"]).run(program, linear_scope())


def test_passes_that_paddle_cannot_run_are_not_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = catalogue.InferencePass("ours", "nowhere:nothing", "not for Paddle", True, not_saved="Paddle lacks it")
    monkeypatch.setattr(pipeline, "INFERENCE_PASSES", (ours,))
    outcome = plan_passes(["all-inference"]).run(with_identity(), linear_scope(), ["probability"])
    assert types(outcome.program) == types(with_identity())
    assert outcome.stages[0].left_out == (ours,) and outcome.stages[0].result.decisions == ()
    assert plan_passes(["ours"]).passes[0].name == "ours"


def test_all_says_which_passes_it_left_out_but_for_those_asked_for_besides() -> None:
    every = [known.name for known in INFERENCE_PASSES if not known.saved]
    stages = plan_passes(["all-inference", "fuse-conv-bias"]).run(with_identity(), linear_scope()).stages
    assert [known.name for known in stages[0].left_out] == [name for name in every if name != "fuse-conv-bias"]
    assert stages[1].left_out == ()


@pytest.mark.parametrize(
    "known", [known for known in INFERENCE_PASSES if not known.saved], ids=lambda known: known.name
)
def test_a_pass_that_is_left_out_says_what_paddle_lacks(known: catalogue.InferencePass) -> None:
    assert "Paddle 1.8.5" in known.not_saved


def test_a_copied_scope_shares_arrays_and_nothing_else() -> None:
    scope = linear_scope()
    copy = copy_scope(scope, linear_program())
    mine, other = scope.var("w").value, copy.var("w").value
    assert mine is not other and mine.array is other.array


# ---------------------------------------------------------------- comparing
def linear(change: object = None) -> Runnable:
    program = linear_program()
    if change is not None:
        change(program)  # type: ignore[operator]
    return Runnable(program, linear_scope())


def test_equal_programs_agree_bit_by_bit() -> None:
    (item,) = compare_runs(linear(), linear(), {"x": X}, ["probability"], exact=True)
    assert (item.name, item.agrees, item.elements, item.largest_error) == ("probability", True, 6, 0.0)


@pytest.mark.parametrize(("factor", "agrees"), [(1 + 5e-6, True), (1 + 5e-5, False)])
def test_rounding_is_allowed_unless_exact(factor: float, agrees: bool) -> None:
    other = linear()
    weight = other.scope.var("w").value
    other.scope.var("w").value = LoDTensor((weight.array * factor).astype("float32"))
    names = ["product"]
    assert compare_runs(linear(), other, {"x": X}, names, exact=False)[0].agrees is agrees
    assert not compare_runs(linear(), other, {"x": X}, names, exact=True)[0].agrees


@pytest.mark.parametrize(("error", "agrees"), [(2e-7, True), (2e-5, False)])
def test_what_cancels_may_be_off_by_last_bits_of_one(error: float, agrees: bool) -> None:
    expected = np.full(100, 1e-9, np.float32)
    allowed = absolute_tolerance(expected, 1e-5)
    assert (error <= allowed) is agrees
    assert absolute_tolerance(expected, 0.0) == 0.0 and absolute_tolerance(np.arange(9), 1e-5) == 0.0


@pytest.mark.parametrize(("dtype", "least"), [("float16", 1e-3), ("float32", 1e-7), ("float64", 2e-16)])
def test_the_floor_goes_by_data_type_and_size(dtype: str, least: float) -> None:
    one, many = floor(np.zeros(1, dtype)), floor(np.zeros(1024, dtype))
    assert one == np.finfo(dtype).eps >= least / 2 and many == 11 * one


ROWS = np.array([[0, 0.9, 1], [0, 0.9, 2], [1, 0.5, 3]], np.float32)


@pytest.mark.parametrize(
    ("order", "lod", "agrees"),
    [
        ([1, 0, 2], [[0, 3]], True),
        ([2, 1, 0], [[0, 2, 3]], False),  # a row in another sequence
        ([0, 0, 2], [[0, 3]], False),  # a row twice
    ],
)
def test_rows_in_any_order(order: list[int], lod: list[list[int]], agrees: bool) -> None:
    found = in_any_order("out", LoDTensor(ROWS[order], lod), LoDTensor(ROWS, lod), 1e-5)
    assert [item.agrees for item in found] == [True] * agrees
    assert in_any_order("out", LoDTensor(ROWS[:2], lod), LoDTensor(ROWS, lod), 1e-5) == []


def suppressing(op_type: str) -> Program:
    program = Program()
    block = program.global_block()
    for name in ("boxes", "scores", "rows", "out"):
        block.create_var(name=name)
    block.append_op(type=op_type, inputs={"BBoxes": ["boxes"], "Scores": ["scores"]}, outputs={"Out": ["rows"]})
    block.append_op(type="scale", inputs={"X": ["rows"]}, outputs={"Out": ["out"]})
    return program


def test_only_rows_of_suppression_have_no_order() -> None:
    assert comes_from_suppression(suppressing("multiclass_nms"), "out")
    assert not comes_from_suppression(suppressing("concat"), "out")
    assert not comes_from_suppression(suppressing("multiclass_nms"), "boxes")


def test_scales_of_removed_quantisers_are_no_state() -> None:
    before, after = linear_program(), linear_program()
    quantise = {"inputs": {"X": ["x"]}, "outputs": {"Out": ["sum"], "OutScale": ["step"]}}
    before.global_block().append_op(type="fake_quantize_abs_max", **quantise)
    assert scales_of_removed_quantisers(before, after) == {"step"}
    assert scales_of_removed_quantisers(before, before) == frozenset()
    before.global_block().append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["step"]})
    assert scales_of_removed_quantisers(before, after) == frozenset()


@pytest.mark.parametrize(
    ("op_type", "outputs", "agrees"),
    [
        ("fake_quantize_dequantize_abs_max", {"Out": ["seen"], "OutScale": ["step"]}, True),
        ("assign", {"Out": ["step"]}, False),
    ],
)
def test_state_that_only_a_removed_quantiser_kept_is_not_missed(
    op_type: str, outputs: dict[str, list[str]], agrees: bool
) -> None:
    def observe(program: Program) -> None:
        block = program.global_block()
        block.create_var(name="step", persistable=True)
        block.create_var(name="seen")
        reader = next(op for op in block.ops if "x" in op.input_arg_names)
        reader.rename_input("x", outputs["Out"][0])
        block.insert_op(block.ops.index(reader), type=op_type, inputs={"X": ["x"]}, outputs=outputs)

    observed = linear(observe)
    observed.scope.var("step").value = LoDTensor(np.zeros(1, np.float32))
    found = compare_runs(observed, linear(), {"x": X}, ["probability"], exact=False, rtol=0.1)
    assert all(item.agrees for item in found) is agrees


def test_what_training_leaves_in_parameters_is_compared() -> None:
    training = random_program(pick_from(2), trains=True)
    without = training.program.clone()
    block = without.global_block()
    block.ops = [op for op in block.ops if op.type != "sgd"]
    sides = [Runnable(program, training.scope()) for program in (training.program, without)]
    found = compare_runs(*sides, training.feeds, training.fetches, exact=True)
    differing = {item.name for item in found if not item.agrees}
    assert differing and differing <= set(training.parameters)
    assert all(item.agrees for item in compare_runs(sides[0], sides[0], training.feeds, training.fetches, exact=True))


def test_rewrites_that_change_nothing_look_through_the_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Block] = []

    def counted(block: Block) -> BlockFlow:
        looks.append(block)
        return block_flow(block)

    for module in (rewriting, common):
        monkeypatch.setattr(module, "block_flow", counted)
    plan_passes([ALL_INFERENCE]).run(chain(20).inference(), Scope())
    assert len(looks) == 1
    looks.clear()
    plan_passes([ALL_INFERENCE]).run(identities(20).inference(), Scope())
    assert len(looks) > 1


def test_what_is_known_of_a_program_is_forgotten_when_it_changes() -> None:
    program = linear_program()
    assert program.known(types, program) is program.known(types, program)
    program.global_block().append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    assert program.known(types, program)[-1] == "relu"


def test_running_leaves_the_scope_as_it_is() -> None:
    training = random_program(pick_from(2), trains=True)
    side = Runnable(training.program, training.scope())
    compare_runs(side, side, training.feeds, training.fetches, exact=True)
    for name, array in training.parameters.items():
        np.testing.assert_array_equal(side.scope.var(name).value.numpy(), array)


def test_times_are_of_both_programs() -> None:
    assert all(seconds > 0 for seconds in compare_times(linear(), linear(), {"x": X}, ["probability"], 2))


def test_a_program_that_takes_long_is_run_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Program] = []

    def counted(side: Runnable, *arguments: Any) -> Any:
        runs.append(side.program)
        return run(side, *arguments)

    run = Runnable.run
    monkeypatch.setattr(Runnable, "run", counted)
    monkeypatch.setattr(comparison, "PATIENCE", 0.0)
    assert all(seconds > 0 for seconds in compare_times(linear(), linear(), {"x": X}, ["probability"], 9))
    assert len(runs) == 2 * 2  # to compile, and one that counts


def test_a_program_is_verified_once_after_a_pass_without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Program] = []

    def counted(program: Program) -> Any:
        looks.append(program)
        return verify(program)

    monkeypatch.setattr(pipeline, "verify", counted)
    outcome = plan_passes([MEMORY_OPTIMIZE]).run(chain(20).inference(), Scope())
    assert looks == [outcome.program]


def test_a_program_that_changes_no_parameter_is_timed_in_one_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Program] = []

    def counted(scope: Scope, program: Program) -> Scope:
        copied.append(program)
        return copy_scope(scope, program)

    monkeypatch.setattr(comparison, "copy_scope", counted)
    compare_times(linear(), linear(), {"x": X}, ["probability"], 5)
    assert len(copied) == 2
    training = random_program(pick_from(2), trains=True)
    side = Runnable(training.program, training.scope())
    compare_times(side, side, training.feeds, training.fetches, 5)
    assert len(copied) == 2 + 2 * 6


# ---------------------------------------------------------------- memory
def test_what_is_kept_until_it_is_deleted() -> None:
    """x [2, 4], then four of [2, 3]: without deletions all are kept."""
    program = linear_program()
    assert until_deleted(program, batch=2) == 4 * (8 + 4 * 6)
    released = plan_passes(["release-memory"]).run(program, linear_scope(), ["probability"]).program
    assert until_deleted(released, batch=2) == 4 * (8 + 2 * 6)


def test_memory_passes_lower_what_is_kept_and_not_what_is_needed() -> None:
    program, scope = linear_program(), linear_scope()
    kept, needed = until_deleted(program, batch=2), estimate(program, batch=2).at_once
    for names in (["memory-optimize"], ["release-memory"], MEMORY):
        after = plan_passes(names).run(program, scope, ["probability"]).program
        assert estimate(after, batch=2).at_once == needed
        assert needed <= until_deleted(after, batch=2) < kept


# ---------------------------------------------------------------- random programs, random sequences
@pytest.mark.parametrize("seed", [*range(40), 1273, 1678])
def test_any_sequence_of_passes_keeps_what_a_program_computes(seed: int) -> None:
    pick = pick_from(seed)
    case = random_program(pick, blocks=seed % 4 == 0, feed_fetch=seed % 3 == 0)
    names = [[*NAMES, *MEMORY, "all-inference"][pick(len(NAMES) + 3)] for _ in range(1 + pick(4))]
    plan = plan_passes(names, level=pick(2))
    outcome = plan.run(case.program, case.scope(), case.fetches)
    sides = Runnable(case.program, case.scope()), Runnable(outcome.program, outcome.scope)
    for item in compare_runs(*sides, case.feeds, case.fetches, exact=plan.exact):
        assert item.agrees, (names, item)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(largest=6), st.lists(st.sampled_from([*NAMES, *MEMORY]), min_size=1, max_size=4))
def test_the_order_of_passes_never_matters_to_the_numbers(case: RandomProgram, names: list[str]) -> None:
    for order in (names, names[::-1]):
        plan = plan_passes(order, level=1)
        outcome = plan.run(case.program, case.scope(), case.fetches)
        sides = Runnable(case.program, case.scope()), Runnable(outcome.program, outcome.scope)
        for item in compare_runs(*sides, case.feeds, case.fetches, exact=plan.exact):
            assert item.agrees, (order, item)


@pytest.mark.parametrize("seed", range(10))
def test_memory_passes_keep_every_bit_of_training(seed: int) -> None:
    pick = pick_from(100 + seed)
    case = random_program(pick, trains=True)
    outcome = plan_passes(MEMORY if seed % 2 else MEMORY[::-1], level=pick(2)).run(
        case.program, case.scope(), case.fetches
    )
    sides = Runnable(case.program, case.scope()), Runnable(outcome.program, outcome.scope)
    for item in compare_runs(*sides, case.feeds, case.fetches, exact=True):
        assert item.agrees, item


def test_the_sample_keeps_its_numbers() -> None:
    model = load(DIGITS)
    scope = Scope()
    for name, value in model.files.parameters.items():
        scope.var(name).value = value
    outcome = plan_passes(["all-inference", *MEMORY]).run(model.program, scope, model.fetches)
    assert "batch_norm" not in types(outcome.program)
    feed = {"image": np.load(DIGITS / "x.npy")}
    (item,) = compare_runs(
        Runnable(model.program, scope), Runnable(outcome.program, outcome.scope), feed, model.fetches, exact=False
    )
    assert item.agrees and item.largest_error < 1e-6
