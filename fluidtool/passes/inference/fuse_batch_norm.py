"""`fuse-batch-norm`: a batch_norm that uses its running statistics vanishes into the convolution or product before it.

    Y = (conv(x, W) + b - mean) * s + bias   with s = scale / sqrt(variance + epsilon)
      = conv(x, W * s) + ((b - mean) * s + bias)

Matched by data flow, folded in float64 with the operator's own epsilon. The results have the names that real Paddle's
InferenceTranspiler gives them: `<filter>_fuse_bn`, `<bias>_fuse_bn`, and the batch_norm's Y, now written by an
elementwise_add. The scaled product itself goes to a new name, so that no name changes its meaning.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fluidtool.ir import Operator, Program
from fluidtool.ir.roles import NAMESCOPE_ATTR, SUPERSEDED
from fluidtool.ir.surgery import copy_operator
from fluidtool.passes.inference.linear import (
    LINEAR,
    Array,
    channel_axis,
    channel_vector,
    channels,
    check_plain,
    narrowed,
    output_rank,
    result_slot,
    scaled_weight,
    weight_slot,
)
from fluidtool.passes.inference.rewriting import (
    BATCH_NORMS,
    Edit,
    MatchContext,
    NewParameter,
    NewVariable,
    NoMatch,
    rewrite,
    uses_running_statistics,
)
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

NAME = "fuse-batch-norm"
SUFFIX = "_fuse_bn"
AFFINE = "affine_channel"
STATISTICS = (("MeanOut", "Mean"), ("VarianceOut", "Variance"), ("SavedMean", ""), ("SavedVariance", ""))
WAY_OUT = "clone(for_test=True) makes an inference program"


def fuse_batch_norm(
    program: Program, scope: Scope, keep: Collection[str] = (), *, keep_inner_results: bool = False
) -> PassResult:
    """Fold batch_norm into the convolution, mul, matmul or fc before it, in place.

    The new parameters go into the scope. keep_inner_results: anything may be fetched by its name, so the operators that
    a batch_norm vanished into stay before the new ones, marked so that a run without need of their results skips them.
    Paddle 0.12 inference_transpiler.py and 1.8.5 conv_bn_fuse_pass.cc, whose faults are not repeated (docs/differences.md).
    """

    def rule(match: MatchContext) -> Edit | None:
        return fold(match, keep_inner_results) if match.op.type in BATCH_NORMS else None

    return rewrite(NAME, rule, program, scope, keep)


def fuse_affine_channel(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Fold affine_channel in the same way, in place (Paddle 1.8.5 conv_affine_channel_fuse_pass.cc)."""

    def rule(match: MatchContext) -> Edit | None:
        return fold(match, False) if match.op.type == AFFINE else None

    return rewrite("fuse-affine-channel", rule, program, scope, keep)


