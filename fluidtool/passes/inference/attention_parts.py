"""What self-attention is made of: projections split into heads, and the conditions that make them fit."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.passes.inference.matching import float_type, made_by, same_value, scalar
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import MatchContext, NoMatch
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

FACTORS = ("scale", "elementwise_mul", "elementwise_div")


@dataclass(frozen=True, slots=True)
class Heads:
    """One projection split into heads: the operator that reads x, and the numbers of weight and bias."""

    match: MatchContext
    x: str
    weight: Any
    bias: str
    biases: Any
    heads: int
    size: int


def factor_of(match: MatchContext, name: str) -> tuple[MatchContext, float] | None:
    """The operator that multiplies by a number, and the number."""
    found = made_by(match, name, *FACTORS)
    if found is None:
        return None
    op = found.op
    if op.type == "scale":
        plain = float(op.get_attr("bias", 0.0)) == 0.0 and not op.inputs.get("ScaleTensor")
        return (found, float(op.get_attr("scale", 1.0))) if plain else None
    number = scalar(found, found.input("Y"))
    if number is None or (op.type == "elementwise_div" and not number):
        return None
    return found, number if op.type == "elementwise_mul" else 1 / number


def is_transposed(product: MatchContext, slot: str) -> bool:
    """Whether a matmul reads one of its factors with the last two dimensions exchanged."""
    op = product.op
    return bool(op.get_attr(f"transpose_{slot}", False) or op.get_attr(f"trans_{slot.lower()}", False))


def check_mask(add: MatchContext) -> None:
    """Raise NoMatch unless a mask broadcasts over scores [batch, heads, length, length] as numpy does."""
    dimensions, axis = rank(add.block, add.input("Y")), int(add.op.get_attr("axis", -1))
    if dimensions < 1 or (axis != -1 and axis != 4 - dimensions):
        raise NoMatch(f"the mask {add.input('Y')} does not broadcast from the last dimension")


def weight_of(product: MatchContext) -> Any:
    """The matrix that a product multiplies x [batch, length, hidden] with."""
    op, name = product.op, product.input("Y")
    values = product.numbers(name)
    if op.type == "mul":
        plain = int(op.get_attr("x_num_col_dims", 1)) == 2 and int(op.get_attr("y_num_col_dims", 1)) == 1
    else:
        plain = not is_transposed(product, "X") and not is_transposed(product, "Y") and op.get_attr("alpha", 1.0) == 1.0
    if not plain or values.ndim != 2 or rank(product.block, product.input("X")) != 3:
        raise NoMatch(f"{product.output('Out')} is not a plain product of three dimensions with a matrix")
    return values


def heads_and_size(reshape: MatchContext, product: MatchContext, columns: int, parts: int) -> tuple[int, int]:
    """[batch, length, columns] -> [batch, length, heads, size], or [batch, length, 3, heads, size] in three parts."""
    shape = shape_of(reshape)
    named = [parts] if parts > 1 else []
    if len(shape) != 4 + len(named) or shape[2:-2] != named or not keeps_rows(shape, product):
        raise NoMatch(f"{reshape.output('Out')} is reshaped to {shape_text(shape)}, not to heads")
    heads, size = shape[-2:]
    each = columns // parts
    heads, size = (each // size if heads == -1 else heads), (each // heads if size == -1 else size)
    if heads < 1 or size < 1 or heads * size * parts != columns:
        raise NoMatch(f"{columns} columns do not form the heads {shape_text(shape[2:])}")
    return heads, size


def index_of(piece: MatchContext) -> int:
    """Which of three parts a slice cuts out."""
    op = piece.op
    start = list(op.get_attr("starts", []))
    cuts = op.get_attr("axes", []) == [0] and len(start) == 1 and op.get_attr("ends", []) == [start[0] + 1]
    if not cuts or len(op.input_arg_names) != 1 or op.get_attr("decrease_axis", []) != [0] or not 0 <= start[0] < 3:
        raise NoMatch(f"{piece.output('Out')} is not one of three parts")
    return int(start[0])


def keeps_rows(shape: list[int], product: MatchContext) -> bool:
    """Whether a reshape leaves batch and length as x has them; one of the sizes may be -1."""
    declared = product.block.var_recursive(product.input("X")).shape
    kept = [wanted in (0, -1) or wanted == size for wanted, size in zip(shape[:2], declared[:2], strict=True)]
    return all(kept) and shape.count(-1) <= 1


def shape_of(reshape: MatchContext) -> list[int]:
    """The shape that a reshape names; raises NoMatch when the program computes it."""
    op = reshape.op
    if op.inputs.get("Shape") or op.inputs.get("ShapeTensor"):
        raise NoMatch(f"the shape of {reshape.output('Out')} is computed by the program")
    return [int(size) for size in op.get_attr("shape", [])]


def joins_heads(last: MatchContext, values: Heads) -> bool:
    """Whether a reshape makes [batch, length, heads * size] of the heads again."""
    shape = shape_of(last)
    joined = values.heads * values.size
    return len(shape) == 3 and keeps_rows(shape, values.match) and shape[2] in (joined, -1)


def keeps_all(dropout: MatchContext) -> bool:
    """Whether a dropout leaves its input as it is."""
    upscales = dropout.op.get_attr("dropout_implementation", "downgrade_in_infer") == "upscale_in_train"
    return bool(dropout.op.get_attr("is_test", False)) and upscales


def check_same(parts: tuple[Heads, ...]) -> None:
    """Raise NoMatch unless queries, keys and values are projections of one input into heads of one size."""
    first = parts[0]
    if not float_type(first.match, first.x):
        raise NoMatch(f"{first.x} is not declared float32 or float64")
    for part in parts[1:]:
        if not same_value(first.match, first.x, part.match, part.x):
            raise NoMatch(f"queries, keys and values are not projections of one input: {first.x} and {part.x}")
        if (first.heads, first.size) != (part.heads, part.size) or first.weight.shape != part.weight.shape:
            raise NoMatch("queries, keys and values have heads of different sizes")
    if prod(first.weight.shape[1:]) != first.heads * first.size:
        raise NoMatch("the heads do not fill the projection")
