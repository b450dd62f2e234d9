"""cond, case, switch_case and Switch: one of several branches runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype, convert_dtype
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.arithmetic import equal, logical_and, logical_not
from fluidtool.fluid.layers.control_flow.blocks import parent_block
from fluidtool.fluid.layers.control_flow.conditional import ConditionalBlock
from fluidtool.fluid.layers.control_flow.selection import select_input
from fluidtool.fluid.layers.creation import assign, cast, fill_constant
from fluidtool.fluid.nested import assert_same_structure, map_structure
from fluidtool.ir import Variable

Branch = Callable[[], Any]


# ---------------------------------------------------------------- cond
def cond(pred: Variable, true_fn: Branch | None = None, false_fn: Branch | None = None, name: str | None = None) -> Any:
    """true_fn() if pred, one boolean, is true, else false_fn(); both return variables nested in the same way, or None."""
    check_variable_and_dtype(pred, "pred", ("bool",), "fluid.layers.cond")
    check_type(name, "name", (str, type(None)), "fluid.layers.cond")
    LayerHelper("cond", name=name)
    true_output = None if true_fn is None else _branch(pred, _callable(true_fn, "true_fn"))
    false_output = None if false_fn is None else _branch(logical_not(pred), _callable(false_fn, "false_fn"))
    if true_output is None and false_output is None:
        return None
    mismatch = "Incompatible return values of true_fn and false_fn in cond: "
    if true_output is None:
        raise UsageError(mismatch + "true_fn returns None while false_fn returns non-None")
    if false_output is None:
        raise UsageError(mismatch + "true_fn returns non-None while false_fn returns None")
    try:
        assert_same_structure(true_output, false_output, check_types=False)
    except ValueError as error:
        raise UsageError(mismatch + str(error)) from error
    mask = cast(pred, "int32")
    return map_structure(lambda false, true: select_input([false, true], mask), false_output, true_output)


def _callable(function: Any, name: str) -> Branch:
    if not callable(function):
        raise ArgumentTypeError(f"The {name} in cond must be callable, but received {type(function).__name__}")
    branch: Branch = function
    return branch


def _branch(condition: Variable, function: Branch) -> Any:
    """Build a function's operators in a branch; its results are copied to the block around it."""
    with ConditionalBlock([condition], is_scalar_condition=True).block():
        result = function()
        return None if result is None else map_structure(_copied_out, result)


def _copied_out(var: Variable | None) -> Variable | None:
    if var is None:
        return None
    outside = parent_block().create_var(dtype=var.dtype, shape=var.shape, type=var.type)
    return assign(var, outside)


# ---------------------------------------------------------------- case and switch_case
def case(
    pred_fn_pairs: Sequence[tuple[Variable, Branch]], default: Branch | None = None, name: str | None = None
) -> Any:
    """The function of the first pair whose condition is true; `default` (else the last function) if none is."""
    LayerHelper("case", name=name)
    check_type(pred_fn_pairs, "pred_fn_pairs", (list, tuple), "case")
    for pair in pred_fn_pairs:
        _check_pair(pair, "pred_fn_pairs", "case", type(pair))
        if not isinstance(pair[0], Variable):
            raise _wrong("The pred's type", "pred_fn_pairs", "case", "boolean Variable", type(pair[0]))
        if not callable(pair[1]):
            raise ArgumentTypeError(f"The fn for {pair[0].name} of pred_fn_pairs in Op(case) must be callable.")
    pairs = list(pred_fn_pairs)
    if default is None:
        default = pairs.pop()[1]
    elif not callable(default):
        raise ArgumentTypeError(f"The default in Op(case) must be callable, found {type(default).__name__}")
    return _nested(reversed(pairs), default)


