"""Normalization to zero mean and unit variance as array code: values, first and second gradients.

x̂ = (x - mean) / std over some axes, std = sqrt(variance + epsilon), y = scale * x̂ + bias.
"""

from __future__ import annotations

from typing import Any

from fluidtool.ops.math.repeated import repeated

Axes = tuple[int, ...]


def center(xp: Any, x: Any, axes: Axes) -> tuple[Any, Any, Any]:
    """(x - mean, mean, variance) with the axes kept; the variance is the biased one."""
    mean = x.mean(axis=axes, keepdims=True)
    centered = repeated(xp, xp.subtract, x, mean)
    return centered, mean, (centered * centered).mean(axis=axes, keepdims=True)


def input_grad(grad: Any, normalized: Any, inverse_std: Any, axes: Axes) -> Any:
    """dx from the gradient of x̂: (grad - mean(grad) - x̂ * mean(grad * x̂)) / std."""
    out = normalized * (grad * normalized).mean(axis=axes, keepdims=True)
    out += grad.mean(axis=axes, keepdims=True)
    return (grad - out) * inverse_std


def second_gradients(
    out_grad: Any,
    normalized: Any,
    inverse_std: Any,
    scale: Any,
    axes: Axes,
    sum_axes: Axes,
    ddx: Any = None,
    ddscale: Any = None,
    ddbias: Any = None,
) -> tuple[Any, Any, Any]:
    """(ddy, dx, dscale): the gradients, by dy, x and scale, of the first gradient with weights ddx, ddscale, ddbias.

    With a = ddx, b = dy, m() = mean over `axes`, P(g) = input_grad of g, L = scale / std * (m(ab) - m(a)m(b) - m(ax̂)m(bx̂)):
    ddy = scale * P(a) + ddscale * x̂ + ddbias;  dscale = sum of b * P(a) over `sum_axes`;
    dx = P(-scale / std * (a m(bx̂) + b m(ax̂)) + ddscale * b) - x̂ / std * L.
    """

    def mean(values: Any) -> Any:
        return values.mean(axis=axes, keepdims=True)

    ddy, by_normalized, dx = 0.0, 0.0, 0.0
    dscale = None
    if ddx is not None:
        projected = input_grad(ddx, normalized, inverse_std, axes)
        ddy = ddy + scale * projected
        dscale = (out_grad * projected).sum(axis=sum_axes)
        along_ddx, along_dy = mean(ddx * normalized), mean(out_grad * normalized)
        factor = scale * inverse_std
        by_normalized = -factor * (ddx * along_dy + out_grad * along_ddx)
        level = factor * (mean(ddx * out_grad) - mean(ddx) * mean(out_grad) - along_ddx * along_dy)
        dx = -normalized * inverse_std * level
    if ddscale is not None:
        ddy = ddy + ddscale * normalized
        by_normalized = by_normalized + ddscale * out_grad
    if ddbias is not None:
        ddy = ddy + ddbias
    if ddx is not None or ddscale is not None:
        dx = dx + input_grad(by_normalized, normalized, inverse_std, axes)
    return ddy, dx, dscale
