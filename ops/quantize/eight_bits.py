"""Numbers of 8 bits: how oneDNN's kernels round to them, multiply them, and scale what comes out (Paddle 1.8.5)."""

from __future__ import annotations

from typing import Any

from fluidtool.ops.context import OpContext
from fluidtool.records import dataclass

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


def is_8_bits(array: Any) -> bool:
    """Whether an input comes from a `quantize` operator or from another 8-bit one."""
    return array.dtype.name in LIMITS


def saturated(xp: Any, values: Any, kind: str) -> Any:
    """The nearest number of 8 bits, halves to even; NaN is the lowest one."""
    low, high = LIMITS[kind]
    return xp.fmin(xp.fmax(xp.rint(values), low), high).astype(kind)


@dataclass(frozen=True, slots=True)
class Scales:
    """What an operator's numbers were multiplied with to be of 8 bits; `weights` has one for each output channel, or one.

    out is None where the output is float32.
    """

    input: Any
    weights: Any
    out: Any

    @property
    def sums(self) -> Any:
        """The scale of the sums of products."""
        return self.input * self.weights

    @property
    def factor(self) -> Any:
        """What the sums are multiplied with."""
        return (1 if self.out is None else self.out) / self.sums


def read_scales(ctx: OpContext, channels: int) -> Scales:
    """Scale_in, Scale_weights and Scale_out of a convolution or fc with this many output channels, as float32."""
    np = ctx.np
    weights = np.asarray(ctx.attr("Scale_weights"), "float32")
    if weights.size not in (1, channels):
        raise ctx.error(f"attribute Scale_weights must hold 1 or {channels} numbers, found {weights.size}")
    if not (weights != 0).all() or ctx.attr("Scale_in") == 0:
        raise ctx.error("attributes Scale_in and Scale_weights must not be 0")
    out = None if ctx.attr("force_fp32_output") else np.float32(ctx.attr("Scale_out"))
    return Scales(np.float32(ctx.attr("Scale_in")), ctx.array(weights), out)


def whole_weights(xp: Any, weights: Any, scales: Any) -> Any:
    """Weights of 8 bits as float64, in which products and sums of them are exact; `scales` broadcast to them."""
    return saturated(xp, weights * scales, "int8").astype("float64")


def scaled_bias(xp: Any, bias: Any, scales: Scales) -> Any:
    """The bias as whole numbers that add to the sums."""
    return xp.rint(bias.reshape(-1) * scales.sums).astype("float64")


def stored(xp: Any, values: Any, out: Any, positive: bool) -> Any:
    """Scaled values as the operator stores them: float32, or 8 bits without a sign behind an activation that leaves none."""
    return values if out is None else saturated(xp, values, "uint8" if positive else "int8")