def switch_case(
    branch_index: Variable,
    branch_fns: Sequence[Branch] | Sequence[tuple[int, Branch]] | dict[int, Branch],
    default: Branch | None = None,
    name: str | None = None,
) -> Any:
    """The function whose number is branch_index; `default` (else that of the largest number) if none has it."""
    LayerHelper("switch_case", name=name)
    check_variable_and_dtype(branch_index, "branch_index", ("uint8", "int32", "int64"), "switch_case")
    if convert_dtype(branch_index.dtype) != "int64":
        branch_index = cast(branch_index, "int64")
    branches = _numbered(branch_fns)
    if default is None:
        branches.sort(key=lambda branch: branch[0])
        default = branches.pop()[1]
    elif not callable(default):
        raise ArgumentTypeError(f"The default in Op(case) must be callable, found {type(default).__name__}")
    pairs = []
    for number, function in branches:
        wanted = fill_constant(shape=[1], dtype="int64", value=number)
        pairs.append((equal(branch_index, wanted), function))
    return _nested(pairs, default)


def _numbered(branch_fns: Any) -> list[tuple[int, Branch]]:
    check_type(branch_fns, "branch_fns", (list, tuple, dict), "switch_case")
    items = list(branch_fns.items()) if isinstance(branch_fns, dict) else list(branch_fns)
    if all(callable(item) for item in items):
        items = list(enumerate(items))
    seen = set()
    for pair in items:
        _check_pair(pair, "branch_fns", "switch_case", type(branch_fns))
        key, function = pair
        if not isinstance(key, int):
            raise _wrong("The key's type", "branch_fns", "switch_case", int, type(key))
        if key in seen:
            raise UsageError(f"The key in 'branch_fns' must be unique, but '{key}' appears more than once.")
        seen.add(key)
        if not callable(function):
            what = f"The type of function for key {key}"
            raise _wrong(what, "branch_fns", "switch_case", "callable", type(function))
    return items


def _check_pair(pair: Any, argument: str, op_name: str, found: type) -> None:
    if not isinstance(pair, tuple):
        raise _wrong("The elements' type", argument, op_name, tuple, found)
    if len(pair) != 2:
        raise _wrong("The tuple's size", argument, op_name, "2", f"{len(pair)}-tuple")


def _wrong(what: str, argument: str, op_name: str, expected: Any, found: Any) -> ArgumentTypeError:
    return ArgumentTypeError(f"{what} of '{argument}' in {op_name} must be {expected}, but received: {found}.")


def _nested(pairs: Iterable[tuple[Variable, Branch]], default: Branch) -> Any:
    """cond within cond, the last pair outermost."""
    function = default
    for pred, true_fn in pairs:
        function = partial(cond, pred=pred, true_fn=true_fn, false_fn=function)
    return function()


# ---------------------------------------------------------------- Switch
class Switch:
    """`with Switch() as switch:`, then `with switch.case(condition):` … and `with switch.default():`.

    The first block whose condition is true runs; it assigns its results to variables created outside.
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self.pre_not_conditions: list[Variable] = []

    def case(self, condition: Variable) -> AbstractContextManager[None]:
        """The block that runs if this condition is the first true one."""
        if not self.inside_scope:
            raise UsageError("case should be called inside with")
        where = "the member function case of fluid.layers.Switch"
        check_variable_and_dtype(condition, "condition", ("bool",), where)
        if not self.pre_not_conditions:
            branch = ConditionalBlock([condition], is_scalar_condition=True)
            self.pre_not_conditions.append(logical_not(condition))
        else:
            none_before = self.pre_not_conditions[-1]
            self.pre_not_conditions.append(logical_and(none_before, logical_not(condition)))
            branch = ConditionalBlock([logical_and(none_before, condition)], is_scalar_condition=True)
        return branch.block()

    def default(self) -> AbstractContextManager[None]:
        """The block that runs if no condition is true."""
        if not self.pre_not_conditions:
            raise UsageError("there should be at least one condition")
        return ConditionalBlock([self.pre_not_conditions[-1]], is_scalar_condition=True).block()

    def __enter__(self) -> Switch:
        self.inside_scope = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.inside_scope = False
