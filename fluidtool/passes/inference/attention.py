"""`fuse-attention`: the operators of self-attention become one `multihead_matmul`.

    q, k, v = split_heads(x W + b) each, softmax(alpha q k^T + mask) v, heads joined again

as written with mul or matmul, reshape, transpose, scale (anywhere), elementwise_add, softmax, dropout under is_test;
also with one projection for all three, which slices then take apart.
Paddle 1.8.5 has multihead_matmul in its CUDA build only (multihead_matmul_fuse_pass.cc, …_v2).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Program
from fluidtool.passes.inference.facts import rank
from fluidtool.passes.inference.matching import (
    check_group,
    float_type,
    made_by,
    only_reader,
    same_value,
    scalar,
    vector,
)
from fluidtool.passes.inference.rewriting import Edit, Site, Unfit, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.runtime.scope import Scope

NAME = "fuse-attention"
MATMULS = ("matmul", "matmul_v2")
RESHAPES, TRANSPOSES = ("reshape2", "reshape"), ("transpose2", "transpose")
FACTORS = ("scale", "elementwise_mul", "elementwise_div")
SPLIT, SPLIT_TRANSPOSED, TURNED, THIRDS_FIRST = [0, 2, 1, 3], [0, 2, 3, 1], [0, 1, 3, 2], [2, 0, 3, 1, 4]


def fuse_attention(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace self-attention by `multihead_matmul`, with the three weights in one new parameter, in place."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(site: Site) -> Edit | None:
    """A softmax of a product of two heads: everything around it, or why not."""
    if site.op.type != "softmax":
        return None
    group = _Group([site])
    product = group.scores(site)
    if product is None:
        return None
    if int(site.op.get_attr("axis", -1)) not in (-1, 3):
        raise Unfit("the softmax is not over the last dimension")
    queries = group.heads(product, "X", _transposed(product, "X"))
    keys = group.heads(product, "Y", not _transposed(product, "Y"))
    last, values = group.joined(site)
    parts = (queries, keys, values)
    _check_same(parts)
    x, heads, size = queries.x, queries.heads, queries.size
    weight, bias = queries.site.input("Y"), queries.bias
    stacked = np.stack([part.weight for part in parts], axis=1).reshape(-1, 3, heads, size)
    biases = np.stack([part.biases for part in parts]).reshape(3, heads, size)
    new_weight = site.new_parameter(f"{weight}_qkv", stacked, weight)
    new_bias = site.new_parameter(f"{bias or weight}_qkv_bias", biases, weight)
    result = last.output("Out")
    removed = check_group(group.sites, [result], [*((part.site, part.x) for part in parts), *group.mask])
    op = last.new_operator(
        "multihead_matmul",
        {
            "Input": [x],
            "W": [new_weight.name],
            "Bias": [new_bias.name],
            "BiasQK": [name for _, name in group.mask],
        },
        {"Out": [result]},
        {"alpha": group.alpha, "head_number": heads},
    )
    return Edit(removed, last.position, (op,), f"attention of {heads} heads over {x}", (new_weight, new_bias))


@dataclass(frozen=True, slots=True)
class _Heads:
    """One projection split into heads: the operator that reads x, and the numbers of weight and bias."""

    site: Site
    x: str
    weight: Any
    bias: str
    biases: Any
    heads: int
    size: int


@dataclass(slots=True)
class _Group:
    """What was found so far: the operators, the factor of the scores, the mask."""

    sites: list[Site]
    alpha: float = 1.0
    mask: list[tuple[Site, str]] = field(default_factory=list)

    def scores(self, site: Site) -> Site | None:
        """The product of queries and keys that a softmax reads, through a mask and factors."""
        reader, name = site, site.input("X")
        add = made_by(reader, name, "elementwise_add")
        if add is not None:
            self.sites.append(add)
            self.mask.append((add, add.input("Y")))
            reader, name = add, add.input("X")
        reader, name = self.unscaled(reader, name)
        product = made_by(reader, name, *MATMULS)
        if product is None or made_by(product, product.input("Y"), "slice", *TRANSPOSES, *FACTORS) is None:
            return None
        if add is not None:
            _check_mask(add)
        self.sites.append(product)
        self.alpha *= float(product.op.get_attr("alpha", 1.0))
        return product

    def unscaled(self, reader: Site, name: str) -> tuple[Site, str]:
        """What is behind factors, which go into alpha: the operator that reads it, and its name."""
        while (found := _factor(reader, name)) is not None:
            reader, factor = found
            self.sites.append(reader)
            self.alpha *= factor
            name = reader.input("X")
        return reader, name

    def heads(self, product: Site, slot: str, transposed: bool) -> _Heads:
        """The projection behind one side of a product, which is [.., size, length] when `transposed`."""
        reader, name = self.unscaled(product, product.input(slot))
        turned = made_by(reader, name, *TRANSPOSES)
        if turned is not None and list(turned.op.get_attr("axis", [])) == TURNED:
            self.sites.append(turned)
            transposed = not transposed
            reader, name = self.unscaled(turned, turned.input("X"))
        if made_by(reader, name, "slice") is not None:
            return self.third(reader, name, transposed)
        permutation = SPLIT_TRANSPOSED if transposed else SPLIT
        transpose = self.take(reader, name, *TRANSPOSES)
        if list(transpose.op.get_attr("axis", [])) != permutation:
            raise Unfit(f"{name} is transposed by {transpose.op.get_attr('axis', [])}, not {permutation}")
        reshape = self.take(*self.unscaled(transpose, transpose.input("X")), *RESHAPES)
        return self.projection(reshape, *self.unscaled(reshape, reshape.input("X")))

    def third(self, reader: Site, name: str, transposed: bool) -> _Heads:
        """One of queries, keys and values, cut out of one projection to [3, batch, heads, length, size]."""
        piece = self.take(reader, name, "slice")
        transpose = self.take(piece, piece.input("Input"), *TRANSPOSES)
        if transposed or list(transpose.op.get_attr("axis", [])) != THIRDS_FIRST:
            raise Unfit(f"{name} is transposed by {transpose.op.get_attr('axis', [])}, not {THIRDS_FIRST}")
        reshape = self.take(transpose, transpose.input("X"), *RESHAPES)
        whole, index = self.projection(reshape, reshape, reshape.input("X"), 3), _index(piece)
        weight = whole.weight.reshape(len(whole.weight), 3, -1)[:, index]
        return replace(whole, weight=weight, biases=whole.biases.reshape(3, -1)[index])

    def take(self, reader: Site, name: str, *types: str) -> Site:
        """The operator of these types that gave `name`."""
        found = made_by(reader, name, *types)
        if found is None:
            raise Unfit(f"{name} does not come from {' or '.join(types)}")
        self.sites.append(found)
        return found

    def projection(self, reshape: Site, below: Site, name: str, parts: int = 1) -> _Heads:
        """x W + b, which `below` reads, and the heads (of one part, or of each of three) that the reshape makes of it."""
        add, bias = made_by(below, name, "elementwise_add"), ""
        if add is not None:
            self.sites.append(add)
            below, bias, name = add, add.input("Y"), add.input("X")
        product = self.take(below, name, "mul", *MATMULS)
        x, weight = product.input("X"), _weight(product)
        biases = np.zeros(weight.shape[1], weight.dtype)
        if add is not None:
            biases = vector(add, bias, int(add.op.get_attr("axis", -1)), 3)
        if biases.size != weight.shape[1]:
            raise Unfit(f"{bias} does not hold one number for each column of {product.input('Y')}")
        heads, size = _heads_and_size(reshape, product, weight.shape[1], parts)
        return _Heads(product, x, weight, bias, biases, heads, size)

    def joined(self, site: Site) -> tuple[Site, _Heads]:
        """The last operator, which joins the heads, and the values that the probabilities weigh."""
        probabilities = site
        dropout = only_reader(site, site.output("Out"), "dropout")
        if dropout is not None and _keeps_all(dropout):
            self.sites.append(dropout)
            probabilities = dropout
        product = self.next(probabilities, *MATMULS)
        plain = float(product.op.get_attr("alpha", 1.0)) == 1.0
        if not plain or product.input("X") != probabilities.output("Out") or _transposed(product, "X"):
            raise Unfit("the probabilities are not the first factor of a plain product with the values")
        values = self.split_values(product)
        transpose = self.next(product, *TRANSPOSES)
        last = self.next(transpose, *RESHAPES)
        if list(transpose.op.get_attr("axis", [])) != SPLIT or not _joins(last, values):
            raise Unfit(f"{last.output('Out')} does not join the heads again")
        return last, values

    def split_values(self, product: Site) -> _Heads:
        """The projection of the values, which must come as they are."""
        alpha = self.alpha
        values = self.heads(product, "Y", _transposed(product, "Y"))
        if self.alpha != alpha:
            raise Unfit("the values are scaled")
        return values

    def next(self, site: Site, *types: str) -> Site:
        """The one operator that reads the result."""
        result = site.output("Out")
        found = only_reader(site, result, *types)
        if found is None:
            raise Unfit(f"{result} is not read by one {' or '.join(types)} alone")
        self.sites.append(found)
        return found


def _factor(site: Site, name: str) -> tuple[Site, float] | None:
    """The operator that multiplies by a number, and the number."""
    found = made_by(site, name, *FACTORS)
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


def _transposed(product: Site, slot: str) -> bool:
    op = product.op
    return bool(op.get_attr(f"transpose_{slot}", False) or op.get_attr(f"trans_{slot.lower()}", False))


def _check_mask(add: Site) -> None:
    dimensions, axis = rank(add.block, add.input("Y")), int(add.op.get_attr("axis", -1))
    if dimensions < 1 or (axis != -1 and axis != 4 - dimensions):
        raise Unfit(f"the mask {add.input('Y')} does not broadcast from the last dimension")


def _weight(product: Site) -> Any:
    """The matrix that a product multiplies x [batch, length, hidden] with."""
    op, name = product.op, product.input("Y")
    values = product.numbers(name)
    if op.type == "mul":
        plain = int(op.get_attr("x_num_col_dims", 1)) == 2 and int(op.get_attr("y_num_col_dims", 1)) == 1
    else:
        plain = not _transposed(product, "X") and not _transposed(product, "Y") and op.get_attr("alpha", 1.0) == 1.0
    if not plain or values.ndim != 2 or rank(product.block, product.input("X")) != 3:
        raise Unfit(f"{product.output('Out')} is no plain product of three dimensions with a matrix")
    return values


def _heads_and_size(reshape: Site, product: Site, columns: int, parts: int) -> tuple[int, int]:
    """[batch, length, columns] -> [batch, length, heads, size], or [batch, length, 3, heads, size] in three parts."""
    shape = _shape(reshape)
    named = [parts] if parts > 1 else []
    if len(shape) != 4 + len(named) or shape[2:-2] != named or not _keeps_rows(shape, product):
        raise Unfit(f"{reshape.output('Out')} is reshaped to {shape}, not to heads")
    heads, size = shape[-2:]
    each = columns // parts
    heads, size = (each // size if heads == -1 else heads), (each // heads if size == -1 else size)
    if heads < 1 or size < 1 or heads * size * parts != columns:
        raise Unfit(f"{columns} columns do not make the heads {shape[2:]}")
    return heads, size


def _index(piece: Site) -> int:
    """Which of three parts a slice cuts out."""
    op = piece.op
    start = list(op.get_attr("starts", []))
    cuts = op.get_attr("axes", []) == [0] and len(start) == 1 and op.get_attr("ends", []) == [start[0] + 1]
    if not cuts or len(op.input_arg_names) != 1 or op.get_attr("decrease_axis", []) != [0] or not 0 <= start[0] < 3:
        raise Unfit(f"{piece.output('Out')} is not one of three parts")
    return int(start[0])


def _keeps_rows(shape: list[int], product: Site) -> bool:
    """Whether a reshape leaves batch and length as x has them; one of the sizes may be -1."""
    declared = product.block.var_recursive(product.input("X")).shape
    kept = [wanted in (0, -1) or wanted == size for wanted, size in zip(shape[:2], declared[:2], strict=True)]
    return all(kept) and shape.count(-1) <= 1


def _shape(reshape: Site) -> list[int]:
    op = reshape.op
    if op.inputs.get("Shape") or op.inputs.get("ShapeTensor"):
        raise Unfit(f"the shape of {reshape.output('Out')} is computed by the program")
    return [int(size) for size in op.get_attr("shape", [])]


def _joins(last: Site, values: _Heads) -> bool:
    shape = _shape(last)
    joined = values.heads * values.size
    return len(shape) == 3 and _keeps_rows(shape, values.site) and shape[2] in (joined, -1)


def _keeps_all(dropout: Site) -> bool:
    upscales = dropout.op.get_attr("dropout_implementation", "downgrade_in_infer") == "upscale_in_train"
    return bool(dropout.op.get_attr("is_test", False)) and upscales


def _check_same(parts: tuple[_Heads, ...]) -> None:
    first = parts[0]
    if not float_type(first.site, first.x):
        raise Unfit(f"{first.x} is not declared float32 or float64")
    for part in parts[1:]:
        if not same_value(first.site, first.x, part.site, part.x):
            raise Unfit(f"queries, keys and values are not projections of one input: {first.x} and {part.x}")
        if (first.heads, first.size) != (part.heads, part.size) or first.weight.shape != part.weight.shape:
            raise Unfit("queries, keys and values have heads of different sizes")
    if prod(first.weight.shape[1:]) != first.heads * first.size:
        raise Unfit("the heads do not fill the projection")
