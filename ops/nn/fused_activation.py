"""The activations that fusing passes write into the operator before: attributes of convolutions and of `fc`."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.ops.math.rectified import rectified

NAMES = frozenset(
    {
        "",
        "identity",
        "linear",
        "relu",
        "relu6",
        "leaky_relu",
        "swish",
        "sigmoid",
        "tanh",
        "hard_swish",
        "hard_sigmoid",
        "mish",
    }
)


SLOPE = 0.20000000298023224  # 0.2 as 32 bits hold it


def require_activation(ctx: OpContext, name: str) -> Any:
    """Refuse a name that no fusing pass of Paddle writes."""
    if name not in NAMES:
        raise ctx.error(f"there is no fused activation {name!r}; expected one of {', '.join(sorted(NAMES - {''}))}")


def activate(ctx: OpContext, x: Any, name: str, alpha: float = 0.0, beta: float = 0.0) -> Any:
    """`x` through the activation `name`; raises OperatorError for a name that no fusing pass of Paddle writes.

    alpha is the threshold of relu6 (0 reads as 6), the slope of leaky_relu and hard_sigmoid, the factor of swish;
    beta is the offset of hard_sigmoid.
    """
    xp = ctx.xp
    if name in ("", "identity", "linear"):
        return x
    if name == "relu":
        return rectified(xp, x)
    if name == "relu6":
        return xp.clip(x, 0, alpha or 6.0)
    if name == "leaky_relu":
        return xp.where(x > 0, x, x * alpha)
    if name == "swish":
        return x * _sigmoid(xp, x * (alpha or 1.0))
    if name == "sigmoid":
        return _sigmoid(xp, x)
    if name == "tanh":
        return xp.tanh(x)
    if name == "hard_swish":
        return x * xp.clip(x + 3.0, 0, 6.0) / 6.0
    if name == "hard_sigmoid":
        return xp.clip(x * (alpha or SLOPE) + (beta or 0.5), 0, 1)
    if name == "mish":
        return x * xp.tanh(xp.logaddexp(x, xp.zeros_like(x)))
    return require_activation(ctx, name)


def _sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * xp.tanh(0.5 * x) + 0.5
