"""`fuse-sum-of-products`: x1 W1 + x2 W2 + … (with biases) becomes [x1 x2 …] [W1; W2; …], one product of what is joined.

A fully connected layer of several inputs is such a sum; as one product it can be taken into the layer that follows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from fluidtool.ir import Program
from fluidtool.passes.inference.matching import check_group, float_type, made_by, vector
from fluidtool.passes.inference.queries import rank
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NewVariable, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

NAME = "fuse-sum-of-products"


def fuse_sum_of_products(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace sums of products with weights by one product of the joined inputs, in place."""
    return rewrite(NAME, rule, program, scope, keep)


@dataclass(frozen=True, slots=True)
class _Term:
    """One x W (+ b): its operators, the product first."""

    matches: tuple[MatchContext, ...]
    bias: str
    biases: Any

    @property
    def product(self) -> MatchContext:
        """The `mul`."""
        return self.matches[0]

    @property
    def x(self) -> str:
        """What is multiplied."""
        return self.product.input("X")

    @property
    def weight(self) -> str:
        """The parameter that it is multiplied with."""
        return self.product.input("Y")


def rule(match: MatchContext) -> Edit | None:
    """A sum of which every term is a product with a weight."""
    terms = _terms(match)
    if terms is None:
        return None
    if len({term.product.position for term in terms}) != len(terms):
        raise NoMatch("one product is added several times")
    columns = int(terms[0].product.op.get_attr("x_num_col_dims", 1))
    for term in terms:
        _check(term, terms[0], columns)
    result = match.output("Out")
    removed = check_group(
        [part for term in terms for part in term.matches] + [match],
        [result],
        [(term.product, term.x) for term in terms],
    )
    first = terms[0]
    stacked = np.concatenate([match.numbers(term.weight) for term in terms])
    weight = match.new_parameter(f"{first.weight}_stacked", stacked, first.weight)
    joined = match.fresh_name(f"{result}.joined")
    biased = [term for term in terms if term.bias]
    product = match.fresh_name(f"{result}.product") if biased else result
    operators = [
        match.new_operator("concat", {"X": [term.x for term in terms]}, {"Out": [joined]}, {"axis": columns}),
        match.new_operator(
            "mul",
            {"X": [joined], "Y": [weight.name]},
            {"Out": [product]},
            {"x_num_col_dims": columns, "y_num_col_dims": 1},
        ),
    ]
    widths = (*match.block.var_recursive(first.x).shape[:-1], len(stacked))
    variables, parameters = [NewVariable(joined, first.x, widths)], [weight]
    if biased:
        total = sum(term.biases for term in biased).astype(stacked.dtype)
        bias = match.new_parameter(f"{biased[0].bias}_summed", total, biased[0].bias)
        inputs = {"X": [product], "Y": [bias.name]}
        operators.append(match.new_operator("elementwise_add", inputs, {"Out": [result]}, {"axis": columns}))
        variables.append(NewVariable(product, result))
        parameters.append(bias)
    reason = f"{len(terms)} products as one"
    return Edit(removed, match.position, tuple(operators), reason, tuple(parameters), variables=tuple(variables))


def _terms(match: MatchContext) -> list[_Term] | None:
    """The terms of a sum, when every one is a product with a parameter; None when it is anything else."""
    op = match.op
    if op.type not in ("sum", "elementwise_add") or len(op.input_arg_names) < 2:
        return None
    terms = [_term(match, name) for name in op.input_arg_names]
    return None if None in terms else [term for term in terms if term is not None]


def _term(match: MatchContext, name: str) -> _Term | None:
    add = made_by(match, name, "elementwise_add")
    if add is None:
        product = made_by(match, name, "mul")
        return None if product is None or not match.is_constant(product.input("Y")) else _Term((product,), "", 0.0)
    product = made_by(add, add.input("X"), "mul")
    if product is None or not all(match.is_constant(name) for name in (product.input("Y"), add.input("Y"))):
        return None
    bias, dimensions = add.input("Y"), int(product.op.get_attr("x_num_col_dims", 1)) + 1
    biases = vector(add, bias, int(add.op.get_attr("axis", -1)), dimensions).astype(np.float64)
    return _Term((product, add), bias, biases)


def _check(term: _Term, first: _Term, columns: int) -> None:
    """Raise NoMatch unless a term can be joined with the first."""
    product, x, weight = term.product, term.x, term.product.numbers(term.weight)
    if not float_type(product, x):
        raise NoMatch(f"{x} is not declared float32 or float64")
    plain = int(product.op.get_attr("x_num_col_dims", 1)) == columns and product.op.get_attr("y_num_col_dims", 1) == 1
    if not plain or weight.ndim != 2 or rank(product.block, x) != columns + 1:
        raise NoMatch(f"the product of {x} and {term.weight} takes several dimensions together")
    if weight.shape[1] != first.product.numbers(first.weight).shape[1]:
        raise NoMatch(f"{first.weight} and {term.weight} have different numbers of columns")
    if product.block.var_recursive(x).dtype != product.block.var_recursive(first.x).dtype:
        raise NoMatch(f"{first.x} and {x} are of different data types")
    if term.bias and term.biases.size != weight.shape[1]:
        raise NoMatch(f"{term.bias} does not have one number per column of {term.weight}")
