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
from fluidtool.passes.inference.matching import check_group, made_by
from fluidtool.passes.inference.rewriting import Edit, NewParameter, Site, Unfit, rewrite
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

    def rule(site: Site) -> Edit | None:
        conv = made_by(site, site.input("X"), *CONVOLUTIONS) if site.op.type == "elementwise_add" else None
        return None if conv is None else _with_bias(site, conv)

    return rewrite("fuse-conv-bias", rule, program, scope, keep)


def _with_bias(add: Site, conv: Site) -> Edit:
    check_plain(conv)
    if conv.op.get_attr("data_format", "NCHW") not in ("NCHW", "AnyLayout"):
        raise Unfit("conv2d_fusion knows NCHW only")
    if conv.op.get_attr("fuse_relu_before_depthwise_conv", False) or conv.input("Bias"):
        raise Unfit(f"the {conv.op.type} has a bias of its own or begins with a relu")
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

    def rule(site: Site) -> Edit | None:
        if site.op.type != "elementwise_add":
            return None
        x, y = site.input("X"), site.input("Y")
        pairs = [(conv, other) for name, other in ((x, y), (y, x)) if (conv := _bare(site, name)) is not None]
        return _first_that_fits(site, pairs) if pairs else None

    return rewrite("fuse-conv-residual", rule, program, scope, keep)


def _bare(site: Site, name: str) -> Site | None:
    conv = made_by(site, name, FUSED)
    bare = conv is not None and conv.op.get_attr("activation", "relu") == "identity"
    return conv if bare and not conv.op.inputs.get("ResidualData") else None  # type: ignore[union-attr]


def _first_that_fits(add: Site, pairs: list[tuple[Site, str]]) -> Edit:
    reason = Unfit("")
    for conv, other in pairs:
        try:
            return _with_residual(add, conv, other)
        except Unfit as unfit:
            reason = unfit
    raise reason


def _with_residual(add: Site, conv: Site, other: str) -> Edit:
    result = conv.output("Output")
    shapes = [var.shape for name in (result, other) if (var := add.block.find_var_recursive(name)) and var.has_shape]
    if other == result or len(shapes) != 2 or shapes[0] != shapes[1] or len(shapes[0]) != 4:
        raise Unfit(f"{other} is not declared in the shape of {result}")
    if int(add.op.get_attr("axis", -1)) not in (-1, 0):
        raise Unfit("the elementwise_add aligns its operands along another axis")
    return _absorbed(conv, add, {"ResidualData": [other]}, {}, [(add, other)])


# ---------------------------------------------------------------- activation
def fuse_activation(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """conv2d_fusion and the activation of its result become one, in place (conv_elementwise_add_act_fuse_pass.cc)."""

    def rule(site: Site) -> Edit | None:
        if site.op.type not in ACTIVATIONS:
            return None
        conv = made_by(site, site.input("X"), FUSED)
        if conv is None or conv.op.get_attr("activation", "relu") != "identity":
            return None
        for name, value in ACTIVATIONS[site.op.type].items():
            if abs(float(site.op.get_attr(name, value)) - value) > 1e-7:
                raise Unfit(f"attribute {name} of {site.op.type} is {site.op.attr(name):g}, not {value:g}")
        return _absorbed(conv, site, {}, {"activation": site.op.type}, [])

    return rewrite("fuse-conv-activation", rule, program, scope, keep)


def _absorbed(
    conv: Site, last: Site, inputs: dict[str, list[str]], attrs: dict[str, str], more: list[tuple[Site, str]]
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
