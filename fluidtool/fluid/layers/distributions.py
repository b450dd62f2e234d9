"""Probability distributions whose samples, entropies, densities and divergences are layers
(Paddle 1.8.5 layers/distributions.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.checks import check_type, check_variable_and_dtype
from fluidtool.fluid.layers.arithmetic import elementwise_pow, less_than, matmul
from fluidtool.fluid.layers.creation import assign, cast, create_tensor, fill_constant_batch_size_like, ones, zeros
from fluidtool.fluid.layers.elementary import exp, log
from fluidtool.fluid.layers.indexing import diag
from fluidtool.fluid.layers.random import gaussian_random, uniform_random, uniform_random_batch_size_like
from fluidtool.fluid.layers.reduction import reduce_max, reduce_prod, reduce_sum
from fluidtool.fluid.layers.shape import reshape
from fluidtool.fluid.layers.shape import shape as shape_of
from fluidtool.ir import Variable

WIDE = ("float32", "float64")
VALUES = (float, np.ndarray, Variable, list)
Value = Any  # a float, a list, an array or a Variable of Paddle's float32


class Distribution:
    """The base of distributions. Parameters are all Variables, or all numbers, lists and arrays (then float32)."""

    def _parameters(self, *values: Value) -> tuple[Any, ...]:
        variables = [isinstance(value, Variable) for value in values]
        if all(variables):
            return values
        if any(variables):
            raise UsageError("if one argument is Variable, all arguments should be Variable")
        arrays = [_array(value) for value in values]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return tuple(_assigned(np.broadcast_to(array, shape)) for array in arrays)

    def sample(self) -> Variable:
        """Draw from the distribution."""
        raise UsageError(f"{type(self).__name__} has no sample")

    def entropy(self) -> Variable:
        """Its entropy."""
        raise UsageError(f"{type(self).__name__} has no entropy")

    def kl_divergence(self, other: Any) -> Variable:
        """Its Kullback-Leibler divergence from another distribution of the same kind."""
        raise UsageError(f"{type(self).__name__} has no kl_divergence")

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of its density at a value."""
        raise UsageError(f"{type(self).__name__} has no log_prob")


def _array(value: Value) -> np.ndarray[Any, Any]:
    if not isinstance(value, (float, list, np.ndarray)):
        raise ArgumentTypeError(
            f"type of input args must be float, list, numpy.ndarray or Variable, but received {type(value)}."
        )
    return np.atleast_1d(np.asarray(value, "float32")) if isinstance(value, float) else np.asarray(value, "float32")


def _assigned(array: np.ndarray[Any, Any]) -> Variable:
    return assign(array, create_tensor("float32"))


class Uniform(Distribution):
    """Every value in [low, high) is equally likely."""

    def __init__(self, low: Value, high: Value) -> None:
        check_type(low, "low", VALUES, "Uniform")
        check_type(high, "high", VALUES, "Uniform")
        self.all_arg_is_float = isinstance(low, float) and isinstance(high, float)
        self.batch_size_unknown = isinstance(low, Variable) and isinstance(high, Variable)
        self.low, self.high = self._parameters(low, high)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:  # type: ignore[override]
        """Samples [*shape, *parameters' shape]."""
        check_type(shape, "shape", list, "sample")
        check_type(seed, "seed", int, "sample")
        batch = list((self.low + self.high).shape)
        if self.batch_size_unknown:
            like: Any = fill_constant_batch_size_like(self.low + self.high, batch + shape, self.low.dtype, 0.0)
            drawn: Any = uniform_random_batch_size_like(like, like.shape, min=0.0, max=1.0, seed=seed)
            return reshape(drawn * (like + self.high - self.low) + self.low, shape + batch)
        drawn = uniform_random(shape + batch, seed=seed)
        nothing: Any = zeros(shape + batch, self.low.dtype)
        out = drawn * (nothing + (self.high - self.low)) + self.low
        return reshape(out, shape) if self.all_arg_is_float else out

    def log_prob(self, value: Variable) -> Variable:
        """-log(high - low) within the bounds, -infinity outside."""
        check_variable_and_dtype(value, "value", WIDE, "log_prob")
        above, below = less_than(self.low, value), less_than(value, self.high)
        inside: Any = cast(above, value.dtype)
        density: Any = log(inside * cast(below, value.dtype))
        return density - log(self.high - self.low)  # type: ignore[no-any-return]

    def entropy(self) -> Variable:
        """log(high - low)."""
        return log(self.high - self.low)


