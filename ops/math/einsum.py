"""einsum and other products of several matrices (Paddle 2.x): multi_dot, matrix_power, inverse."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.linalg.common import check_square
from fluidtool.ops.registry import op
from fluidtool.ops.schema import STRING, TensorMeta, required
from fluidtool.shapes import shape_text, shapes_text

EINSUM_ATTRS: dict[str, Any] = {"equation": required(STRING)}


@op("einsum", inputs="Operands*", outputs="Out InnerCache*~ XShape*~", attrs=EINSUM_ATTRS)
def einsum(ctx: OpContext, Operands: list[Any], *, equation: str) -> dict[str, Any]:
    """The sum of products that `equation` spells, as in numpy.einsum; the caches of Paddle's kernel stay empty."""
    terms, out = _terms(ctx, equation, [x.ndim for x in Operands])
    return {
        "Out": ctx.xp.einsum(f"{','.join(terms)}->{out}", *Operands, optimize=len(Operands) > 2),
        "XShape": [ctx.dims_only((0, *x.shape)) for x in Operands],
    }


@einsum.infer
def _(ctx: InferContext, Operands: list[TensorMeta], *, equation: str) -> dict[str, TensorMeta] | None:
    terms, out = _terms(ctx, equation, [x.rank for x in Operands])
    if "..." in equation:
        return None
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, Operands, strict=True):
        for label, size in zip(term, operand.shape, strict=True):
            sizes[label] = max(sizes.get(label, -1), size)
    return {"Out": TensorMeta(tuple(sizes[label] for label in out), Operands[0].dtype)}


@einsum.grad(inputs="Operands* InnerCache*? Out@GRAD", outputs="Operands@GRAD*")
def einsum_grad(
    ctx: OpContext, Operands: list[Any], InnerCache: list[Any], Out_grad: Any, *, equation: str
) -> dict[str, Any]:
    """The gradient by each operand: the einsum of dOut and the others, repeated along labels that stand nowhere else."""
    terms, out = _terms(ctx, equation, [x.ndim for x in Operands])
    if "..." in equation:
        raise ctx.error(f"the gradient of einsum with an ellipsis ({equation!r}) is not computed")
    grads = []
    for i, (term, operand) in enumerate(zip(terms, Operands, strict=True)):
        if len(set(term)) != len(term):
            raise ctx.error(f"the gradient of a diagonal ({term!r} in {equation!r}) is not computed")
        others = [(t, x) for k, (t, x) in enumerate(zip(terms, Operands, strict=True)) if k != i] + [(out, Out_grad)]
        known = {label for other, _ in others for label in other}
        alone = [k for k, label in enumerate(term) if label not in known]
        ones = ctx.xp.ones([operand.shape[k] for k in alone], operand.dtype)
        others.append(("".join(term[k] for k in alone), ones))
        names, values = zip(*others, strict=True)
        grads.append(ctx.xp.einsum(f"{','.join(names)}->{term}", *values))
    return {"Operands@GRAD": grads}


def _terms(ctx: OpContext | InferContext, equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, which is derived if the equation omits it."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    fits = len(terms) == len(ranks) and all(
        len(term.replace("...", "")) <= rank if "..." in term else len(term) == rank
        for term, rank in zip(terms, ranks, strict=True)
    )
    if not fits:
        raise ctx.error(f"equation {equation!r} does not fit operands of {ranks} dimensions")
    if not arrow:
        labels = left.replace(",", "").replace(".", "")
        once = sorted(label for label in set(labels) if labels.count(label) == 1)
        out = ("..." if "..." in left else "") + "".join(once)
    return terms, out


@op("multi_dot", inputs="X*", outputs="Out")
def multi_dot(ctx: OpContext, X: list[Any]) -> Any:
    """The product of all X, matrices, the first and the last perhaps vectors; multiplied in the cheapest order."""
    if len(X) < 2:
        raise ctx.error(f"X must hold at least 2 matrices, found {len(X)}")
    if not (all(x.ndim == 2 for x in X[1:-1]) and all(1 <= x.ndim <= 2 for x in X)):
        raise ctx.error(
            f"X must be matrices, the first and the last perhaps vectors; found shapes {shapes_text(x.shape for x in X)}"
        )
    chain = [
        x.reshape(1, -1) if not i and x.ndim == 1 else x.reshape(-1, 1) if x.ndim == 1 else x for i, x in enumerate(X)
    ]
    for i, (a, b) in enumerate(pairwise(chain)):
        if a.shape[1] != b.shape[0]:
            raise ctx.error(f"X[{i}] {shape_text(a.shape)} and X[{i + 1}] {shape_text(b.shape)} cannot be multiplied")
    shape = (X[0].shape[:-1] if X[0].ndim == 2 else ()) + (X[-1].shape[1:] if X[-1].ndim == 2 else ())
    return _multiplied(chain).reshape(shape)


def _multiplied(chain: list[Any]) -> Any:
    """Multiplies the chain in the order of the least work (dynamic programming over where to cut it)."""
    sizes = [chain[0].shape[0], *(x.shape[1] for x in chain)]
    count = len(chain)
    cost = [[0] * count for _ in range(count)]
    cut = [[0] * count for _ in range(count)]
    for span in range(1, count):
        for first in range(count - span):
            last = first + span
            options = [
                (cost[first][k] + cost[k + 1][last] + sizes[first] * sizes[k + 1] * sizes[last + 1], k)
                for k in range(first, last)
            ]
            cost[first][last], cut[first][last] = min(options)

    def product(first: int, last: int) -> Any:
        if first == last:
            return chain[first]
        k = cut[first][last]
        return product(first, k) @ product(k + 1, last)

    return product(0, count - 1)


@op("inverse", inputs="Input", outputs="Output")
def inverse(ctx: OpContext, Input: Any) -> Any:
    """The inverse of each square matrix in the last two dimensions."""
    check_square(ctx, Input.shape, "Input")
    return ctx.xp.linalg.inv(Input)


@inverse.infer
def _(ctx: InferContext, Input: TensorMeta) -> TensorMeta:
    check_square(ctx, Input.shape, "Input")
    return Input


@inverse.grad(inputs="Output Output@GRAD", outputs="Input@GRAD")
def inverse_grad(ctx: OpContext, Output: Any, Output_grad: Any) -> Any:
    """dInput = -Outputᵀ · dOutput · Outputᵀ."""
    turned = Output.swapaxes(-1, -2)
    return -(turned @ Output_grad @ turned)


@op("matrix_power", inputs="X", outputs="Out", attrs={"n": 1})
def matrix_power(ctx: OpContext, X: Any, *, n: int) -> Any:
    """Each square matrix in the last two dimensions to the whole power n, which may be negative."""
    check_square(ctx, X.shape, "X")
    return ctx.xp.linalg.matrix_power(X, n)


@matrix_power.infer
def _(ctx: InferContext, X: TensorMeta) -> TensorMeta:
    check_square(ctx, X.shape, "X")
    return X
