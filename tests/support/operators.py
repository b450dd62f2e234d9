"""Run one operator, and check its gradient by central differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fluidtool.ir import Program
from fluidtool.ops.gradient import make_grad_ops
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDRankTable, LoDTensor, LoDTensorArray, SelectedRows

_KINDS = {
    SelectedRows: VarType.SELECTED_ROWS,
    LoDTensorArray: VarType.LOD_TENSOR_ARRAY,
    LoDRankTable: VarType.LOD_RANK_TABLE,
}


VALUES = (LoDTensor, *_KINDS)


def lod_tensor(array: Any, lengths: Sequence[Sequence[int]]) -> LoDTensor:
    """A LoDTensor from an array and sequence lengths."""
    tensor = LoDTensor(np.asarray(array))
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


class OneOp:
    """A program of one operator: inputs by slot (a value, or a list of values for a `*` slot)."""

    def __init__(
        self,
        op_type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, int] | None = None,
    ) -> None:
        info = get_op(op_type)
        self.program = Program()
        block = self.program.global_block()
        self.feed: dict[str, Any] = {}
        names: dict[str, list[str]] = {}
        for slot, value in inputs.items():
            items = value if isinstance(value, list) and not isinstance(value, LoDTensorArray) else [value]
            names[slot] = [f"{slot}{i}" for i in range(len(items))]
            for name, item in zip(names[slot], items, strict=True):
                self.feed[name] = item if isinstance(item, VALUES) else np.asarray(item)
                block.create_var(name=name, type=_KINDS.get(type(item), VarType.LOD_TENSOR))
        counts = {slot.name: 1 for slot in info.outputs} | dict(outputs or {})
        self.outputs = {slot: [f"{slot}{i}@out" for i in range(count)] for slot, count in counts.items() if count}
        for out_names in self.outputs.values():
            for name in out_names:
                block.create_var(name=name)
        block.append_op(type=op_type, inputs=names, outputs=self.outputs, attrs=dict(attrs or {}))

    def run(self, feed: Mapping[str, Any] | None = None, fetch: Sequence[str] | None = None) -> list[Any]:
        """Values of `fetch` (names), computed from the inputs given."""
        scope = Scope()
        for name, value in (self.feed if feed is None else feed).items():
            scope.var(name).value = value if isinstance(value, VALUES) else LoDTensor(value)
        for name in self.feed:
            self.program.global_block().vars[name].persistable = True
        return Executor(seed=7).run(self.program, {}, list(fetch or []), scope)


def run_op(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, int] | None = None,
    fetch: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Outputs by slot: a LoDTensor (SelectedRows, …), or a list of them where `outputs` says more than one.

    `outputs` gives the number of variables of a `*` slot (0 leaves a slot out); `fetch` the slots to read (default:
    all).
    """
    one = OneOp(op_type, inputs, attrs, outputs)
    slots = list(fetch) if fetch is not None else list(one.outputs)
    values = iter(one.run(fetch=[name for slot in slots for name in one.outputs[slot]]))
    got = {slot: [next(values) for _ in one.outputs[slot]] for slot in slots}
    several = {slot for slot, count in (outputs or {}).items() if count != 1}
    return {slot: items if slot in several else items[0] for slot, items in got.items()}


def check_gradient(
    op_type: str,
    inputs: Mapping[str, Any],
    wrt: Sequence[str],
    attrs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, int] | None = None,
    loss: Sequence[str] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    step: float = 1e-5,
) -> None:
    """Assert that the gradient operators of `op_type` agree with central differences in float64.

    The loss is a fixed random weighting of the outputs in the slots `loss` (default: the first output slot). `wrt` are
    input slots; their values must be float64.
    """
    one = OneOp(op_type, inputs, attrs, outputs)
    block = one.program.global_block()
    loss_slots = list(loss) if loss is not None else [get_op(op_type).outputs[0].name]
    loss_names = [name for slot in loss_slots for name in one.outputs[slot]]
    rng = np.random.default_rng(3)
    weights = [rng.uniform(0.5, 1.5, value.numpy().shape) for value in one.run(fetch=loss_names)]
    wanted = [name for slot in wrt for name in block.ops[0].input(slot)]
    unwanted = {name + "@GRAD" for name in block.ops[0].input_arg_names if name not in wanted}

    descriptions = make_grad_ops(block.ops[0], unwanted)
    assert descriptions, f"{op_type} has no gradient"
    all_outputs = [name for names in one.outputs.values() for name in names]
    zeros = {
        name: np.zeros_like(v.numpy())
        for name, v in zip(all_outputs, one.run(fetch=all_outputs), strict=True)
        if v.is_initialized()
    }
    fed = {f"{n}@GRAD": z for n, z in zeros.items()} | {
        f"{n}@GRAD": w for n, w in zip(loss_names, weights, strict=True)
    }
    for description in descriptions:
        for name in {n for names in description.outputs.values() for n in names} - {"@EMPTY@"}:
            block.create_var(name=name)
        for name in {n for names in description.inputs.values() for n in names} & set(fed):
            block.create_var(name=name)
        description.insert(block)
    scope = Scope()
    for name, value in one.feed.items():
        block.vars[name].persistable = True
        scope.var(name).value = value if isinstance(value, LoDTensor) else LoDTensor(value)
    grads = Executor(seed=7).run(one.program, fed, [name + "@GRAD" for name in wanted], scope)

    forward = OneOp(op_type, inputs, attrs, outputs)
    for name, grad in zip(wanted, grads, strict=True):
        analytic = dense(grad)
        base = one.feed[name]
        array = base.numpy() if isinstance(base, LoDTensor) else base
        assert array.dtype == np.float64, f"{name} must be float64"
        numeric = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            values = []
            for sign in (1.0, -1.0):
                moved = array.copy()
                moved[index] += sign * step
                value = LoDTensor(moved, base.lod()) if isinstance(base, LoDTensor) else moved
                out = forward.run(feed={**forward.feed, name: value}, fetch=loss_names)
                values.append(sum(float((w * o.numpy()).sum()) for w, o in zip(weights, out, strict=True)))
            numeric[index] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(analytic, numeric, rtol=rtol, atol=atol, err_msg=f"gradient of {op_type} by {name}")


def dense(value: Any) -> np.ndarray[Any, Any]:
    """A gradient as a dense array: SelectedRows rows add up."""
    if isinstance(value, SelectedRows):
        full = np.zeros((value.table_height, *value.value.shape[1:]), dtype=value.value.dtype)
        np.add.at(full, value.row_ids, value.value)
        return full
    array: np.ndarray[Any, Any] = value.numpy()
    return array
