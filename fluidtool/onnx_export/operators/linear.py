"""Products of vectors, matrices and stacks of them."""

from __future__ import annotations

import numpy as np

from fluidtool.onnx_export import ragged
from fluidtool.onnx_export.graph import Graph, Value
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.operators.activation import activated
from fluidtool.onnx_export.registry import need, renders


def matrix(x: Value, columns: int) -> Value:
    """As a matrix: the first `columns` axes are its rows."""
    if x.rank == 2 and columns == 1:
        return x
    return x.reshape([x.merged(0, columns), x.merged(columns, x.rank)])


@renders("mul")
def mul(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    rows, columns = op.attr("x_num_col_dims"), op.attr("y_num_col_dims")
    if y.rank == 2 and columns == 1 and x.rank == rows + 1:
        return x @ y
    product = matrix(x, rows) @ matrix(y, columns)
    return product.reshape([*x.sizes()[:rows], *y.sizes()[columns:]])


@renders("matmul")
def matmul(g: Graph, op: Operation) -> Value:
    """A vector X counts as a row, a vector Y as a column."""
    x, y = op["X"], op["Y"]
    need(op.attr("head_number") == 1, "a product by heads")
    row, column = x.rank == 1, y.rank == 1
    x, y = x.unsqueeze(0) if row else x, y.unsqueeze(1) if column else y
    out = product(g, x.swap() if op.attr("transpose_X") else x, y.swap() if op.attr("transpose_Y") else y)
    if row or column:
        out = out.reshape(list(op.shape())) if min(op.shape(), default=0) >= 0 else _without_ones(out, row, column)
    out = out if op.attr("alpha") == 1.0 else out * op.attr("alpha")
    if op.attr("fused_transpose_Out"):
        out = out.transpose(*op.attr("fused_transpose_Out"))
    if op.attr("fused_reshape_Out"):
        out = out.reshape([out.dim(i) if size == 0 else size for i, size in enumerate(op.attr("fused_reshape_Out"))])
    return out


def _without_ones(out: Value, row: bool, column: bool) -> Value:
    """Without the axis of a vector, where it has size 1."""
    axes = [axis for axis, vector in ((out.rank - 2, row), (out.rank - 1, column)) if vector]
    return out.squeeze(*(axis for axis in axes if (out.shape or ())[axis] == 1))


def product(g: Graph, x: Value, y: Value) -> Value:
    """x @ y, in a data type that there is a kernel for."""
    if x.dtype.kind in "iu":
        return (x.cast(np.float64) @ y.cast(np.float64)).cast(x.dtype)
    return x @ y


@renders("matmul_v2", "bmm", "mv")
def matmul_v2(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Vec" if op.type == "mv" else "Y"]
    if op.attr("trans_x", False) and x.rank > 1:
        x = x.swap()
    if op.attr("trans_y", False) and y.rank > 1:
        y = y.swap()
    out = product(g, x, y).shaped(op.shape())
    return out.reshape([1]) if x.rank == y.rank == 1 and op.shape() == (1,) else out


@renders("dot")
def dot(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    keep = len(op.shape()) == x.rank
    return (x * y).sum(-1, keepdims=keep)


@renders("addmm")
def addmm(g: Graph, op: Operation) -> Value:
    return op["Input"] * op.attr("Beta") + (op["X"] @ op["Y"]) * op.attr("Alpha")


@renders("multi_dot")
def multi_dot(g: Graph, op: Operation) -> Value:
    out, *rest = op.all("X")
    for matrix_ in rest:
        out = out @ matrix_
    return out


@renders("matrix_power")
def matrix_power(g: Graph, op: Operation) -> Value:
    x, n = op["X"], op.attr("n")
    need(n >= 0, "inverses of matrices")
    if n == 0:
        return (x * 0) + g.constant(np.eye(x.size(-1), dtype=x.dtype))
    out = x
    for _ in range(n - 1):
        out = out @ x
    return out


@renders("kron")
def kron(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    rank = max(x.rank, y.rank)
    x, y = x.unsqueeze(*range(rank - x.rank)), y.unsqueeze(*range(rank - y.rank))
    product = x.unsqueeze(*range(1, 2 * rank, 2)) * y.unsqueeze(*range(0, 2 * rank, 2))
    sizes = []
    for a, b in zip(x.sizes(), y.sizes(), strict=True):
        sizes.append(b * a if isinstance(b, Value) else a * b)
    return product.reshape(sizes)


@renders("cross")
def cross(g: Graph, op: Operation) -> Value:
    x, y, axis = op["X"], op["Y"], op.attr("dim")
    if axis == 9 or axis >= x.rank:
        axis = next((i for i, n in enumerate(x.shape or ()) if n == 3), -1)
        need(axis >= 0, "no axis of size 3")
    after, before = g.constant([1, 2, 0], np.int64), g.constant([2, 0, 1], np.int64)
    return x.gather(after, axis) * y.gather(before, axis) - x.gather(before, axis) * y.gather(after, axis)


@renders("einsum")
def einsum(g: Graph, op: Operation) -> Value:
    return g.op("Einsum", *op.all("Operands"), equation=op.attr("equation").replace(" ", ""))


@renders("bilinear_tensor_product")
def bilinear(g: Graph, op: Operation) -> Value:
    x, y, weight, bias = op["X"], op["Y"], op["Weight"], op.get("Bias")
    left = x.unsqueeze(0) @ weight  # [K, N, Q]
    out = (left * y.unsqueeze(0)).sum(-1).swap()
    return out if bias is None else out + bias.reshape([1, -1])


@renders("fc")
def fully_connected(g: Graph, op: Operation) -> Value:
    x, weights, columns = op["Input"], op["W"], op.attr("in_num_col_dims")
    need(not op.attr("padding_weights"), "weights with padding")
    out = x @ weights if x.rank == columns + 1 else matrix(x, columns) @ weights
    bias = op.get("Bias")
    if bias is not None:
        out = out + bias.flat()
    if x.rank != columns + 1:
        out = out.reshape([*x.sizes()[:columns], weights.dim(1)])
    return activated(g, out, op.attr("activation_type"))


@renders("fusion_repeated_fc_relu")
def repeated_fc(g: Graph, op: Operation) -> dict[str, Value]:
    out = op["X"]
    for weights, bias in zip(op.all("W"), op.all("Bias"), strict=True):
        out = (out @ weights + bias.flat()).apply("Relu")
    return {"Out": out}


@renders("fusion_squared_mat_sub")
def squared_difference(g: Graph, op: Operation) -> dict[str, Value]:
    x, y = op["X"], op["Y"]
    product = x @ y
    return {"Out": (product * product - (x * x) @ (y * y)) * op.attr("scalar")}


@renders("fsp")
def fsp(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    cells = [x.merged(2, 4)]
    left, right = x.reshape([*x.sizes()[:2], *cells]), y.reshape([*y.sizes()[:2], *cells])
    area = x.dim_value(2) * x.dim_value(3)
    return (left @ right.swap()) / area.cast(x.dtype)


@renders("cos_sim")
def cos_sim(g: Graph, op: Operation) -> dict[str, Value]:
    x, y = op["X"], op["Y"]
    x, y = matrix(x, 1), matrix(y, 1)
    norms = [(v * v).sum(1, keepdims=True).apply("Sqrt") for v in (x, y)]
    return {"Out": (x * y).sum(1, keepdims=True) / (norms[0] * norms[1]), "XNorm": norms[0], "YNorm": norms[1]}


@renders("conv_shift")
def conv_shift(g: Graph, op: Operation) -> Value:
    x, y = op["X"], op["Y"]
    n, m = x.size(1), y.size(1)
    places = (np.arange(n)[:, None] + np.arange(m)[None, :] - (m - 1) // 2) % n
    return (x.gather(g.constant(places, np.int64), 1) * y.unsqueeze(1)).sum(2)


@renders("row_conv")
def row_conv(g: Graph, op: Operation) -> Value:
    x, weights = op["X"], op["Filter"]
    inside = None
    if x.rank == 2:
        lengths = op.lengths("X")
        x, inside = (x.unsqueeze(0), None) if lengths is None else ragged.padded(g, x, lengths)
    steps = weights.size(0)
    padded = x.pad([0, 0, 0], [0, steps - 1, 0])
    out = None
    for step in range(steps):
        end = x.dim(1) + step if isinstance(x.dim(1), int) else x.dim_value(1) + step
        term = padded.part(1, step, end) * weights.pick(0, step)
        out = term if out is None else out + term
    need(out is not None, "a filter without rows")
    assert out is not None
    if inside is not None:
        return ragged.packed(g, out, inside)
    return out if op["X"].rank == 3 else out.squeeze(0)
