"""Names that several variables share: what a name means in fetches, targets and operators that come later."""

from __future__ import annotations

import pytest

from fluidtool.fluid.transpiler import InferenceTranspiler
from fluidtool.ir import Program
from fluidtool.ir.reuse import original_names, restore_names, shares_names, unshared, with_original_names
from fluidtool.passes.backward import append_backward
from fluidtool.passes.cut import cut_to
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.release_memory import release_memory
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import CPUPlace
from tests.support.memory_programs import Net, arguments, types
from tests.support.random_programs import pick_from, random_program


def shared(level: int = 0) -> Net:
    net = Net()
    net.chain("a", "b", "c", "d", "e")
    memory_optimize(net.program, level=level)
    return net


def plain() -> Net:
    net = Net()
    net.chain("a", "b", "c", "d", "e")
    return net


@pytest.mark.parametrize("seed", range(8))
def test_the_program_as_it_was_can_be_had_back(seed: int) -> None:
    for options in ({}, {"blocks": True}, {"trains": True}):
        case = random_program(pick_from(seed), largest=20, **options)  # type: ignore[arg-type]
        before = case.program.serialize_to_string()
        memory_optimize(case.program)
        memory_optimize(case.program, level=1)
        assert with_original_names(case.program).serialize_to_string() == before
        restore_names(case.program)
        assert case.program.serialize_to_string() == before


def test_a_program_without_shared_names_is_returned_as_it_is() -> None:
    net = plain()
    assert not shares_names(net.program)
    assert with_original_names(net.program) is net.program
    assert unshared(net.program, ["a"]) is net.program


def test_only_names_that_are_shared_make_a_difference() -> None:
    net = shared()
    assert unshared(net.program, ["x"]) is net.program
    assert unshared(net.program, ["c"]) is not net.program
    assert unshared(net.program, ["a"]) is not net.program


def test_an_operator_says_what_it_means_by_shared_names() -> None:
    assert [original_names(op) for op in shared().program.global_block().ops] == [
        {"a": "a"},
        {"a": "a", "b": "b"},
        {"b": "b", "a": "c"},
        {"a": "c", "b": "d"},
        {"b": "d", "a": "e"},
    ]


def test_an_operator_that_is_appended_later_means_the_variable_by_its_name() -> None:
    for name in "abcde":
        net, other = shared(), plain()
        for each in (net, other):
            each.step(name, "late", "relu")
        assert net.run("late", "e") == other.run("late", "e")
        assert net.run("late") == other.run("late")


def test_deletions_keep_their_meaning() -> None:
    net = shared()
    release_memory(net.program)
    assert types(with_original_names(net.program)).count("delete_var") == 1
    assert net.run("a", "b", "c", "d", "e") == plain().run("a", "b", "c", "d", "e")


@pytest.mark.parametrize("target", ["a", "c", "e"])
def test_prune_means_the_variable_by_its_name(target: str) -> None:
    net = shared()
    pruned = net.program.prune(target)
    assert types(pruned) == ["tanh"] * ("abcde".index(target) + 1)
    assert net.run(target, program=pruned) == plain().run(target)


def test_prune_by_operator_keeps_that_operator() -> None:
    net = shared()
    pruned = net.program.prune([net.program.global_block().ops[2], "a"])
    assert types(pruned) == ["tanh"] * 3


def test_prune_cuts_at_the_variable_by_its_name() -> None:
    net = shared()
    pruned = net.program.prune_with_input(["c"], ["e"])
    assert arguments(pruned) == [(("c",), ("d",)), (("d",), ("e",))]


def test_a_cut_program_computes_what_was_asked_for() -> None:
    net, other = shared(), plain()
    assert types(cut_to(net.program, ["d"], ["b"])) == types(cut_to(other.program, ["d"], ["b"]))


def test_gradients_are_those_of_the_program_as_it_was() -> None:
    values = []
    for net in (shared(1), plain()):
        net.program.global_block().var("x").stop_gradient = False
        net.step("e", "loss", "mean")
        append_backward(net.program.global_block().var("loss"))
        assert not shares_names(net.program)
        values.append(net.run("x@GRAD", "loss"))
    assert values[0] == values[1]


def test_inference_rewrites_undo_the_sharing() -> None:
    net = shared()
    InferenceTranspiler().transpile(net.program, CPUPlace(), Scope())
    assert not shares_names(net.program)
    assert net.run("e") == plain().run("e")


def test_clone_keeps_the_sharing() -> None:
    net = shared()
    copy = net.program.clone(for_test=True)
    assert copy.serialize_to_string() == net.program.serialize_to_string()
    assert net.run("c", program=copy) == plain().run("c")


def test_a_plan_for_other_variables_runs_in_shared_memory() -> None:
    net = Net()
    net.chain("a", "b", "c", "d", "e")
    memory_optimize(net.program, {"e"})
    plan = Executor().plan(net.program, ["e"])
    assert plan.program is net.program
    released = [set(step.release) & {"a", "b"} for step in plan.block(0).steps]
    assert released == [set(), {"a"}, {"b"}, {"a"}, {"b"}]


def test_names_survive_saving_and_loading() -> None:
    net = shared()
    loaded = Program.parse_from_string(net.program.serialize_to_string())
    assert [original_names(op) for op in loaded.global_block().ops] == [
        original_names(op) for op in net.program.global_block().ops
    ]
