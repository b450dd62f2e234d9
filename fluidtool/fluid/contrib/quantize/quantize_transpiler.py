"""`QuantizeTranspiler`: quantizes programs in place, before there was `contrib.slim` (Paddle 1.8.5 quantize_transpiler.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluidtool.errors import UsageError
from fluidtool.fluid.contrib.slim.quantization.freezing import original_name, rounded
from fluidtool.fluid.contrib.slim.quantization.nodes import DEQUANTIZERS, QUANTIZERS, Values
from fluidtool.fluid.executor import global_scope
from fluidtool.fluid.framework import default_main_program, default_startup_program, program_guard
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers import autoincreased_step_counter
from fluidtool.fluid.param_attr import ParamAttr
from fluidtool.ir import Block, Operator, Program, Variable, unique_name
from fluidtool.proto.enums import VarType
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import Place

__all__ = ["QuantizeTranspiler"]

QUANTIZABLE = ("conv2d", "depthwise_conv2d", "mul")
GRADIENTS = tuple(f"{type_}_grad" for type_ in QUANTIZABLE)
TYPES = ("abs_max", "range_abs_max", "moving_average_abs_max")


class QuantizeTranspiler:
    """Lets conv2d, depthwise_conv2d and mul compute with the rounding of integers.

    weight_bits, activation_bits: of the integers. activation_quantize_type, weight_quantize_type: 'abs_max', 'range_abs_max'
    (the largest of window_size steps) or 'moving_average_abs_max' (by moving_rate).
    """

    def __init__(
        self,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
    ) -> None:
        for what, type_ in (("weight", weight_quantize_type), ("activation", activation_quantize_type)):
            if type_ not in TYPES:
                raise UsageError(f"Unknown {what}_quantize_type: '{type_}'. It can be {', '.join(TYPES)}.")
        self.weight_bits, self.activation_bits = weight_bits, activation_bits
        self.weight_quantize_type, self.activation_quantize_type = weight_quantize_type, activation_quantize_type
        self.window_size, self.moving_rate = window_size, moving_rate

    def training_transpile(self, program: Program | None = None, startup_program: Program | None = None) -> None:
        """Put quantizers and dequantizers before the inputs, also in a program that trains; new state starts in startup_program.

        Raises UsageError for a gradient of such an operator whose inputs were not quantized.
        """
        main = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        parameters = {parameter.name for parameter in main.global_block().all_parameters()}
        with program_guard(main, startup):
            step = self._step()
            for block in main.blocks:
                work = _Transpiling(self, block, parameters, step)
                for op in list(block.ops):
                    if op.type in QUANTIZABLE:
                        work.forward(op)
                    elif op.type in GRADIENTS:
                        work.backward(op)

    def _step(self) -> Variable | None:
        asked = "range_abs_max" in (self.weight_quantize_type, self.activation_quantize_type)
        return autoincreased_step_counter() if asked else None

    def freeze_program(self, program: Program | None, place: Place, scope: Scope | None = None) -> None:
        """Let operators of a test program compute on integers; weights are rounded in the scope."""
        main = default_main_program() if program is None else program
        values = Values(global_scope() if scope is None else scope, place)
        persistable = {variable.name for variable in main.list_vars() if variable.persistable}
        for block in main.blocks:
            work = _Freezing(self, block, persistable, values)
            for op in list(block.ops):
                work.visit(op)
        _remove_unused(main)

    def convert_to_int8(self, program: Program | None, place: Place, scope: Scope | None = None) -> None:
        """Give the weights of a frozen program the data type int8, under names that end in '.int8'."""
        main = default_main_program() if program is None else program
        values = Values(global_scope() if scope is None else scope, place)
        for block in main.blocks:
            for op in [op for op in block.ops if op.type in QUANTIZABLE]:
                for name in [name for name in op.input_arg_names if block.var_recursive(name).persistable]:
                    op.rename_input(name, _as_int8(main.global_block(), block.var_recursive(name), values))
        _remove_unused(main)


def _as_int8(block: Block, variable: Variable, values: Values) -> str:
    """The name of the counterpart of a weight, made where it is not there yet."""
    name = f"{variable.name}.int8"
    if name not in block.vars:
        block.create_parameter(name=name, type=variable.type, dtype=VarType.INT8, shape=variable.shape)
        values.write(name, values.read(variable.name).astype(np.int8))
    return name


class _Transpiling:
    """A block, and the variables of it that have a dequantized counterpart."""

    def __init__(self, settings: QuantizeTranspiler, block: Block, parameters: set[str], step: Variable | None) -> None:
        self._settings, self._block, self._parameters, self._step = settings, block, parameters, step
        self._helper = LayerHelper("QuantizeTranspiler")
        self._dequantized: dict[str, str] = {}

    def forward(self, op: Operator) -> None:
        """Let an operator read its inputs dequantized."""
        for name in list(dict.fromkeys(op.input_arg_names)):
            if name not in self._dequantized:
                self._dequantized[name] = self._round_trip(self._block.var_recursive(name), op)
            op.rename_input(name, self._dequantized[name])

    def backward(self, op: Operator) -> None:
        """Let a gradient read what the operator that it is of reads."""
        known = [name for name in dict.fromkeys(op.input_arg_names) if name in self._dequantized]
        if not known:
            raise UsageError(f"There is no dequanted inputs for op {op.type}.")
        for name in known:
            op.rename_input(name, self._dequantized[name])

    def _round_trip(self, variable: Variable, op: Operator) -> str:
        settings, is_weight = self._settings, variable.name in self._parameters
        bits = settings.weight_bits if is_weight else settings.activation_bits
        type_ = settings.weight_quantize_type if is_weight else settings.activation_quantize_type
        quantized = self._like(variable, f"{variable.name}.quantized")
        inputs, outputs, attrs = getattr(self, f"_{type_}")(variable)
        self._insert(
            op,
            f"fake_quantize_{type_}",
            {"X": variable, **inputs},
            {"Out": quantized, **outputs},
            {"bit_length": bits, **attrs},
        )
        dequantized = self._like(variable, f"{quantized.name}.dequantized")
        read = {"X": quantized, "Scale": outputs["OutScale"]}
        largest = {"max_range": float((1 << (bits - 1)) - 1)}
        self._insert(op, "fake_dequantize_max_abs", read, {"Out": dequantized}, largest)
        return dequantized.name

    def _insert(self, before: Operator, type_: str, inputs: Any, outputs: Any, attrs: Any) -> None:
        self._block.insert_op(self._block.ops.index(before), type=type_, inputs=inputs, outputs=outputs, attrs=attrs)

    def _like(self, variable: Variable, name: str) -> Variable:
        return self._block.create_var(name=name, type=variable.type, shape=variable.shape, dtype=variable.dtype)

    def _abs_max(self, variable: Variable) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, {"OutScale": self._like(variable, f"{variable.name}.scale")}, {}

    def _range_abs_max(self, variable: Variable) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        scale = self._scale(variable)
        scales = self._state("scales", variable, self._settings.window_size, 0.0)
        attrs = {"window_size": self._settings.window_size, "is_test": False}
        return {"InScale": scale, "Iter": self._step}, {"OutScale": scale, "OutScales": scales}, attrs

    def _moving_average_abs_max(self, variable: Variable) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        state, total = (self._state(name, variable, 1, 1.0) for name in ("state", "accum"))
        scale = self._scale(variable)
        inputs = {"InScale": scale, "InState": state, "InAccum": total}
        outputs = {"OutScale": scale, "OutState": state, "OutAccum": total}
        return inputs, outputs, {"moving_rate": self._settings.moving_rate, "is_test": False}

    def _scale(self, variable: Variable) -> Variable:
        attr = ParamAttr(name=f"{variable.name}.scale", initializer=Constant(0.001), trainable=False)
        scale: Variable = self._helper.create_parameter(attr=attr, shape=[1], dtype=variable.dtype)
        scale.stop_gradient = True
        return scale

    def _state(self, name: str, variable: Variable, size: int, value: float) -> Variable:
        made: Variable = self._helper.create_global_variable(
            name=unique_name.generate(name), persistable=True, dtype=variable.dtype, shape=[size]
        )
        self._helper.set_variable_initializer(made, initializer=Constant(value))
        return made


class _Freezing:
    """A block of a test program while its operators are visited in order."""

    def __init__(self, settings: QuantizeTranspiler, block: Block, persistable: set[str], values: Values) -> None:
        self._settings, self._block, self._persistable, self._values = settings, block, persistable, values
        self._instead: dict[str, str] = {}  # what a quantizer or dequantizer read, by what it wrote
        self._dequantized: dict[str, str] = {}
        self._scales: dict[str, Any] = {}

    def visit(self, op: Operator) -> None:
        """Change an operator: remove it, or let it compute on integers, or read what those before it now write."""
        for name in list(dict.fromkeys(op.input_arg_names)):
            if name in self._dequantized:
                op.rename_input(name, self._dequantized[name])
        if op.type in QUANTIZERS:
            self._take_scale(op)
        if op.type in DEQUANTIZERS:
            self._bypass(op)
        if op.type in QUANTIZABLE:
            self._dequantize_result(op)

    def _take_scale(self, op: Operator) -> None:
        name, scale = op.input("X")[0], op.output("OutScale")[0]
        if name not in self._persistable:
            self._scales[name] = scale
            return
        weight = self._values.read(name)
        by_weight = self._settings.weight_quantize_type == "abs_max"
        self._scales[name] = float(np.max(np.abs(weight)) if by_weight else self._values.read(scale)[0])
        self._bypass(op)
        self._values.write(name, rounded(weight, weight.dtype.type(self._scales[name]), self._settings.weight_bits))

    def _bypass(self, op: Operator) -> None:
        read = op.input("X")[0]
        self._instead[op.output("Out")[0]] = self._instead.get(read, read)
        self._block.remove_op(self._block.ops.index(op))

    def _dequantize_result(self, op: Operator) -> None:
        largest, scale = 1.0, ""
        for name in list(dict.fromkeys(op.input_arg_names)):
            if name in self._instead:
                op.rename_input(name, self._instead[name])
            found = self._scales[original_name(name)]
            if isinstance(found, str):
                scale = found
            else:
                weight_range, range_ = ((1 << (bits - 1)) - 1 for bits in self._bits)
                largest = weight_range * range_ / found
        out = self._block.var_recursive(op.output_arg_names[0])
        made = self._block.create_var(name=f"{out.name}.dequantized", type=out.type, shape=out.shape, dtype=out.dtype)
        self._block.insert_op(
            self._block.ops.index(op) + 1,
            type="fake_dequantize_max_abs",
            attrs={"max_range": largest},
            inputs={"X": out, "Scale": scale},
            outputs={"Out": made},
        )
        self._dequantized[out.name] = made.name

    @property
    def _bits(self) -> tuple[int, int]:
        return self._settings.weight_bits, self._settings.activation_bits


def _remove_unused(program: Program) -> None:
    """Take out the variables that no operator of their block names."""
    for block in program.blocks:
        used = {name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
        for name in [name for name in block.vars if name not in used]:
            block.remove_var(name)
