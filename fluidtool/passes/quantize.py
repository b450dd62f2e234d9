"""Fake quantization after training: operators with weights compute on whole numbers of 8 bits (`fluidtool.quantize`).

The result has the form that QuantizationFreezePass of Paddle 1.8.5 gives a program that was trained so: activations go
through `fake_quantize_moving_average_abs_max`, weights are whole numbers in the scope, and sums are brought back. Paddle 1.8 and
2.x run it; the native engine computes it in 8 bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fluidtool.ir import Block, Operator, Program
from fluidtool.passes.result import Decision, PassResult, decide
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

NAME = "quantize"
BITS, STEPS = 8, 127
Values = Mapping[str, Any]  # parameters by name


@dataclass(frozen=True, slots=True)
class Form:
    """An operator that can be quantized: its slots for the activation, the weights and the result, what must be empty, and the
    dimension of the weights that the outputs run along (`swap`: an attribute by which it is the other one of two).
    """

    activation: str
    weights: str
    out: str
    axis: int
    empty: tuple[str, ...] = ()
    swap: str = ""
    unset: tuple[str, ...] = ()


_CONVOLUTION = Form("Input", "Filter", "Output", 0, ("Bias", "ResidualData"), unset=("fuse_relu", "fuse_activation"))
_MATMUL = ("Out", 1)
FORMS: Mapping[str, Form] = {
    "conv2d": _CONVOLUTION,
    "depthwise_conv2d": _CONVOLUTION,
    "mul": Form("X", "Y", "Out", 1),
    "matmul": Form("X", "Y", *_MATMUL, swap="transpose_Y", unset=("transpose_X",)),
    "matmul_v2": Form("X", "Y", *_MATMUL, swap="trans_y", unset=("trans_x",)),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An operator to be quantized, the variables it reads and writes, and the dimension of its weights with the outputs."""

    op: Operator
    activation: str
    weights: str
    out: str
    axis: int

    @property
    def by_images(self) -> bool:
        """Whether it is a convolution."""
        return self.op.type in ("conv2d", "depthwise_conv2d")


def candidates(program: Program, parameters: Collection[str], skip: Collection[str]) -> Iterator[Candidate | Decision]:
    """The operators of block 0 that have weights: what will be quantized, or why it stays as it is, in order.

    skip: names of results, or patterns of them.
    """
    block = program.global_block()
    writes = Counter(name for each in program.blocks for op in each.ops for name in op.output_arg_names)
    for op in block.ops:
        form = FORMS.get(op.type)
        if form is not None:
            found = _candidate(block, op, form, parameters, skip, writes)
            yield found if isinstance(found, Candidate) else decide(NAME, op, False, found)


def _candidate(
    block: Block, op: Operator, form: Form, parameters: Collection[str], skip: Collection[str], writes: Counter[str]
) -> Candidate | str:
    (x, *_), (weights, *_), (out, *_) = (
        names or [""] for names in (op.input(form.activation), op.input(form.weights), op.output(form.out))
    )
    if any(fnmatchcase(out, pattern) for pattern in skip):
        return "it is to be skipped"
    var = block.vars.get(weights)
    if weights not in parameters or var is None or writes[weights] or var.dtype != VarType.FP32:
        return "its weights are not a float32 parameter"
    if any(op.inputs.get(slot) for slot in form.empty) or any(_is_set(op, name) for name in form.unset):
        return "it computes more than sums of products"
    if writes[x] > 1 or writes[out] > 1 or x in parameters:
        return "its input or result is written several times, or is a parameter"
    if x == out or not block.has_var(x) or block.var(x).dtype != VarType.FP32:
        return "its input is not a float32 variable"
    rank = len(var.shape)
    if op.type.startswith("matmul") and rank != 2:
        return "its weights are not a matrix"
    if op.type == "mul" and (rank != 2 or int(op.attr("y_num_col_dims") if op.has_attr("y_num_col_dims") else 1) != 1):
        return "its weights are not a matrix"
    if not (block.has_var(out) and block.var(out).has_shape):
        return "the rank of its result is not declared"
    return Candidate(op, x, weights, out, form.axis - bool(form.swap and _is_set(op, form.swap)))


def _is_set(op: Operator, name: str) -> bool:
    return op.has_attr(name) and bool(op.attr(name))


# ---------------------------------------------------------------- rewriting
def quantize(
    program: Program, values: Values, scales: Mapping[str, float], skip: Collection[str] = ()
) -> tuple[PassResult, dict[str, Any]]:
    """Quantize block 0 of a program, in place; the decisions, and the parameters that replace or join `values`.

    scales: the largest size of each activation (Candidate.activation) that is kept.
    """
    work = _Rewriting(program, values, scales)
    found = list(candidates(program, values.keys(), skip))
    return PassResult(tuple(each if isinstance(each, Decision) else work.rewrite(each) for each in found)), work.made