@dataclass(frozen=True, slots=True)
class Affine:
    """What a normalization does to each channel: x * factor + shift, in float64."""

    factor: Array
    shift: Array
    result: str
    layout: str
    bias: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What stands before a normalization: the linear operator, and the bias added to it (0 without)."""

    linear: MatchContext
    add: MatchContext | None
    bias: Array
    bias_name: str
    axis: int


def fold(match: MatchContext, keep_inner_results: bool) -> Edit:
    """The edit that folds the normalization at `match`; raises NoMatch with the reason why not."""
    source = match.producer(match.input("X"))
    if source is None or source.op.type not in (*LINEAR, "elementwise_add"):
        made = "a run is given it" if source is None else f"{source.op.type} computes it"
        raise NoMatch(f"its input {match.input('X')} does not come from a convolution or product: {made}")
    norm = affine(match)
    chain = chain_before(match, source, norm)
    operators, parameters, variables = folded(match, chain, norm)
    inner = [chain.linear, *([chain.add] if chain.add else [])]
    kept = tuple(superseded(each) for each in inner) if keep_inner_results else ()
    return Edit(
        frozenset({match.position, *(each.position for each in inner)}),
        match.position,
        (*kept, *operators),
        f"folded into {chain.linear.op.type} {', '.join(new.name for new in parameters)}",
        parameters=parameters,
        variables=variables,
    )


def superseded(match: MatchContext) -> Operator:
    """The operator marked as one that runs only for those who fetch its result."""
    op = copy_operator(match.op, match.block)
    op.set_attr(NAMESCOPE_ATTR, SUPERSEDED)
    return op


def affine(match: MatchContext) -> Affine:
    """The normalization as factor and shift; raises NoMatch when it trains, or does more than normalize."""
    op = match.op
    layout = str(op.get_attr("data_layout", "NCHW"))
    if op.type == AFFINE:
        scale, bias = _vectors(match, "Scale", "Bias")
        return Affine(scale, bias, match.output("Out"), layout, match.input("Bias"))
    _check_inference(match)
    scale, bias, mean, variance = _vectors(match, "Scale", "Bias", "Mean", "Variance")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(op.get_attr("epsilon", 1e-5)))
    return Affine(factor, bias - mean * factor, match.output("Y"), layout, match.input("Bias"))


def _vectors(match: MatchContext, *slots: str) -> list[Array]:
    """The parameters of a normalization, one number for each channel, in float64; raises NoMatch where they differ in size."""
    found = [match.numbers(match.input(slot)).astype(np.float64).reshape(-1) for slot in slots]
    if len({values.size for values in found}) > 1:
        sizes = ", ".join(f"{slot} {values.size}" for slot, values in zip(slots, found, strict=True))
        raise NoMatch(f"its parameters differ in size: {sizes}")
    return found


def _check_inference(match: MatchContext) -> None:
    op = match.op
    if not uses_running_statistics(op):
        raise NoMatch(f"it normalizes by the statistics of the batch (is_test is not set); {WAY_OUT}")
    if op.get_attr("fuse_with_relu", False):
        raise NoMatch("it ends with a relu (fuse_with_relu)")
    for slot, source in STATISTICS:
        name = match.output(slot)
        if name and name != match.input(source or slot) and (match.readers(name) or name in match.keep):
            raise NoMatch(f"its output {slot} ({name}) is used")


def chain_before(match: MatchContext, source: MatchContext, norm: Affine) -> Chain:
    """The linear operator that feeds a normalization, directly or through a bias; raises NoMatch with the reason why not."""
    add = source if source.op.type == "elementwise_add" else None
    found = source if add is None else add.producer(add.input("X"))
    if found is None or found.op.type not in LINEAR:
        raise NoMatch(
            f"the elementwise_add before it adds to {source.input('X')}, which no convolution or product computes"
        )
    linear = found
    check_plain(linear)
    rank, axis, count = output_rank(linear), channel_axis(linear, norm.layout), channels(linear)
    if norm.factor.shape != (count,):
        raise NoMatch(f"it normalizes {norm.factor.size} channels, and the {linear.op.type} computes {count}")
    result = linear.output(result_slot(linear.op.type))
    bias_name, bias = norm.bias, np.zeros(count)
    if add is not None:
        bias_name, bias = channel_vector(linear, add, rank, axis, count)
        _check_vanishing(add, add.output("Out"), match.position)
    _check_vanishing(linear, result, (add or match).position)
    for name in linear.op.input_arg_names:
        if not linear.holds_until(name, match.position):
            raise NoMatch(f"{name}, which the {linear.op.type} reads, is written again before the {match.op.type}")
    return Chain(linear, add, bias.astype(np.float64), bias_name, axis)


def _check_vanishing(match: MatchContext, name: str, reader: int) -> None:
    reason = match.why_visible(name, reader)
    if reason:
        raise NoMatch(f"{reason}, as it is before the normalization")


def folded(
    match: MatchContext, chain: Chain, norm: Affine
) -> tuple[tuple[Operator, ...], tuple[NewParameter, ...], tuple[NewVariable, ...]]:
    """The operators, parameters and variables that come in place of the chain and the normalization."""
    linear = chain.linear
    slot, out = weight_slot(linear.op.type), result_slot(linear.op.type)
    weight_name = linear.input(slot)
    dtype = linear.numbers(weight_name).dtype
    weight = match.new_parameter(weight_name + SUFFIX, scaled_weight(linear, norm.factor), weight_name)
    product = copy_operator(linear.op, match.block)
    product.set_input(slot, [weight.name])
    own = linear.input("Bias")
    if own and chain.add is not None:
        raise NoMatch(f"the {linear.op.type} already has a bias, {own}, and another is added")
    if own or linear.op.type == "fc":
        before = _own_bias(linear, own, norm.factor.size)
        values = narrowed(before * norm.factor + norm.shift, dtype)
        bias = match.new_parameter((own or norm.bias) + SUFFIX, values, own or norm.bias)
        product.set_input("Bias", [bias.name])
        product.set_output(out, [norm.result])
        return (product,), (weight, bias), ()
    bias = match.new_parameter(
        chain.bias_name + SUFFIX, narrowed(chain.bias * norm.factor + norm.shift, dtype), chain.bias_name
    )
    inner = linear.output(out)
    scaled = NewVariable(match.fresh_name(inner + SUFFIX), inner)
    product.set_output(out, [scaled.name])
    return (product, added(match, chain, scaled.name, bias.name, norm.result)), (weight, bias), (scaled,)


def _own_bias(linear: MatchContext, name: str, count: int) -> Array:
    if not name:
        return np.zeros(count)
    values = linear.numbers(name).astype(np.float64).reshape(-1)
    if values.size != count:
        raise NoMatch(f"the bias {name} has {values.size} numbers for {count} channels")
    return values


def added(match: MatchContext, chain: Chain, x: str, y: str, result: str) -> Operator:
    """The elementwise_add that gives the normalization's result: that of the chain, or a new one."""
    if chain.add is None:
        return chain.linear.new_operator(
            "elementwise_add", {"X": [x], "Y": [y]}, {"Out": [result]}, {"axis": chain.axis}
        )
    op = copy_operator(chain.add.op, match.block)
    op.set_input("X", [x])
    op.set_input("Y", [y])
    op.set_output("Out", [result])
    op.set_attr("axis", chain.axis)
    return op