class Normal(Distribution):
    """The normal distribution with mean `loc` and standard deviation `scale`."""

    def __init__(self, loc: Value, scale: Value) -> None:
        check_type(loc, "loc", VALUES, "Normal")
        check_type(scale, "scale", VALUES, "Normal")
        self.all_arg_is_float = isinstance(loc, float) and isinstance(scale, float)
        self.batch_size_unknown = isinstance(loc, Variable) and isinstance(scale, Variable)
        self.loc, self.scale = self._parameters(loc, scale)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:  # type: ignore[override]
        """Samples [*shape, *parameters' shape]."""
        check_type(shape, "shape", list, "sample")
        check_type(seed, "seed", int, "sample")
        batch = list((self.loc + self.scale).shape)
        if self.batch_size_unknown:
            like: Any = fill_constant_batch_size_like(self.loc + self.scale, batch + shape, self.loc.dtype, 0.0)
            drawn: Any = gaussian_random(shape_of(like), mean=0.0, std=1.0, seed=seed)
            return reshape(drawn * (like + self.scale) + self.loc, shape + batch)
        drawn = gaussian_random(shape + batch, mean=0.0, std=1.0, seed=seed)
        nothing: Any = zeros(shape + batch, self.loc.dtype)
        out = drawn * (nothing + self.scale) + self.loc
        return reshape(out, shape) if self.all_arg_is_float else out

    def entropy(self) -> Variable:
        """(1 + log(2 pi)) / 2 + log(scale)."""
        batch = list((self.loc + self.scale).shape)
        zero = fill_constant_batch_size_like(self.loc + self.scale, batch, self.loc.dtype, 0.0)
        log_scale: Any = log(self.scale + zero)
        return 0.5 + 0.5 * math.log(2 * math.pi) + log_scale  # type: ignore[no-any-return]

    def log_prob(self, value: Variable) -> Variable:
        """-(value - loc)² / (2 scale²) - log(scale) - log(sqrt(2 pi))."""
        check_variable_and_dtype(value, "value", WIDE, "log_prob")
        variance, log_scale = self.scale * self.scale, log(self.scale)
        given: Any = value
        distance = -1.0 * ((given - self.loc) * (given - self.loc))
        return distance / (2.0 * variance) - log_scale - math.log(math.sqrt(2.0 * math.pi))  # type: ignore[no-any-return]

    def kl_divergence(self, other: Normal) -> Variable:
        """(r - 1 - log(r) + ((loc - other.loc) / other.scale)²) / 2 for r = (scale / other.scale)²."""
        check_type(other, "other", Normal, "kl_divergence")
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        distance = (self.loc - other.loc) / other.scale
        distance = distance * distance
        return 0.5 * (ratio + distance - 1.0 - log(ratio))  # type: ignore[no-any-return]


class Categorical(Distribution):
    """A categorical distribution with probabilities softmax(logits)."""

    def __init__(self, logits: Value) -> None:
        check_type(logits, "logits", (np.ndarray, Variable, list), "Categorical")
        (self.logits,) = self._parameters(logits)

    def _centered(self) -> Any:
        return self.logits - reduce_max(self.logits, -1, True)

    def kl_divergence(self, other: Categorical) -> Variable:
        """The sum of p * (log(p) - log(q)) over the classes, [..., 1]."""
        check_type(other, "other", Categorical, "kl_divergence")
        mine, theirs = self._centered(), other._centered()
        weights: Any = exp(mine)
        other_weights = exp(theirs)
        total: Any = reduce_sum(weights, -1, True)
        other_total = reduce_sum(other_weights, -1, True)
        shares = weights / total
        return reduce_sum(shares * (mine - log(total) - theirs + log(other_total)), -1, True)

    def entropy(self) -> Variable:
        """-(the sum of p * log(p) over the classes), [..., 1]."""
        logits = self._centered()
        weights: Any = exp(logits)
        total: Any = reduce_sum(weights, -1, True)
        shares = weights / total
        expected: Any = reduce_sum(shares * (logits - log(total)), -1, True)
        return -1.0 * expected  # type: ignore[no-any-return]


class MultivariateNormalDiag(Distribution):
    """A normal distribution of vectors: mean loc [n], covariance the diagonal matrix scale [n, n]."""

    def __init__(self, loc: Value, scale: Value) -> None:
        check_type(loc, "loc", (np.ndarray, Variable, list), "MultivariateNormalDiag")
        check_type(scale, "scale", (np.ndarray, Variable, list), "MultivariateNormalDiag")
        self.loc: Any
        self.scale: Any
        self.loc, self.scale = self._parameters(loc, scale)

    def _ones(self, value: Variable) -> tuple[Any, Any]:
        """Ones of the shape of a matrix, and the identity."""
        everywhere = ones(list(value.shape), self.loc.dtype)
        return everywhere, diag(ones([value.shape[0]], self.loc.dtype))

    def _det(self, value: Any) -> Variable:
        everywhere, identity = self._ones(value)
        return reduce_prod(value + everywhere - identity)

    def _inv(self, value: Variable) -> Variable:
        everywhere, identity = self._ones(value)
        return elementwise_pow(value, everywhere - 2 * identity)

    def entropy(self) -> Variable:
        """(n * (1 + log(2 pi)) + log(det(scale))) / 2."""
        size = self.scale.shape[0] * (1.0 + math.log(2 * math.pi))
        log_det: Any = log(self._det(self.scale))
        return 0.5 * (size + log_det)  # type: ignore[no-any-return]

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """(tr(S⁻¹ scale) + d S⁻¹ d - n + log(det(S) / det(scale))) / 2 for S = other.scale, d = other.loc - loc."""
        check_type(other, "other", MultivariateNormalDiag, "kl_divergence")
        inverse: Any = self._inv(other.scale)
        trace: Any = reduce_sum(inverse * self.scale)
        first = other.loc - self.loc
        weighted = matmul(first, self._inv(other.scale))
        distance = matmul(weighted, other.loc - self.loc)
        log_other: Any = log(self._det(other.scale))
        log_ratio = log_other - log(self._det(self.scale))
        return 0.5 * (trace + distance - self.scale.shape[0] + log_ratio)  # type: ignore[no-any-return]
