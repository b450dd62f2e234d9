"""`fuse-layer-norm`: mean, difference, variance, root and quotient written out become `layer_norm`.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias

also with the square as `pow` or a product, with `rsqrt` and a product, and with scale and bias left out.
"""

from __future__ import annotations

from collections.abc import Collection

from fluidtool.ir import Program
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import (
    check_group,
    float_type,
    made_by,
    only_reader,
    same_value,
    scalar,
    vector,
    why_seen,
)
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewVariable, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

NAME = "fuse-layer-norm"
EPSILON_LIMIT = 1.0001e-3  # Paddle 1.8.5 layer_norm_op.cc takes epsilons up to 0.001


def fuse_layer_norm(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace written-out layer normalizations by `layer_norm` operators, in place."""
    return rewrite(NAME, rule, program, scope, keep)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A normalization found: its operators, the operator that reads x first, x, epsilon, the operator of the result."""

    matches: tuple[MatchContext, ...]
    reader: MatchContext
    x: str
    epsilon: float
    axis: int


def rule(match: MatchContext) -> Edit | str | None:
    """The operator that divides by the root, with what comes before and the scale and bias that come after."""
    parts = find_normalization(match)
    if parts is None:
        return None
    if not float_type(match, parts.x):
        return f"{parts.x} is not declared float32 or float64"
    if not 0 <= parts.epsilon <= EPSILON_LIMIT:
        return f"epsilon is {parts.epsilon:g}; layer_norm takes 0 to 0.001"
    matches, names, last = list(parts.matches), {}, match
    for slot, kind in (("Scale", "elementwise_mul"), ("Bias", "elementwise_add")):
        found = absorb(last, kind, parts)
        if found is not None:
            last, names[slot] = found
            matches.append(last)
    result = last.output("Out")
    removed = check_group(matches, [result], [(parts.reader, parts.x)])
    temporaries = {slot: last.fresh_name(f"{result}.{slot.lower()}") for slot in ("Mean", "Variance")}
    op = last.new_operator(
        "layer_norm",
        {"X": [parts.x], **{slot: [name] for slot, name in names.items()}},
        {"Y": [result], **{slot: [name] for slot, name in temporaries.items()}},
        {"epsilon": parts.epsilon, "begin_norm_axis": parts.axis},
    )
    variables = tuple(NewVariable(name, result, (-1,)) for name in temporaries.values())
    return Edit(removed, last.position, (op,), f"layer_norm of {parts.x}", variables=variables)


def absorb(match: MatchContext, kind: str, parts: _Parts) -> Use | None:
    """The product with a scale (or the sum with a bias) that alone reads the result so far, and its parameter."""
    result = match.output("Out")
    after = only_reader(match, result, kind)
    dimensions = rank(match.block, parts.x)
    if (
        after is None
        or why_seen(match, result, {after.position})
        or after.input("X") != result
        or parts.axis != dimensions - 1
    ):
        return None
    try:
        values = vector(after, after.input("Y"), int(after.op.get_attr("axis", -1)), dimensions)
    except NoMatch:
        return None
    width = match.block.var_recursive(parts.x).shape[-1]
    return (after, after.input("Y")) if values.size == width and values.size > 1 else None


def find_normalization(match: MatchContext) -> _Parts | None:
    """(x - mean) / sqrt(variance + epsilon) that ends at `match`; None when it is anything else."""
    op = match.op
    if op.type not in ("elementwise_div", "elementwise_mul") or match.input("X") == match.input("Y"):
        return None
    for difference, root in ((match.input("X"), match.input("Y")), (match.input("Y"), match.input("X"))):
        subtract = made_by(match, difference, "elementwise_sub")
        if subtract is not None and (op.type == "elementwise_mul" or difference == match.input("X")):
            found = _from(match, subtract, root, op.type == "elementwise_mul")
            if found is not None:
                return found
    return None


def _from(match: MatchContext, subtract: MatchContext, root: str, inverse: bool) -> _Parts | None:
    roots = _root(match, root, inverse)
    mean = made_by(subtract, subtract.input("Y"), "reduce_mean")
    if roots is None or mean is None or not same_value(mean, mean.input("X"), subtract, subtract.input("X")):
        return None
    shifted = _shift(roots[-1], roots[-1].input("X"))
    if shifted is None:
        return None
    add, variance_name, epsilon = shifted
    variance = made_by(add, variance_name, "reduce_mean")
    square = None if variance is None else made_by(variance, variance.input("X"), *SQUARES)
    if variance is None or square is None or not _squares(square, subtract):
        return None
    axis, dimensions = _axis(mean), rank(match.block, mean.input("X"))
    if axis is None or axis != _axis(variance) or not _aligned((match, subtract), dimensions):
        return None
    matches = (mean, subtract, square, variance, add, *roots, match)
    return _Parts(matches, mean, mean.input("X"), epsilon, axis)


SQUARES = ("square", "pow", "elementwise_mul", "elementwise_pow")


def _squares(square: MatchContext, subtract: MatchContext) -> bool:
    """Whether `square` is the square of the difference that `subtract` gave."""
    op, name = square.op, square.input("X")
    source = made_by(square, name, "elementwise_sub")
    if source is None or source.position != subtract.position:
        return False
    if op.type == "elementwise_mul":
        return square.input("Y") == name
    if op.type == "elementwise_pow":
        return scalar(square, square.input("Y")) == 2.0
    return op.type == "square" or (float(op.get_attr("factor", 1.0)) == 2.0 and not op.inputs.get("FactorTensor"))


def _root(match: MatchContext, name: str, inverse: bool) -> tuple[MatchContext, ...] | None:
    """The operators that take the square root (or its reciprocal)."""
    found = made_by(match, name, "rsqrt" if inverse else "sqrt", "pow", "elementwise_pow")
    if found is None:
        return None
    wanted = -0.5 if inverse else 0.5
    if found.op.type == "pow" and (
        float(found.op.get_attr("factor", 1.0)) != wanted or found.op.inputs.get("FactorTensor")
    ):
        return None
    if found.op.type == "elementwise_pow" and scalar(found, found.input("Y")) != wanted:
        return None
    return (found,)


def _shift(match: MatchContext, name: str) -> tuple[MatchContext, str, float] | None:
    """The operator that adds epsilon, what it adds it to, and epsilon."""
    add = made_by(match, name, "scale", "elementwise_add")
    if add is None:
        return None
    if add.op.type == "scale":
        plain = float(add.op.get_attr("scale", 1.0)) == 1.0 and not add.op.inputs.get("ScaleTensor")
        return (add, add.input("X"), float(add.op.get_attr("bias", 0.0))) if plain else None
    epsilon = scalar(add, add.input("Y"))
    return None if epsilon is None else (add, add.input("X"), epsilon)


def _axis(mean: MatchContext) -> int | None:
    """The first of the trailing dimensions that a reduce_mean with keep_dim averages over; None for others."""
    dimensions, op = rank(mean.block, mean.input("X")), mean.op
    if dimensions < 2 or not op.get_attr("keep_dim", False) or op.get_attr("reduce_all", False):
        return None
    axes = sorted(axis % dimensions for axis in op.get_attr("dim", [0]))
    first = axes[0] if axes else 0
    return first if first > 0 and axes == list(range(first, dimensions)) else None


def _aligned(matches: Collection[MatchContext], dimensions: int) -> bool:
    """Whether operators broadcast [.., 1] against [.., n] with all dimensions side by side."""
    return all(
        rank(match.block, match.input("Y")) == rank(match.block, match.input("X")) == dimensions
        and int(match.op.get_attr("axis", -1)) in (-1, 0)
        for match in matches
    )
