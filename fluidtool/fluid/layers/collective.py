"""Layers that trainers compute together, `fluid.layers.collective` of Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.ir import Variable, unique_name

_REDUCE_TYPES = ("sum", "prod", "max", "min")


def _allreduce(x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False) -> Variable:
    """The sum, product, largest or smallest of what x holds in every trainer."""
    _check_reduce_type(reduce_type)
    out = _like(x, "tmp", x.shape, stop_gradient=True) if out is None else out
    return _append("allreduce", x, out, reduce_type=_REDUCE_TYPES.index(reduce_type), sync_mode=sync_mode)


def _broadcast(x: Variable, root: int, sync_mode: bool = False) -> Variable:
    """What x holds in the trainer `root`, in x."""
    return _append("broadcast", x, x, sync_mode=sync_mode, root=root)


def _c_allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """The sum, product, largest or smallest of what x holds in every trainer of a ring."""
    _check_reduce_type(reduce_type)
    op_type = f"c_allreduce_{reduce_type}"
    out = _like(x, op_type, x.shape) if out is None else out
    return _append(op_type, x, out, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_broadcast(x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """What x holds in the trainer `root` of a ring, in x."""
    return _append("c_broadcast", x, x, root=root, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_allgather(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """The rows of x of every trainer, one after the other."""
    rows = x.shape[0] * nranks if x.shape[0] > 0 else x.shape[0]
    out = _like(x, "c_allgather", (rows, *x.shape[1:]))
    return _append("c_allgather", x, out, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_reducescatter(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Variable:
    """The sum of x over all trainers, of which each has its part of the rows."""
    if not isinstance(x, Variable):
        raise ArgumentTypeError(f"x must be a Variable, found {type(x).__name__}")
    if x.shape[0] > 0 and x.shape[0] % nranks:
        raise UsageError(f"x.shape[0]({x.shape[0]}) cannot be evenly divided by nranks({nranks})")
    rows = x.shape[0] // nranks if x.shape[0] > 0 else x.shape[0]
    out = _like(x, "c_reducescatter", (rows, *x.shape[1:]))
    return _append("c_reducescatter", x, out, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_sync_calc_stream(x: Variable) -> Variable:
    """Wait until x is computed."""
    return _append("c_sync_calc_stream", x, x)


def _c_sync_comm_stream(x: Variable, ring_id: int) -> Variable:
    """Wait until x is exchanged."""
    return _append("c_sync_comm_stream", x, x, ring_id=ring_id)


def _check_reduce_type(reduce_type: str) -> None:
    if reduce_type not in _REDUCE_TYPES:
        raise ArgumentTypeError(f"reduce type can only be [sum|prod|max|min], found {reduce_type!r}")


def _like(x: Variable, suffix: str, shape: tuple[int, ...], stop_gradient: bool = False) -> Variable:
    return LayerHelper(suffix).create_variable(
        name=unique_name.generate(f"{x.name}.{suffix}"),
        shape=shape,
        dtype=x.dtype,
        type=x.type,
        persistable=x.persistable,
        stop_gradient=stop_gradient,
    )


def _append(op_type: str, x: Variable, out: Variable, **attrs: Any) -> Variable:
    LayerHelper(op_type).append_op(type=op_type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out
