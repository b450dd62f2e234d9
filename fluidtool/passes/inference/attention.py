"""`fuse-attention`: the operators of self-attention become one `multihead_matmul`.

    q, k, v = split_heads(x W + b) each, softmax(alpha q k^T + mask) v, heads joined again

as written with mul or matmul, reshape, transpose, scale (anywhere), elementwise_add, softmax, dropout under is_test;
also with one projection for all three, which slices then take apart.
Paddle 1.8.5 has multihead_matmul in its CUDA build only (multihead_matmul_fuse_pass.cc, …_v2).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace

import numpy as np

from fluidtool.ir import Program
from fluidtool.passes.inference.attention_parts import (
    FACTORS,
    Heads,
    check_mask,
    check_same,
    factor_of,
    heads_and_size,
    index_of,
    is_transposed,
    joins_heads,
    keeps_all,
    weight_of,
)
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import (
    check_group,
    made_by,
    only_reader,
    vector,
)
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

NAME = "fuse-attention"
MATMULS = ("matmul", "matmul_v2")
RESHAPES, TRANSPOSES = ("reshape2", "reshape"), ("transpose2", "transpose")
SPLIT, SPLIT_TRANSPOSED, TURNED, THIRDS_FIRST = [0, 2, 1, 3], [0, 2, 3, 1], [0, 1, 3, 2], [2, 0, 3, 1, 4]


def fuse_attention(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace self-attention by `multihead_matmul`, with the three weights in one new parameter, in place."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(match: MatchContext) -> Edit | None:
    """A softmax of a product of two heads: everything around it, or why not."""
    if match.op.type != "softmax":
        return None
    group = _Group([match])
    product = group.scores(match)
    if product is None:
        return None
    if int(match.op.get_attr("axis", -1)) not in (-1, 3):
        raise NoMatch("the softmax is not over the last dimension")
    queries = group.heads(product, "X", is_transposed(product, "X"))
    keys = group.heads(product, "Y", not is_transposed(product, "Y"))
    last, values = group.joined(match)
    parts = (queries, keys, values)
    check_same(parts)
    x, heads, size = queries.x, queries.heads, queries.size
    weight, bias = queries.match.input("Y"), queries.bias
    stacked = np.stack([part.weight for part in parts], axis=1).reshape(-1, 3, heads, size)
    biases = np.stack([part.biases for part in parts]).reshape(3, heads, size)
    new_weight = match.new_parameter(f"{weight}_qkv", stacked, weight)
    new_bias = match.new_parameter(f"{bias or weight}_qkv_bias", biases, weight)
    result = last.output("Out")
    removed = check_group(group.matches, [result], [*((part.match, part.x) for part in parts), *group.mask])
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


@dataclass(slots=True)
class _Group:
    """What was found so far: the operators, the factor of the scores, the mask."""

    matches: list[MatchContext]
    alpha: float = 1.0
    mask: list[Use] = field(default_factory=list)

    def scores(self, match: MatchContext) -> MatchContext | None:
        """The product of queries and keys that a softmax reads, through a mask and factors."""
        reader, name = match, match.input("X")
        add = made_by(reader, name, "elementwise_add")
        if add is not None:
            self.matches.append(add)
            self.mask.append((add, add.input("Y")))
            reader, name = add, add.input("X")
        reader, name = self.unscaled(reader, name)
        product = made_by(reader, name, *MATMULS)
        if product is None or made_by(product, product.input("Y"), "slice", *TRANSPOSES, *FACTORS) is None:
            return None
        if add is not None:
            check_mask(add)
        self.matches.append(product)
        self.alpha *= float(product.op.get_attr("alpha", 1.0))
        return product

    def unscaled(self, reader: MatchContext, name: str) -> Use:
        """What is behind factors, which go into alpha: the operator that reads it, and its name."""
        while (found := factor_of(reader, name)) is not None:
            reader, factor = found
            self.matches.append(reader)
            self.alpha *= factor
            name = reader.input("X")
        return reader, name

    def heads(self, product: MatchContext, slot: str, transposed: bool) -> Heads:
        """The projection behind one side of a product, which is [.., size, length] when `transposed`."""
        reader, name = self.unscaled(product, product.input(slot))
        turned = made_by(reader, name, *TRANSPOSES)
        if turned is not None and list(turned.op.get_attr("axis", [])) == TURNED:
            self.matches.append(turned)
            transposed = not transposed
            reader, name = self.unscaled(turned, turned.input("X"))
        if made_by(reader, name, "slice") is not None:
            return self.third(reader, name, transposed)
        permutation = SPLIT_TRANSPOSED if transposed else SPLIT
        transpose = self.take(reader, name, *TRANSPOSES)
        if list(transpose.op.get_attr("axis", [])) != permutation:
            raise NoMatch(f"{name} is transposed by {transpose.op.get_attr('axis', [])}, not {permutation}")
        reshape = self.take(*self.unscaled(transpose, transpose.input("X")), *RESHAPES)
        return self.projection(reshape, *self.unscaled(reshape, reshape.input("X")))

    def third(self, reader: MatchContext, name: str, transposed: bool) -> Heads:
        """One of queries, keys and values, cut out of one projection to [3, batch, heads, length, size]."""
        piece = self.take(reader, name, "slice")
        transpose = self.take(piece, piece.input("Input"), *TRANSPOSES)
        if transposed or list(transpose.op.get_attr("axis", [])) != THIRDS_FIRST:
            raise NoMatch(f"{name} is transposed by {transpose.op.get_attr('axis', [])}, not {THIRDS_FIRST}")
        reshape = self.take(transpose, transpose.input("X"), *RESHAPES)
        whole, index = self.projection(reshape, reshape, reshape.input("X"), 3), index_of(piece)
        weight = whole.weight.reshape(len(whole.weight), 3, -1)[:, index]
        return replace(whole, weight=weight, biases=whole.biases.reshape(3, -1)[index])

    def take(self, reader: MatchContext, name: str, *types: str) -> MatchContext:
        """The operator of these types that gave `name`."""
        found = made_by(reader, name, *types)
        if found is None:
            raise NoMatch(f"{name} is not computed by {' or '.join(types)}")
        self.matches.append(found)
        return found

    def projection(self, reshape: MatchContext, below: MatchContext, name: str, parts: int = 1) -> Heads:
        """x W + b, which `below` reads, and the heads (of one part, or of each of three) that the reshape makes of it."""
        add, bias = made_by(below, name, "elementwise_add"), ""
        if add is not None:
            self.matches.append(add)
            below, bias, name = add, add.input("Y"), add.input("X")
        product = self.take(below, name, "mul", *MATMULS)
        x, weight = product.input("X"), weight_of(product)
        biases = np.zeros(weight.shape[1], weight.dtype)
        if add is not None:
            biases = vector(add, bias, int(add.op.get_attr("axis", -1)), 3)
        if biases.size != weight.shape[1]:
            raise NoMatch(f"{bias} does not have one number per column of {product.input('Y')}")
        heads, size = heads_and_size(reshape, product, weight.shape[1], parts)
        return Heads(product, x, weight, bias, biases, heads, size)

    def joined(self, match: MatchContext) -> tuple[MatchContext, Heads]:
        """The last operator, which joins the heads, and the values that the probabilities weigh."""
        probabilities = match
        dropout = only_reader(match, match.output("Out"), "dropout")
        if dropout is not None and keeps_all(dropout):
            self.matches.append(dropout)
            probabilities = dropout
        product = self.next(probabilities, *MATMULS)
        plain = float(product.op.get_attr("alpha", 1.0)) == 1.0
        if not plain or product.input("X") != probabilities.output("Out") or is_transposed(product, "X"):
            raise NoMatch("the probabilities are not the first factor of a plain product with the values")
        values = self.split_values(product)
        transpose = self.next(product, *TRANSPOSES)
        last = self.next(transpose, *RESHAPES)
        if list(transpose.op.get_attr("axis", [])) != SPLIT or not joins_heads(last, values):
            raise NoMatch(f"{last.output('Out')} does not join the heads")
        return last, values

    def split_values(self, product: MatchContext) -> Heads:
        """The projection of the values, which must come as they are."""
        alpha = self.alpha
        values = self.heads(product, "Y", is_transposed(product, "Y"))
        if self.alpha != alpha:
            raise NoMatch("the values are scaled")
        return values

    def next(self, match: MatchContext, *types: str) -> MatchContext:
        """The one operator that reads the result."""
        result = match.output("Out")
        found = only_reader(match, result, *types)
        if found is None:
            raise NoMatch(f"{result} is not read by one {' or '.join(types)} alone")
        self.matches.append(found)
        return found
