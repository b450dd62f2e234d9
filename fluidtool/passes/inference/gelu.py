"""`fuse-gelu`: 0.5 x (1 + erf(x / sqrt 2)), or its form with tanh, written out in any order, becomes `gelu`.

The operators are read as arithmetic: every value is a polynomial in x and in the one erf or tanh, and the result is
gelu when its polynomial is x/2 + x/2 * f, and that of the argument of f is what gelu's is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from math import isclose, pi, sqrt

from fluidtool.ir import Program
from fluidtool.ir.dataflow import Version
from fluidtool.passes.inference.match import Use
from fluidtool.passes.inference.matching import check_group, float_type, scalar
from fluidtool.passes.inference.rewriting import Edit, MatchContext, NoMatch, rewrite
from fluidtool.passes.result import PassResult
from fluidtool.records import dataclass
from fluidtool.runtime.scope import Scope

NAME = "fuse-gelu"
Polynomial = dict[tuple[int, int], float]  # (power of x, power of erf or tanh) -> coefficient

RESULT: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
ARGUMENTS: dict[str, Polynomial] = {
    "erf": {(1, 0): sqrt(0.5)},
    "tanh": {(1, 0): sqrt(2 / pi), (3, 0): sqrt(2 / pi) * 0.044715},
}
ARITHMETIC = ("scale", "pow", "square", "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div")
MOST_OPERATORS = 16
PRECISION = 1e-6


def fuse_gelu(program: Program, scope: Scope, keep: Collection[str] = ()) -> PassResult:
    """Replace gelu written out by `gelu` operators (approximate for the form with tanh), in place."""
    return rewrite(NAME, rule, program, scope, keep)


def rule(match: MatchContext) -> Edit | str | None:
    """The last product of gelu, with all operators between x and it."""
    if match.op.type not in ("elementwise_mul", "scale", "elementwise_div"):
        return None
    cone = operators_before(match)
    functions = [found for found in cone if found.op.type in ARGUMENTS]
    if len(functions) != 1:
        return None
    for reader, x in values_read(cone):
        reading = _Reading(reader.flow.reads[reader.position][x])
        if not reading.is_gelu(match, functions[0]):
            continue
        if not float_type(match, x):
            return f"{x} is not declared float32 or float64"
        result = match.output("Out")
        removed = check_group(reading.used.values(), [result], reading.readers)
        op = match.new_operator("gelu", {"X": [x]}, {"Out": [result]}, {"approximate": functions[0].op.type == "tanh"})
        return Edit(removed, match.position, (op,), f"gelu of {x}")
    if functions[0].op.type == "erf":
        return "the arithmetic around erf is not 0.5 x (1 + erf(x / sqrt 2)) so far" if _ends_at(match) else None
    return None


def _ends_at(match: MatchContext) -> bool:
    """Whether no further arithmetic follows."""
    return not any(reader.op.type in ARITHMETIC for reader in match.readers(match.output("Out")))


def operators_before(match: MatchContext) -> list[MatchContext]:
    """The operators of arithmetic that lead to `match`, itself included, the nearest MOST_OPERATORS."""
    found: dict[int, MatchContext] = {}
    waiting = [match]
    while waiting and len(found) < MOST_OPERATORS:
        current = waiting.pop(0)
        if current.position in found:
            continue
        found[current.position] = current
        for name in current.op.input_arg_names:
            before = current.producer(name) if name in current.flow.reads[current.position] else None
            if before is not None and before.op.type in (*ARITHMETIC, *ARGUMENTS):
                waiting.append(before)
    return list(found.values())


def values_read(cone: Collection[MatchContext]) -> list[Use]:
    """Every value that these operators read, each once, with the first operator that reads it."""
    seen: dict[Version, Use] = {}
    for match in sorted(cone, key=lambda found: found.position):
        for name in match.op.input_arg_names:
            version = match.flow.reads[match.position].get(name)
            if version is not None:
                seen.setdefault(version, (match, name))
    return list(seen.values())


@dataclass(slots=True)
class _Reading:
    """Operators read as polynomials in the value `x`."""

    x: Version
    used: dict[int, MatchContext] = field(default_factory=dict)
    readers: list[Use] = field(default_factory=list)

    def is_gelu(self, match: MatchContext, function: MatchContext) -> bool:
        """Whether what `match` computes is gelu of x, `function` being the erf or tanh within."""
        try:
            if not _equal(self.result_of(match), RESULT) or function.position not in self.used:
                return False
            return _equal(self.value(function, function.input("X")), ARGUMENTS[function.op.type])
        except NoMatch:
            return False

    def value(self, match: MatchContext, name: str) -> Polynomial:
        """The polynomial of a value that `match` reads; raises NoMatch for what is none."""
        if match.flow.reads[match.position].get(name) == self.x:
            self.readers.append((match, name))
            return {(1, 0): 1.0}
        number = scalar(match, name)
        if number is not None:
            return {(0, 0): number}
        source = match.producer(name) if name in match.flow.reads[match.position] else None
        if source is None:
            raise NoMatch(f"{name} is another variable")
        return self.result_of(source)

    def result_of(self, match: MatchContext) -> Polynomial:
        """The polynomial of what an operator computes."""
        op = match.op
        if op.type not in (*ARITHMETIC, *ARGUMENTS) or len(self.used) > MOST_OPERATORS:
            raise NoMatch(f"{op.type} is not arithmetic")
        self.used[match.position] = match
        first = self.value(match, match.input("X"))
        if op.type in ARGUMENTS:
            return {(0, 1): 1.0}
        if op.type == "scale":
            return self.scaled(match, first)
        if op.type in ("square", "pow"):
            return _power(first, 2.0 if op.type == "square" else _factor(match))
        second = self.value(match, match.input("Y"))
        if op.type == "elementwise_mul":
            return _product(first, second)
        if op.type == "elementwise_div":
            divisor = second.get((0, 0), 0.0)
            if len(second) != 1 or not divisor:
                raise NoMatch("a quotient by something other than a number")
            return _product(first, {(0, 0): 1 / divisor})
        return _sum(first, second, -1.0 if op.type == "elementwise_sub" else 1.0)

    def scaled(self, match: MatchContext, value: Polynomial) -> Polynomial:
        """scale * value + bias."""
        op = match.op
        if op.inputs.get("ScaleTensor"):
            raise NoMatch("the factor is computed by the program")
        factor, bias = float(op.get_attr("scale", 1.0)), float(op.get_attr("bias", 0.0))
        bias = bias if op.get_attr("bias_after_scale", True) else bias * factor
        return _sum(_product(value, {(0, 0): factor}), {(0, 0): bias}, 1.0)


def _factor(match: MatchContext) -> float:
    if match.op.inputs.get("FactorTensor"):
        raise NoMatch("the exponent is computed by the program")
    return float(match.op.get_attr("factor", 1.0))


def _sum(left: Polynomial, right: Polynomial, sign: float) -> Polynomial:
    total = dict(left)
    for power, coefficient in right.items():
        total[power] = total.get(power, 0.0) + sign * coefficient
    return {power: coefficient for power, coefficient in total.items() if coefficient}


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for (x, f), a in left.items():
        for (u, g), b in right.items():
            total[x + u, f + g] = total.get((x + u, f + g), 0.0) + a * b
    return total


def _power(value: Polynomial, exponent: float) -> Polynomial:
    if exponent not in (1.0, 2.0, 3.0):
        raise NoMatch(f"a power of {exponent}")
    result = value
    for _ in range(int(exponent) - 1):
        result = _product(result, value)
    return result


def _equal(left: Polynomial, right: Polynomial) -> bool:
    same = all(isclose(left.get(power, 0.0), wanted, rel_tol=PRECISION) for power, wanted in right.items())
    return same and all(abs(left[power]) < PRECISION for power in left.keys() - right.keys())
