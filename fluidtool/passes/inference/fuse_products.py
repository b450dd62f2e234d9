"""`fuse-squared-mat-sub` and `fuse-sequence-conv`: (XY)² - X²Y², and sequence_conv with bias and relu, as one operator."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.ir.surgery import copy_operator
from fluidtool.passes.inference.linear import channel_vector
from fluidtool.passes.inference.matching import check_group, float_type, made_by, same_value, scalar
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewVariable, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope
from fluidtool.shapes import shape_text

SQUARED = "fusion_squared_mat_sub"


# ---------------------------------------------------------------- (XY)^2 - X^2 Y^2
def fuse_squared_mat_sub(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """square(X Y) - square(X) square(Y), times a number, becomes fusion_squared_mat_sub, in place.

    The second-order term of factorisation machines (Paddle 1.8.5 squared_mat_sub_fuse_pass.cc).
    """

    def rule(match: MatchContext) -> Edit | None:
        if match.op.type == "elementwise_sub":
            return _difference(match)
        if match.op.type in ("scale", "elementwise_mul"):
            fused = made_by(match, match.input("X"), SQUARED)
            return None if fused is None else _times(match, fused)
        return None

    return rewrite("fuse-squared-mat-sub", rule, program, scope, keep)


def _difference(sub: MatchContext) -> Edit | None:
    squared_product = made_by(sub, sub.input("X"), "square")
    product_of_squares = made_by(sub, sub.input("Y"), "matmul", "mul")
    if squared_product is None or product_of_squares is None:
        return None
    product = made_by(squared_product, squared_product.input("X"), "matmul", "mul")
    left, right = (made_by(product_of_squares, product_of_squares.input(slot), "square") for slot in ("X", "Y"))
    if product is None or left is None or right is None:
        return None
    x, y = product.input("X"), product.input("Y")
    if not (same_value(product, x, left, left.input("X")) and same_value(product, y, right, right.input("X"))):
        raise NoMatch("the squares are not those of the factors of the product")
    for each in (product, product_of_squares):
        _check_matrices(each)
    parts = [product, squared_product, left, right, product_of_squares, sub]
    group = check_group(parts, sub.output("Out"), [(product, x), (product, y)])
    outputs = {
        "SquaredX": left.op.output("Out"),
        "SquaredY": right.op.output("Out"),
        "SquaredXY": squared_product.op.output("Out"),
        "Out": sub.op.output("Out"),
    }
    fused = sub.new_operator(SQUARED, {"X": [x], "Y": [y]}, outputs, {"scalar": 1.0})
    return Edit(group, sub.position, (fused,), "the square of a product minus the product of the squares")


def _check_matrices(product: MatchContext) -> None:
    op = product.op
    if op.get_attr("transpose_X", False) or op.get_attr("transpose_Y", False) or op.get_attr("alpha", 1.0) != 1.0:
        raise NoMatch("the product transposes or scales")
    for slot in ("X", "Y"):
        if rank(product.block, product.input(slot)) != 2 or not float_type(product, product.input(slot)):
            raise NoMatch(f"{product.input(slot)} is not declared as a matrix of floating-point numbers")


def _times(match: MatchContext, fused: MatchContext) -> Edit | None:
    if match.op.type == "scale":
        plain = not match.op.inputs.get("ScaleTensor") and float(match.op.get_attr("bias", 0.0)) == 0.0
        factor = float(match.op.get_attr("scale", 1.0)) if plain else None
    else:
        factor = scalar(match, match.input("Y"))
    if factor is None:
        return None
    group = check_group([fused, match], match.output("Out"), [(fused, fused.input("X")), (fused, fused.input("Y"))])
    op = copy_operator(fused.op, fused.block)
    op.set_attr("scalar", float(fused.op.get_attr("scalar", 1.0)) * factor)
    op.set_output("Out", match.op.output("Out"))
    return Edit(group, match.position, (op,), f"times {factor:g}")


# ---------------------------------------------------------------- sequence_conv
def fuse_sequence_conv(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """sequence_conv, elementwise_add of a bias and relu become fusion_seqconv_eltadd_relu, in place.

    Paddle 1.8.5 seqconv_eltadd_relu_fuse_pass.cc. A context that starts after its row is left: Paddle's fused operator
    computes something else there.
    """

    def rule(match: MatchContext) -> Edit | None:
        add = made_by(match, match.input("X"), "elementwise_add") if match.op.type == "relu" else None
        conv = made_by(add, add.input("X"), "sequence_conv") if add is not None else None
        return None if add is None or conv is None else _sequence_conv(conv, add, match)

    return rewrite("fuse-sequence-conv", rule, program, scope, keep)


def _sequence_conv(conv: MatchContext, add: MatchContext, relu: MatchContext) -> Edit:
    op = conv.op
    length, start = int(op.get_attr("contextLength", 1)), int(op.get_attr("contextStart", 0))
    if op.get_attr("paddingTrainable", False) or int(op.get_attr("contextStride", 1)) != 1:
        raise NoMatch("its padding is trained or its context has a stride")
    if not -length < start <= 0:
        raise NoMatch(f"its context of {length} rows starts {start} rows from its own row and so leaves it out")
    if not float_type(conv, conv.input("X")):
        raise NoMatch(f"{conv.input('X')} is neither float32 nor float64")
    count = int(conv.numbers(conv.input("Filter")).shape[1])
    bias, _ = channel_vector(conv, add, 2, 1, count)
    if add.array(bias).size != count:
        raise NoMatch(f"{bias} of shape {shape_text(add.array(bias).shape)} is not one number per column ({count})")
    group = check_group([conv, add, relu], relu.output("Out"), [(conv, conv.input("X"))])
    inputs = {"X": op.input("X"), "Filter": op.input("Filter"), "Bias": [bias]}
    columns = NewVariable(relu.fresh_name(f"{relu.output('Out')}_columns"), relu.output("Out"))
    outputs = {"Out": relu.op.output("Out"), "ColMat": [columns.name]}
    attrs = {"contextLength": length, "contextStart": start, "contextStride": 1}
    fused = relu.new_operator("fusion_seqconv_eltadd_relu", inputs, outputs, attrs)
    return Edit(group, relu.position, (fused,), "sequence_conv with bias and relu", variables=(columns,))
