"""`fuse-fc` and `fuse-repeated-fc`: products with bias and relu become `fc`, rows of them fusion_repeated_fc_relu."""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.ir.surgery import copy_operator
from fluidtool.passes.inference.linear import channel_vector, channels, check_plain, output_rank
from fluidtool.passes.inference.matching import check_group, float_type, made_by, only_reader
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope
from fluidtool.shapes import shape_text

PRODUCTS = ("mul", "matmul")


# ---------------------------------------------------------------- fc
def fuse_fc(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """mul or matmul by a parameter, elementwise_add of a bias, and relu become one fc, in place (fc_fuse_pass.cc).

    The weight stays as it is: Paddle's padding of weights (padding_weights) is a matter of its kernels.
    """

    def rule(match: MatchContext) -> Edit | None:
        if match.op.type == "elementwise_add":
            product = made_by(match, match.input("X"), *PRODUCTS)
            return None if product is None else _with_bias(match, product)
        if match.op.type == "relu":
            fc = made_by(match, match.input("X"), "fc")
            return None if fc is None or fc.op.get_attr("activation_type", "") else _with_relu(match, fc)
        return None

    return rewrite("fuse-fc", rule, program, scope, keep)


def _with_bias(add: MatchContext, product: MatchContext) -> Edit:
    check_plain(product)
    if not float_type(product, product.input("Y")):
        raise NoMatch(f"{product.input('Y')} is neither float32 nor float64")
    columns = _columns(product)
    count = channels(product)
    name, _ = channel_vector(product, add, columns + 1, columns, count)
    if add.array(name).shape not in ((count,), (1, count)):
        raise NoMatch(f"{name} of shape {shape_text(add.array(name).shape)} is not one number per column ({count})")
    inputs = {"Input": product.op.input("X"), "W": product.op.input("Y"), "Bias": [name]}
    attrs = {"in_num_col_dims": columns, "activation_type": ""}
    fc = add.new_operator("fc", inputs, {"Out": add.op.output("Out")}, attrs)
    group = check_group([product, add], add.output("Out"), [(product, product.input("X"))])
    return Edit(group, add.position, (fc,), f"{product.op.type} and elementwise_add are an fc")


def _columns(product: MatchContext) -> int:
    """in_num_col_dims of the fc that a product is; raises NoMatch when it is none."""
    op = product.op
    if op.type == "mul":
        if int(op.get_attr("y_num_col_dims", 1)) != 1 or product.numbers(product.input("Y")).ndim != 2:
            raise NoMatch("the weight of the mul is not a matrix")
        return int(op.get_attr("x_num_col_dims", 1))
    if op.get_attr("transpose_X", False) or op.get_attr("transpose_Y", False) or op.get_attr("alpha", 1.0) != 1.0:
        raise NoMatch("the matmul transposes or scales")
    return output_rank(product) - 1


def _with_relu(relu: MatchContext, fc: MatchContext) -> Edit:
    group = check_group([fc, relu], relu.output("Out"), [(fc, fc.input("Input"))])
    op = copy_operator(fc.op, fc.block)
    op.set_attr("activation_type", "relu")
    op.set_output("Out", relu.op.output("Out"))
    return Edit(group, relu.position, (op,), "relu is a part of fc")


# ---------------------------------------------------------------- rows of fc
def fuse_repeated_fc(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Two or more fc with relu, each the only reader of the one before, become one operator, in place.

    Paddle 1.8.5 repeated_fc_relu_fuse_pass.cc.
    """

    def rule(match: MatchContext) -> Edit | None:
        if not _is_layer(match) or _next_layer(match) is not None:
            return None
        chain = [match]
        while (before := made_by(chain[0], chain[0].input("Input"), "fc")) is not None and _next_layer(
            before
        ) is not None:
            chain.insert(0, before)
        return _row(chain) if len(chain) > 1 else None

    return rewrite("fuse-repeated-fc", rule, program, scope, keep)


def _is_layer(match: MatchContext) -> bool:
    op = match.op
    return (
        op.type == "fc"
        and op.get_attr("activation_type", "") == "relu"
        and int(op.get_attr("in_num_col_dims", 1)) == 1
        and bool(op.input("Bias"))
        and not op.get_attr("padding_weights", False)
        and rank(match.block, match.input("Input")) == 2
    )


def _next_layer(match: MatchContext) -> MatchContext | None:
    """The fc with relu that alone reads what this one computes."""
    found = only_reader(match, match.output("Out"), "fc") if _is_layer(match) else None
    reads = found is not None and found.input("Input") == match.output("Out") and _is_layer(found)
    return found if reads and not match.why_wanted(match.output("Out")) else None


def _row(chain: list[MatchContext]) -> Edit:
    first, last = chain[0], chain[-1]
    inputs = {
        "X": first.op.input("Input"),
        "W": [match.input("W") for match in chain],
        "Bias": [match.input("Bias") for match in chain],
    }
    given = [(first, first.input("Input"))] + [(match, match.input(slot)) for match in chain for slot in ("W", "Bias")]
    group = check_group(chain, last.output("Out"), given)
    outputs = {"ReluOut": [match.output("Out") for match in chain[:-1]], "Out": last.op.output("Out")}
    row = last.new_operator("fusion_repeated_fc_relu", inputs, outputs, {})
    return Edit(group, last.position, (row,), f"a chain of {len(chain)} fc with relu")
