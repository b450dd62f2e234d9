"""What loops, branches, recurrent blocks and decoders refuse, with the words of Paddle 1.8.5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid.layers import control_flow
from fluidtool.fluid.layers.control_flow.blocks import parent_block
from fluidtool.fluid.nested import assert_same_structure, flatten, map_structure, pack_sequence_as

L: Any = fluid.layers


@pytest.fixture(autouse=True)
def fresh_programs() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def number(value: float = 0, dtype: str = "int64") -> Any:
    return L.fill_constant([1], dtype, value)


def truth() -> Any:
    return L.less_than(number(), number(1))


def within_static(use: Callable[[Any], Any]) -> Callable[[], None]:
    def build() -> None:
        rnn = L.StaticRNN()
        with rnn.step():
            use(rnn)

    return build


def within_dynamic(use: Callable[[Any], Any]) -> Callable[[], None]:
    def build() -> None:
        rnn = L.DynamicRNN()
        with rnn.block():
            use(rnn)

    return build


def several(fluid: Any = fluid) -> Any:
    return L.data("x", [5, 2, 3], append_batch_size=False)


REFUSALS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.While(3), TypeError, "condition should be a variable"),
    (lambda: L.While(number()), TypeError, "condition should be a boolean variable"),
    (
        lambda: L.While(L.fill_constant([2, 3], "bool", 1)),
        TypeError,
        r"condition expected shape as \[\], but given shape as \[2, 3\]",
    ),
    (lambda: L.while_loop(3, lambda i: i, [number()]), TypeError, "cond in while_loop should be callable"),
    (lambda: L.while_loop(lambda i: i, 3, [number()]), TypeError, "body in while_loop should be callable"),
    (lambda: L.while_loop(len, len, number()), TypeError, "loop_vars in while_loop should be a list or tuple"),
    (lambda: L.while_loop(len, len, []), ValueError, "loop_vars in while_loop should not be empty"),
    (lambda: L.while_loop(lambda i: 1, len, [number()]), TypeError, "cond in while_loop should return a variable"),
    (lambda: L.while_loop(lambda i: i, len, [number()]), TypeError, "should return a boolean variable"),
    (
        lambda: L.while_loop(lambda i: L.fill_constant([2], "bool", 1), len, [number()]),
        TypeError,
        r"the shape of the variable returned by cond should be \[\],but given shape as \[2\]",
    ),
    (
        lambda: L.while_loop(lambda i: truth(), lambda i: [i, i], [number()]),
        ValueError,
        "body in while_loop should return the same arity",
    ),
    (lambda: L.increment(truth()), TypeError, "The data type of 'x' in increment must be"),
    (lambda: L.array_write(number(), number(0, "float32")), TypeError, "The data type of 'i' in array_write must be"),
    (
        lambda: L.array_write(number(), number(), number()),
        TypeError,
        "array should be tensor array vairable in array_wr",
    ),
    (lambda: L.array_read(number(), number()), TypeError, "array should be tensor array vairable"),
    (lambda: L.array_length(number()), TypeError, "array should be tensor array vairable in array_length Op"),
    (lambda: L.cond(number()), TypeError, "The data type of 'pred' in fluid.layers.cond must be"),
    (lambda: L.cond(truth(), 3), TypeError, "The true_fn in cond must be callable, but received int"),
    (lambda: L.cond(truth(), None, 3), TypeError, "The false_fn in cond must be callable, but received int"),
    (lambda: L.cond(truth(), number), ValueError, "true_fn returns non-None while false_fn returns None"),
    (lambda: L.cond(truth(), None, number), ValueError, "true_fn returns None while false_fn returns non-None"),
    (
        lambda: L.cond(truth(), number, lambda: [number(), number()]),
        ValueError,
        "Incompatible return values of true_fn and false_fn in cond: The two structures",
    ),
    (lambda: L.case(3), TypeError, "The type of 'pred_fn_pairs' in case must be"),
    (lambda: L.case([3]), TypeError, "The elements' type of 'pred_fn_pairs' in case must be"),
    (
        lambda: L.case([(1, 2, 3)]),
        TypeError,
        "The tuple's size of 'pred_fn_pairs' in case must be 2, but received: 3-tuple",
    ),
    (lambda: L.case([(1, number)]), TypeError, "The pred's type of 'pred_fn_pairs' in case must be boolean Variable"),
    (lambda: L.case([(truth(), 3)]), TypeError, r"The fn for less_than_0.tmp_0 of pred_fn_pairs in Op\(case\)"),
    (lambda: L.case([(truth(), number)], 3), TypeError, r"The default in Op\(case\) must be callable"),
    (lambda: L.switch_case(number(0, "float32"), []), TypeError, "The data type of 'branch_index' in switch_case"),
    (lambda: L.switch_case(number(), 3), TypeError, "The type of 'branch_fns' in switch_case must be"),
    (lambda: L.switch_case(number(), [3]), TypeError, "The elements' type of 'branch_fns' in switch_case must be"),
    (lambda: L.switch_case(number(), [(1, 2, 3)]), TypeError, "The tuple's size of 'branch_fns' in switch_case"),
    (lambda: L.switch_case(number(), [("a", number)]), TypeError, "The key's type of 'branch_fns' in switch_case"),
    (lambda: L.switch_case(number(), [(1, number), (1, number)]), ValueError, "must be unique, but '1' appears"),
    (lambda: L.switch_case(number(), [(1, 3)]), TypeError, "The type of function for key 1 of 'branch_fns'"),
    (lambda: L.switch_case(number(), [number], 3), TypeError, r"The default in Op\(case\) must be callable"),
    (lambda: L.Switch().case(truth()), ValueError, "case should be called inside with"),
    (lambda: L.Switch().default(), ValueError, "there should be at least one condition"),
    (lambda: L.Switch().__enter__().case(number()), TypeError, "the member function case of fluid.layers.Switch"),
    (lambda: L.IfElse(3), TypeError, "The type of 'cond' in fluid.layers.IfElse must be"),
    (lambda: L.IfElse(truth()).input(number()), ValueError, "input must in true/false blocks"),
    (lambda: L.IfElse(truth()).output(number()), ValueError, "output can only be invoked in the sub-block"),
    (lambda: L.IfElse(truth()).__call__(), ValueError, "Must invoke true_block/false_block before __call__"),
    (lambda: L.StaticRNN(3), TypeError, "The type of 'name' in fluid.layers.StaticRNN must be"),
    (lambda: L.StaticRNN().step_input(several()), ValueError, "You must invoke step_input in rnn block"),
    (lambda: L.StaticRNN().__call__(), ValueError, "RNN output can only be retrieved after rnn block"),
    (within_static(lambda rnn: rnn.memory()), ValueError, "if init is None, memory at least need shape and batch_ref"),
    (within_static(lambda rnn: rnn.memory(init=3)), TypeError, "The type of 'init' in fluid.layers.StaticRNN.memory"),
    (
        within_static(
            lambda rnn: [rnn.step_input(several()), rnn.step_input(L.data("y", [4, 2], append_batch_size=False))]
        ),
        ValueError,
        "Static RNN only take fix seq_len input",
    ),
    (within_static(lambda rnn: rnn.memory(init=several())), ValueError, "x should be updated in every step"),
    (lambda: L.DynamicRNN().step_input(several()), ValueError, "step_input can only be invoked inside rnn block"),
    (
        lambda: L.DynamicRNN().__call__(),
        ValueError,
        "Output of the dynamic RNN can only be visited outside the rnn block",
    ),
    (within_dynamic(lambda rnn: rnn.step_input(3)), TypeError, r"step_input\(\) can only take a Variable as its input"),
    (within_dynamic(lambda rnn: rnn.static_input(several())), ValueError, "must be called after step_input"),
    (within_dynamic(lambda rnn: rnn.memory(shape=[3])), ValueError, "step_input should be invoked before memory"),
    (within_dynamic(lambda rnn: rnn.memory(init=3)), TypeError, "The input arg `init` of memory"),
    (
        within_dynamic(lambda rnn: rnn.memory(several(), "3")),
        TypeError,
        r"shape of memory\(\) must be a list or a tuple",
    ),
    (
        within_dynamic(lambda rnn: rnn.memory(init=several(), need_reorder=True)),
        ValueError,
        "make sure step_input be invoked before memory",
    ),
    (
        within_dynamic(lambda rnn: rnn.update_memory(several(), 3)),
        TypeError,
        "The input arg `new_mem` of update_memory",
    ),
    (
        within_dynamic(lambda rnn: rnn.update_memory(several(), number())),
        ValueError,
        "Please invoke memory before update_memory",
    ),
    (within_dynamic(lambda rnn: None), ValueError, "step_input.* must be called inside rnn block"),
    (lambda: L.reorder_lod_tensor_by_rank(number(), number()), TypeError, "should be LOD_RANK_TABLE"),
    (lambda: L.is_empty(truth()), TypeError, "The data type of 'x' in is_empty must be"),
    (lambda: L.Print(3), TypeError, "The type of 'input' in fluid.layers.Print must be"),
    (
        lambda: control_flow.select_input(number(), number()),
        TypeError,
        "The data type of 'mask' in select_input|'inputs'",
    ),
    (lambda: control_flow.ConditionalBlock([3]), TypeError, "The type of 'input' in ConditionalBlock must be"),  # type: ignore[list-item]
    (parent_block, ValueError, "the current block is block 0"),
]


@pytest.mark.parametrize(("build", "error", "text"), REFUSALS, ids=[case[2][:60] for case in REFUSALS])
def test_a_wrong_use_is_refused(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_a_dynamic_rnn_has_one_block() -> None:
    rnn = L.DynamicRNN()
    x = L.data("x", [3], lod_level=1)
    with rnn.block():
        rnn.output(rnn.step_input(x))
    with pytest.raises(ValueError, match=r"rnn.block\(\) can only be invoke once"), rnn.block():
        pass


def test_a_static_rnn_without_outputs_gives_nothing() -> None:
    rnn = L.StaticRNN()
    with rnn.step():
        rnn.step_input(several())
    with pytest.raises(ValueError, match="RNN has no output"):
        rnn()


def test_branches_of_if_else_must_have_outputs_as_many() -> None:
    rows = L.IfElse(L.less_than(L.data("x", [1]), L.data("y", [1])))
    with pytest.raises(ValueError, match="Must set output inside block"), rows.true_block():
        rows.input(L.data("x", [1]))
    with rows.true_block():
        rows.output(number())
    with rows.false_block():
        rows.output(number(), number())
    with pytest.raises(ValueError, match="The output side must be same"):
        rows()


def test_blocks_of_if_else_do_not_nest() -> None:
    rows = L.IfElse(truth())
    with pytest.raises(ValueError, match=r"You cannot invoke IfElse.block"), rows.true_block(), rows.false_block():
        pass


def test_an_error_in_a_block_leaves_the_program_in_the_block_around() -> None:
    with pytest.raises(ZeroDivisionError), L.While(truth()).block():
        raise ZeroDivisionError
    assert fluid.default_main_program().current_block().idx == 0


# ---------------------------------------------------------------- nested structures
def test_structures_are_flattened_by_sorted_keys_and_packed_again() -> None:
    nest = {"b": [1, (2, 3)], "a": 4}
    assert flatten(nest) == [4, 1, 2, 3]
    assert pack_sequence_as(nest, [4, 1, 2, 3]) == nest
    assert map_structure(lambda x, y: x + y, nest, nest) == {"b": [2, (4, 6)], "a": 8}


@pytest.mark.parametrize(
    ("first", "second", "error", "text"),
    [
        ([1, 2], [1], ValueError, "don't have the same number of elements"),
        ([1, [2]], [[1], 2], ValueError, "don't have the same nested structure"),
        ([1, 2], (1, 2), TypeError, "don't have the same sequence type"),
        ({"a": 1}, {"b": 1}, ValueError, "don't have the same set of keys"),
    ],
)
def test_other_structures_are_told(first: Any, second: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        assert_same_structure(first, second)


def test_leaves_that_are_too_many_do_not_pack() -> None:
    with pytest.raises(ValueError, match=r"Structure is a scalar but len\(flat_sequence\) == 2 > 1"):
        pack_sequence_as(1, [1, 2])
    with pytest.raises(ValueError, match=r"Could not pack sequence. Structure had 1 elements, but flat_sequence had 2"):
        pack_sequence_as([1], [1, 2])
    with pytest.raises(TypeError, match="flat_sequence must be a sequence"):
        pack_sequence_as([1], 1)


# ---------------------------------------------------------------- indexing
def test_variables_are_not_iterated_over() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(several())


@pytest.mark.parametrize(
    ("item", "text"),
    [("a", "found str"), (np.zeros(2), "found ndarray"), (None, "found NoneType"), (..., "found ellipsis")],
)
def test_other_items_do_not_index(item: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        several()[item]


def test_a_slice_without_bounds_has_no_step_but_minus_1() -> None:
    with pytest.raises(AssertionError, match="found 2"):
        several()[::2]
