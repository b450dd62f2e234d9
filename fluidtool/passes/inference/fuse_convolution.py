"""`fuse-conv-bias`, `fuse-conv-residual`, `fuse-conv-activation`: convolutions take over what is done to their result.

The operator is conv2d_fusion: act(conv2d(Input, Filter) + Bias + ResidualData). Paddle 1.8.5 has it in its CUDA build
only; its CPU build refuses such a file. (conv2d itself has a Bias too, which Paddle reads with MKL-DNN on the CPU and
drops without a word elsewhere, so that it is no form to save.)
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.ir.surgery import copy_operator
from fluidtool.passes.inference.linear import channel_vector, channels, check_plain, narrowed
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import check_group, made_by
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewParameter, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

FUSED = "conv2d_fusion"
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
KEPT = ("strides", "paddings", "padding_algorithm", "groups", "dilations", "data_format", "op_role")
# The activations and the attributes for which conv2d_fusion computes the same.
ACTIVATIONS: dict[str, dict[str, float]] = {
    "relu": {},
    "sigmoid": {},
    "tanh": {},
    "relu6": {"threshold": 6.0},
    "swish": {"beta": 1.0},
    "hard_swish": {"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    "hard_sigmoid": {"slope": 0.2, "offset": 0.5},
}


# ---------------------------------------------------------------- bias
def fuse_bias(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """conv2d or depthwise_conv2d and the elementwise_add of a bias become conv2d_fusion, in place.

    Paddle 1.8.5 conv_elementwise_add_fuse_pass.cc.
    """

    def rule(match: MatchContext) -> Edit | None:
        conv = made_by(match, match.input("X"), *CONVOLUTIONS) if match.op.type == "elementwise_add" else None
        return None if conv is None else _with_bias(match, conv)

    return rewrite("fuse-conv-bias", rule, program, scope, keep)


def _with_bias(add: MatchContext, conv: MatchContext) -> Edit:
    check_plain(conv)
    if conv.op.get_attr("data_format", "NCHW") not in ("NCHW", "AnyLayout"):
        raise NoMatch("conv2d_fusion supports NCHW only")
    if conv.op.get_attr("fuse_relu_before_depthwise_conv", False) or conv.input("Bias"):
        raise NoMatch(f"the {conv.op.type} already has a bias or begins with a relu")
    count = channels(conv)
    name, values = channel_vector(conv, add, 4, 1, count)
    parameters: tuple[NewParameter, ...] = ()
    if add.array(name).shape != (count,):
        flat = add.new_parameter(f"{name}_flat", narrowed(values.astype("float64"), values.dtype), name)
        name, parameters = flat.name, (flat,)
    inputs = {"Input": conv.op.input("Input"), "Filter": conv.op.input("Filter"), "Bias": [name]}
    attrs = {key: conv.op.attr(key) for key in KEPT if conv.op.has_attr(key)} | {"activation": "identity"}
    fused = add.new_operator(FUSED, inputs, {"Output": add.op.output("Out")}, attrs)
    given = [(conv, conv.input(slot)) for slot in ("Input", "Filter")]
    group = check_group([conv, add], add.output("Out"), given)
    return Edit(group, add.position, (fused,), f"{conv.op.type} with its bias", parameters)


# ---------------------------------------------------------------- residual
def fuse_residual(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """conv2d_fusion and the elementwise_add of something of its shape become one, in place (…_add2_act_fuse_pass.cc)."""

    def rule(match: MatchContext) -> Edit | None:
        if match.op.type != "elementwise_add":
            return None
        x, y = match.input("X"), match.input("Y")
        pairs = [(conv, other) for name, other in ((x, y), (y, x)) if (conv := _bare(match, name)) is not None]
        return _first_that_fits(match, pairs) if pairs else None

    return rewrite("fuse-conv-residual", rule, program, scope, keep)


def _bare(match: MatchContext, name: str) -> MatchContext | None:
    conv = made_by(match, name, FUSED)
    bare = conv is not None and conv.op.get_attr("activation", "relu") == "identity"
    return conv if bare and not conv.op.inputs.get("ResidualData") else None  # type: ignore[union-attr]


def _first_that_fits(add: MatchContext, pairs: list[Use]) -> Edit:
    reason = NoMatch("")
    for conv, other in pairs:
        try:
            return _with_residual(add, conv, other)
        except NoMatch as unfit:
            reason = unfit
    raise reason


def _with_residual(add: MatchContext, conv: MatchContext, other: str) -> Edit:
    result = conv.output("Output")
    shapes = [var.shape for name in (result, other) if (var := add.block.find_var_recursive(name)) and var.has_shape]
    if other == result or len(shapes) != 2 or shapes[0] != shapes[1] or len(shapes[0]) != 4:
        raise NoMatch(f"{other} is not declared in the shape of {result}")
    if int(add.op.get_attr("axis", -1)) not in (-1, 0):
        raise NoMatch("the elementwise_add aligns its operands along another axis")
    return _absorbed(conv, add, {"ResidualData": [other]}, {}, [(add, other)])


# ---------------------------------------------------------------- activation
def fuse_activation(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """conv2d_fusion and the activation of its result become one, in place (conv_elementwise_add_act_fuse_pass.cc)."""

    def rule(match: MatchContext) -> Edit | None:
        if match.op.type not in ACTIVATIONS:
            return None
        conv = made_by(match, match.input("X"), FUSED)
        if conv is None or conv.op.get_attr("activation", "relu") != "identity":
            return None
        for name, value in ACTIVATIONS[match.op.type].items():
            if abs(float(match.op.get_attr(name, value)) - value) > 1e-7:
                raise NoMatch(f"attribute {name} of {match.op.type} is {match.op.attr(name):g}, not {value:g}")
        return _absorbed(conv, match, {}, {"activation": match.op.type}, [])

    return rewrite("fuse-conv-activation", rule, program, scope, keep)


def _absorbed(
    conv: MatchContext, last: MatchContext, inputs: dict[str, list[str]], attrs: dict[str, str], more: list[Use]
) -> Edit:
    """The edit by which a conv2d_fusion takes over the operator that alone reads its result."""
    given = [(conv, name) for name in conv.op.input_arg_names] + more
    group = check_group([conv, last], last.output("Out"), given)
    op = copy_operator(conv.op, conv.block)
    op.set_output("Output", last.op.output("Out"))
    for slot, names in inputs.items():
        op.set_input(slot, names)
    for name, value in attrs.items():
        op.set_attr(name, value)
    return Edit(group, last.position, (op,), f"{last.op.type} is a part of {FUSED}")
