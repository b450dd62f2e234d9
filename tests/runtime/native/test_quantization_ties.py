"""Fake quantization after a convolution: where engines give other whole numbers, the value lies at a rounding tie.

A drawn convolution gives, in exact arithmetic, nothing but ties: k + 1/2 steps of its scale. Engines sum in different orders, so
each rounds to its own side. Nothing else may differ, and the same values must give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.runtime.native.checking import Array, Net

COUNT = 127  # steps of 8 bits on either side of 0
EPSILON = float(np.finfo(np.float32).eps)
BATCH, INPUTS, CHANNELS, SIZE = 3, 24, 5, 9
MOVING = {"is_test": True}
OF_MOVING = ("OutScale", "OutState", "OutAccum")

pytestmark = pytest.mark.usefixtures("native")


@dataclass(frozen=True)
class Kind:
    """A quantizer: where it takes its scale from (None: from X), the dimension of its channels, and what reverses it."""

    type: str
    axis: int | None = None
    scale: str | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    later: dict[str, Any] = field(default_factory=dict)  # attributes that only Paddle 2.x has
    more: tuple[str, ...] = ("OutScale",)
    reverse: str | None = None

    @property
    def out(self) -> str:
        """The slot of the result."""
        return "Y" if self.type == "quantize_linear" else "Out"

    def __str__(self) -> str:
        given = "".join(f"-{name}={value}" for name, value in (self.attrs | self.later).items() if name != "is_test")
        return self.type + given


def linear(axis: int, round_type: int) -> Kind:
    attrs = {"quant_axis": axis, "round_type": round_type, "is_test": True}
    return Kind("quantize_linear", None if axis < 0 else axis, "Scale", attrs, more=(), reverse="dequantize_linear")


BY_CHANNEL, ALL = "fake_channel_wise_dequantize_max_abs", "fake_dequantize_max_abs"
KINDS = [
    Kind("fake_quantize_abs_max", reverse=ALL),
    Kind("fake_quantize_abs_max", later={"round_type": 1}, reverse=ALL),
    Kind("fake_quantize_dequantize_abs_max"),
    Kind("fake_quantize_range_abs_max", None, "InScale", MOVING, more=("OutScale", "OutScales"), reverse=ALL),
    Kind("fake_quantize_moving_average_abs_max", None, "InScale", MOVING, more=OF_MOVING, reverse=ALL),
    Kind("fake_quantize_dequantize_moving_average_abs_max", None, "InScale", MOVING, more=OF_MOVING),
    Kind("fake_channel_wise_quantize_abs_max", 0, reverse=BY_CHANNEL),
    Kind("fake_channel_wise_quantize_abs_max", 1, later={"quant_axis": 1}, reverse=BY_CHANNEL),
    Kind("fake_channel_wise_quantize_dequantize_abs_max", 0, attrs={"quant_axis": 0}),
    Kind("fake_channel_wise_quantize_dequantize_abs_max", 1, attrs={"quant_axis": 1}),
    *(linear(axis, round_type) for axis in (-1, 0, 1) for round_type in (0, 1)),
]


class Ties:
    """A convolution whose every result is a tie but for rounding, and a quantizer of it."""

    def __init__(self, kind: Kind, given: Array | None = None) -> None:
        self.kind, self.net = kind, Net()
        random = self.net.random
        channels = {None: 1, 0: BATCH, 1: CHANNELS}[kind.axis]
        self.scales = random.uniform(1, 3, channels).astype(np.float32)
        shape = [1] * 4
        if kind.axis is not None:
            shape[kind.axis] = -1
        self.scale = self.scales.reshape(shape)
        self.value = self._convolution() if given is None else self.net.data(*given.shape, of=given)
        self.quantized = self._append(kind.type, self.value, kind.scale, kind.out, *kind.more, **kind.attrs)
        for name, value in kind.later.items():
            self.net.program.global_block().ops[-1]._set_attr(name, value)

    def _convolution(self) -> str:
        random = self.net.random
        x = random.standard_normal((BATCH, INPUTS + CHANNELS, SIZE, SIZE)).astype(np.float32)
        weights = (random.standard_normal((CHANNELS, INPUTS + CHANNELS)) / 8).astype(np.float32)
        weights[:, INPUTS:] = np.eye(CHANNELS)
        x[:, :INPUTS, 0, 0] = 0  # here the result is the scale itself
        ties = (random.integers(-COUNT, COUNT, (BATCH, CHANNELS, SIZE, SIZE)) + 0.5) / COUNT * self.scale.astype(float)
        ties[:, :, 0, 0] = self.scale[..., 0, 0]
        terms = weights[:, :INPUTS].astype(float)[None, :, :, None, None] * x[:, None, :INPUTS]
        x[:, INPUTS:] = ties - terms.sum(2)
        summed = np.abs(terms).sum(2) + np.abs(x[:, INPUTS:])
        self.room = (INPUTS + 2) * EPSILON * summed / self.scale * COUNT + 4 * EPSILON * COUNT  # of rounding, in steps
        filters = self.net.parameter(of=weights.reshape(*weights.shape, 1, 1))
        return self.net.conv(self.net.data(of=x), filters)

    def _append(self, type: str, x: str, scale: str | None, out: str, *more: str, **attrs: Any) -> str:
        inputs: dict[str, Any] = {"X": x}
        if scale is not None:
            inputs[scale] = self.net.parameter(of=self.scales)
        if type.endswith("_linear"):
            inputs["ZeroPoint"] = self.net.parameter(of=np.zeros(1, np.float32))
        return self.net.op(type, out, inputs, *more, **attrs)

    def reversed(self) -> str:
        """The result of the operator that brings the quantized values back."""
        reverse, axis = self.kind.reverse, self.kind.axis
        assert reverse is not None
        if reverse == ALL:
            return self._append(reverse, self.quantized, "Scale", "Out", max_range=float(COUNT))
        if reverse == "dequantize_linear":
            return self._append(reverse, self.quantized, "Scale", "Y", **self.kind.attrs)
        found = self._append(reverse, self.quantized, "Scales", "Out", quant_bits=[8])
        self.net.program.global_block().ops[-1]._set_attr("quant_axis", axis)
        return found

    def steps(self, quantized: Array) -> Array:
        """Whole numbers, of values that may be brought back already."""
        found = quantized.astype(float)
        if "dequantize" in self.kind.type:
            found = found / self.scale * COUNT
        assert np.abs(found - np.rint(found)).max() < 1e-3
        return np.rint(found)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_engines_differ_only_at_ties(kind: Kind) -> None:
    made = Ties(kind)
    runs = [made.net.run(engine, made.value, made.quantized) for engine in ("numpy", "native")]
    ours, native = (made.steps(quantized) for _, quantized in runs)
    apart = ours != native
    assert apart.any()
    assert set(np.abs(ours - native)[apart]) == {1}
    for values, _ in runs:
        at = values.astype(float) / made.scale * COUNT
        assert (np.abs(at - np.floor(at) - 0.5) <= made.room)[apart].all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_same_values_are_quantized_to_the_same_bits(kind: Kind) -> None:
    drawn = Ties(kind)
    (values,) = drawn.net.run("numpy", drawn.value)
    made = Ties(kind, values)
    fetches = [made.quantized] if kind.reverse is None else [made.quantized, made.reversed()]
    for one, other in zip(made.net.run("numpy", *fetches), made.net.run("native", *fetches), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.reverse], ids=str)
def test_values_brought_back_are_whole_steps_of_the_scale(kind: Kind) -> None:
    made = Ties(kind)
    steps, back = made.net.run("native", made.quantized, made.reversed())
    np.testing.assert_allclose(back, steps * made.scale.astype(float) / COUNT, rtol=3e-7, atol=0)