class _Rewriting:
    """A program while its operators are quantized."""

    def __init__(self, program: Program, values: Values, scales: Mapping[str, float]) -> None:
        self.block, self.values, self.scales = program.global_block(), values, scales
        self.made: dict[str, Any] = {}
        self.quantized: dict[str, str] = {}  # of activations
        self.kept: dict[str, str] = {}  # their scales
        self.whole: dict[tuple[str, int], tuple[str, Any]] = {}  # of weights, with the scale of each output
        self.readers = Counter(name for each in program.blocks for op in each.ops for name in op.input_arg_names)

    def rewrite(self, candidate: Candidate) -> Decision:
        """Quantize an operator, and bring its sums back."""
        op, scale = candidate.op, self.scales.get(candidate.activation, 0.0)
        if not 0 < scale < np.inf:
            return decide(NAME, op, False, "its input was 0, or not finite, in the data")
        name, by_output = self._weights(candidate)
        op.rename_input(candidate.activation, self._activation(candidate, scale))
        op.rename_input(candidate.weights, name)
        sums = self._variable(f"{candidate.out}.sums", candidate.out)
        op.rename_output(candidate.out, sums)
        self._bring_back(candidate, sums, by_output)
        return decide(NAME, op, True, f"steps of {scale / STEPS:.6g}")

    def _weights(self, candidate: Candidate) -> tuple[str, Any]:
        """Weights as whole numbers, by their name or a new one where others read them too; the scale of each output."""
        key = candidate.weights, candidate.axis
        if key not in self.whole:
            numbers, by_output = whole_weights(np.asarray(self.values[candidate.weights]), candidate.axis)
            name = candidate.weights
            if self.readers[name] > 1:
                name = self._parameter(self._free(f"{name}.quantized"), numbers)
            self.made[name] = numbers
            self.whole[key] = name, by_output
        return self.whole[key]

    def _activation(self, candidate: Candidate, scale: float) -> str:
        """The quantized activation; its quantizer is put in where it is read first."""
        x = candidate.activation
        if x not in self.quantized:
            name = self.quantized[x] = self._variable(f"{x}.quantized", x)
            kept = self._parameter(self._free(f"{x}.scale"), np.array([scale], np.float32))
            self._insert(
                candidate.op,
                0,
                "fake_quantize_moving_average_abs_max",
                {"X": [x], "InScale": [kept]},
                {"Out": [name], "OutScale": [kept]},
                bit_length=BITS,
                is_test=True,
                moving_rate=0.9,
            )
            self.kept[x] = kept
        return self.quantized[x]

    def _bring_back(self, candidate: Candidate, sums: str, by_output: Any) -> None:
        """Operators behind: times the scales of the input and of each output."""
        kept = self.kept[candidate.activation]
        channels = self._parameter(self._free(f"{candidate.out}.channel_scale"), by_output)
        rank = len(self.block.var(candidate.out).shape)
        if candidate.by_images or rank == 2:
            inputs = {"X": [sums], "Scales": [channels, kept]}
            outputs = {"Out": [candidate.out]}
            self._insert(
                candidate.op, 1, "fake_channel_wise_dequantize_max_abs", inputs, outputs, quant_bits=[BITS, BITS]
            )
            return
        between = self._variable(f"{candidate.out}.by_input", candidate.out)
        inputs = {"X": [between], "Y": [channels]}
        self._insert(candidate.op, 1, "elementwise_mul", inputs, {"Out": [candidate.out]}, axis=rank - 1)
        inputs = {"X": [sums], "Scale": [kept]}
        of_all = float(STEPS * STEPS)
        self._insert(candidate.op, 1, "fake_dequantize_max_abs", inputs, {"Out": [between]}, max_range=of_all)

    # ------------------------------------------------------------ parts of a program
    def _insert(
        self, beside: Operator, after: int, type: str, inputs: Any, outputs: Any, **attrs: Any
    ) -> None:  # fmt: skip
        place = next(number for number, op in enumerate(self.block.ops) if op is beside) + after
        self.block.insert_op(place, type=type, inputs=inputs, outputs=outputs, attrs=attrs)

    def _variable(self, name: str, like: str) -> str:
        model, name = self.block.var(like), self._free(name)
        shape: Any = model.shape if model.has_shape else None
        self.block.create_var(name=name, shape=shape, dtype=VarType.FP32, lod_level=model.lod_level)
        return name

    def _parameter(self, name: str, value: Any) -> str:
        self.block.create_var(name=name, shape=list(value.shape), dtype=VarType.FP32, persistable=True)
        self.made[name] = value
        return name

    def _free(self, name: str) -> str:
        """A name that the program does not have."""
        found, number = name, 0
        while self.block.has_var(found):
            number += 1
            found = f"{name}_{number}"
        return found


def whole_weights(weights: Any, axis: int) -> tuple[Any, Any]:
    """(whole numbers of -127 to 127 in float32, the largest size of each output) for weights with outputs along `axis`."""
    others = tuple(each for each in range(weights.ndim) if each != axis)
    by_output = np.abs(weights).max(axis=others).astype(np.float32)
    shape = [1] * weights.ndim
    shape[axis] = -1
    scale = np.where(by_output > 0, by_output, 1).reshape(shape).astype(np.float64)
    numbers = np.clip(np.rint(weights / scale * STEPS), -STEPS, STEPS).astype(np.float32)
    return numbers, by_output
