"""Optimizer: gradients, clips and penalties, then one update operator per parameter (Paddle 1.8.5 optimizer.py).

An optimizer is defined by its operator type, its accumulators and its attributes; everything else is here.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, cast

from fluidtool.errors import ArgumentTypeError, AssertedError, ProgramError, UsageError
from fluidtool.fluid.checks import check_given
from fluidtool.fluid.clip import GradientClipBase, append_gradient_clip_ops, error_clip_callback
from fluidtool.fluid.framework import default_main_program, device_guard, name_scope, program_guard
from fluidtool.fluid.initializer import Constant
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.regularizer import WeightDecayRegularizer, append_regularization_ops
from fluidtool.ir import Block, Operator, Parameter, Program, Variable, unique_name
from fluidtool.ir.roles import DEVICE_ATTR
from fluidtool.passes.backward import append_backward
from fluidtool.passes.backward.arguments import names
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

ParamGrad = tuple[Variable, Variable | None]


@dataclass(frozen=True, slots=True)
class Accumulator:
    """State that an optimizer keeps per parameter: its name, the operator's slots for it, and its initial value.

    scalar: shape [1] instead of the parameter's. device: where it is initialized and kept ('cpu').
    """

    name: str
    slot: str
    out_slot: str | None
    fill: float = 0.0
    scalar: bool = False
    device: str | None = None


class Optimizer:
    """The base of optimizers. Arguments as in Paddle 1.8.5.

    learning_rate: a float or a Variable. parameter_list: what to train (default: every trainable parameter).
    regularization: for parameters without a regularizer. grad_clip: clips all gradients together.
    """

    type = ""
    state: ClassVar[tuple[Accumulator, ...]] = ()

    def __init__(
        self,
        learning_rate: float | Variable,
        parameter_list: Iterable[Variable | str] | None = None,
        regularization: WeightDecayRegularizer | None = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None:
        check_given(learning_rate=learning_rate)
        if not isinstance(learning_rate, (float, Variable)):
            raise ArgumentTypeError(f"learning rate should be float or Variable, got {learning_rate.__class__} here")
        if grad_clip is not None and not isinstance(grad_clip, GradientClipBase):
            raise ArgumentTypeError(
                f"'grad_clip' should be an instance of GradientClipBase's derived class, found {type(grad_clip).__name__}"
            )
        if regularization is not None and not isinstance(regularization, WeightDecayRegularizer):
            raise ArgumentTypeError(
                f"'regularization' should be an L1Decay, L2Decay or another WeightDecayRegularizer, found {regularization!r}"
            )
        self.regularization, self._grad_clip, self._name = regularization, grad_clip, name
        self._learning_rate, self._parameter_list = learning_rate, parameter_list
        self._dtype: Any = None
        self._learning_rate_map: dict[Program, Variable] = {}
        if isinstance(learning_rate, Variable):
            self._learning_rate_map[default_main_program()] = learning_rate
        self._accumulators: defaultdict[str, dict[str, Variable]] = defaultdict(dict)
        self._opti_name_list: list[str] = []
        self._param_device_map: dict[str, str] = {}
        self.helper: LayerHelper | None = None

    # -- for subclasses
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The state per parameter, in the order of creation: `state`, unless it depends on the arguments."""
        return self.state

    def attrs(self, param: Variable) -> dict[str, Any]:
        """The attributes of a parameter's update operator."""
        return {}

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        """Append the update operator of one parameter."""
        return self._append_update(block, param_and_grad, {"LearningRate": [self._create_param_lr(param_and_grad)]})

    def _append_update(self, block: Block, param_and_grad: ParamGrad, others: dict[str, Any]) -> Operator:
        """Append the operator with the parameter, its gradient and its state, and with other inputs."""
        param, grad = param_and_grad
        inputs: dict[str, Any] = {"Param": [param], "Grad": [grad], **others}
        outputs: dict[str, Any] = {"ParamOut": [param]}
        for accumulator in self.accumulators():
            var = self._get_accumulator(accumulator.name, param)
            inputs[accumulator.slot] = [var]
            if accumulator.out_slot is not None:
                outputs[accumulator.out_slot] = [var]
        return block.append_op(type=self.type, inputs=inputs, outputs=outputs, attrs=self.attrs(param))

    def _create_accumulators(self, block: Block, parameters: Sequence[Variable]) -> None:
        """Create the state of the parameters."""
        for param in parameters:
            for entry in self.accumulators():
                self._add_accumulator(
                    entry.name,
                    param,
                    fill_value=entry.fill,
                    shape=[1] if entry.scalar else None,
                    type=VarType.LOD_TENSOR if entry.scalar else None,
                    device=entry.device,
                )

    def _finish_update(self, block: Block, parameters_and_grads: Sequence[ParamGrad]) -> None:
        """Append operators after all updates."""

    def __getattr__(self, name: str) -> str:
        """The names of accumulators, which Paddle keeps in attributes: `_moment_acc_str` of "moment"."""
        if name.endswith("_acc_str"):
            for accumulator in self.accumulators():
                if name == f"_{accumulator.name.strip('_').removesuffix('_acc')}_acc_str":
                    return accumulator.name
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    # -- for users
    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[ParamGrad]]:
        """Append gradients and updates for `loss`; returns the appended operators and (parameter, gradient) pairs."""
        if not isinstance(loss, Variable):
            raise AssertedError(f"The loss should be an Variable, found {type(loss).__name__}")
        params_grads = self.backward(loss, startup_program, parameter_list or self._parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
        callbacks: Sequence[Callable[..., None]] | None = None,
    ) -> list[ParamGrad]:
        """Append the gradients of `loss`; raises UsageError if it is not a scalar."""
        if tuple(loss.shape) != (1,):
            raise AssertedError(
                f"The loss.shape should be (1L,), but the current loss.shape is {shape_text(loss.shape)}. Maybe that you should "
                "call fluid.layers.mean to process the current loss."
            )
        self._dtype = loss.dtype
        frozen = {p.name for p in loss.block.program.global_block().all_parameters() if not p.trainable}
        no_grad = frozen | set(names(no_grad_set, "no_grad_set"))
        with program_guard(loss.block.program, startup_program):
            chosen = parameter_list or self._parameter_list
            pairs = append_backward(loss, chosen, no_grad, [error_clip_callback] if callbacks is None else callbacks)
            self._append_dgc_ops(pairs)
        if not pairs:
            warnings.warn(
                f"{type(self).__name__} trains nothing: no trainable parameter has a gradient of {loss.name}",
                stacklevel=3,
            )
        return pairs

    def _append_dgc_ops(self, param_and_grads: Sequence[ParamGrad]) -> None:
        """Hook of DGCMomentum."""

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[ParamGrad]
    ) -> list[Operator]:
        """Append the updates to the program of `loss`."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[ParamGrad]) -> list[Operator]:
        """Append clips, penalties and updates for (parameter, gradient) pairs, by name of the parameter."""
        pairs: list[ParamGrad] = sorted(params_grads, key=lambda pair: pair[0].name)
        pairs, table_op = self._split_off_distributed_table(pairs)
        pairs = append_gradient_clip_ops(pairs) if self._grad_clip is None else self._grad_clip(pairs)
        pairs = append_regularization_ops(pairs, self.regularization)
        ops = self._create_optimization_pass(pairs)
        return ops if table_op is None else [*ops, table_op]

    def get_opti_var_name_list(self) -> list[str]:
        """The names of the accumulators."""
        return self._opti_name_list

    # -- learning rates
    def _global_learning_rate(self, program: Program | None = None) -> Variable | None:
        return self._learning_rate_map.get(default_main_program() if program is None else program)

    def _create_global_learning_rate(self) -> None:
        if self._global_learning_rate() is not None:
            return
        if not isinstance(self._learning_rate, float):
            raise ArgumentTypeError(
                "learning rate variable is create outside optimizer,can not create new learning rate variable for new program"
            )
        name = unique_name.generate("learning_rate")
        helper = LayerHelper("global_var")
        dtype = VarType.FP32 if self._dtype is None else self._dtype
        var = helper.create_global_variable(dtype=dtype, shape=[1], persistable=True, name=name, stop_gradient=True)
        helper.set_variable_initializer(var, Constant(float(self._learning_rate), force_cpu=False))
        self._learning_rate_map[default_main_program()] = var

    def _create_param_lr(self, param_and_grad: ParamGrad) -> Variable:
        """The learning rate of a parameter: the global one, times the parameter's own factor."""
        param = param_and_grad[0]
        factor = param.optimize_attr["learning_rate"] if isinstance(param, Parameter) else 1.0
        if isinstance(factor, Variable):
            return factor
        rate = self._global_learning_rate()
        assert rate is not None
        if factor == 1.0:
            return rate
        with default_main_program().lr_schedule_guard(is_with_opt=True), name_scope("scale_with_param_lr"):
            scaled: Any = rate
            return cast(Variable, scaled * factor)

    # -- accumulators
    def _add_accumulator(
        self,
        name: str,
        param: Variable,
        dtype: Any = None,
        fill_value: float = 0.0,
        shape: Sequence[int] | None = None,
        type: VarType | int | None = None,
        device: str | None = None,
    ) -> Variable:
        """Create an accumulator of a parameter and its initializer."""
        key = name if self._name is None else f"{self._name}_{name}"
        if param.name in self._accumulators[key]:
            raise ProgramError(f"Accumulator {key} already exists for parameter {param.name}")
        assert self.helper is not None
        var_name = unique_name.generate(f"{param.name}_{key}")
        self._opti_name_list.append(var_name)
        var = self.helper.create_global_variable(
            name=var_name,
            persistable=True,
            dtype=dtype or param.dtype,
            type=param.type if type is None else type,
            shape=param.shape if shape is None else shape,
            belong_to_optimizer=True,
        )
        with device_guard(self._param_device_map.get(param.name) if device is None else device):
            self.helper.set_variable_initializer(var, Constant(float(fill_value)))
        self._accumulators[key][param.name] = var
        return var

    def _get_accumulator(self, name: str, param: Variable) -> Variable:
        """The accumulator of a parameter; raises ProgramError if it was never created."""
        key = name if self._name is None else f"{self._name}_{name}"
        if param.name not in self._accumulators[key]:
            raise ProgramError(f"Accumulator {key} does not exist for parameter {param.name}")
        return self._accumulators[key][param.name]

    # -- the pass
    def _create_optimization_pass(self, parameters_and_grads: Sequence[ParamGrad]) -> list[Operator]:
        program = default_main_program()
        current = program.current_block()
        target = program.global_block() if current.idx == 0 else _backward_block(program, current)
        start = len(target.ops)
        self.helper = LayerHelper(self.__class__.__name__)
        self._note_devices(parameters_and_grads, target)
        self._create_accumulators(target, [param for param, _ in parameters_and_grads if _trainable(param)])
        self._create_global_learning_rate()
        for pair in parameters_and_grads:
            param, grad = pair
            if grad is None:
                continue
            with param.block.program.optimized_guard([param, grad]), name_scope("optimizer"):
                if _trainable(param):
                    with device_guard(self._param_device_map.get(param.name)):
                        self._append_optimize_op(target, pair)
        self._finish_update(target, parameters_and_grads)
        return target.ops[start:]

    def _note_devices(self, parameters_and_grads: Sequence[ParamGrad], block: Block) -> None:
        """A parameter's state lives on the device of the first operator that reads it."""
        readers = {name: op for op in reversed(block.ops) for name in op.input_arg_names}
        for param, _ in parameters_and_grads:
            if _trainable(param) and param.name in readers:
                self._param_device_map[param.name] = readers[param.name].get_attr(DEVICE_ATTR, "")

    def _split_off_distributed_table(self, pairs: list[ParamGrad]) -> tuple[list[ParamGrad], Operator | None]:
        """A distributed lookup table is updated by plain sgd, whatever the optimizer."""
        names = {
            op.input("W")[0]
            for op in default_main_program().global_block().ops
            if op.type == "lookup_table" and op.get_attr("is_distributed")
        }
        if len(names) > 1:
            raise UsageError(f"all distributed lookup_table_ops should have only one table, found {sorted(names)}")
        table = next((pair for pair in pairs if pair[0].name in names), None)
        if table is None:
            return pairs, None
        rest = [pair for pair in pairs if pair is not table]
        block = default_main_program().global_block()
        with table[0].block.program.optimized_guard(list(table)), name_scope("optimizer"):
            self._create_global_learning_rate()
            inputs = {"Param": table[0], "Grad": table[1], "LearningRate": self._create_param_lr(table)}
            op = block.append_op(type="sgd", inputs=inputs, outputs={"ParamOut": table[0]})
        return rest, op


def _trainable(param: Variable) -> bool:
    return bool(getattr(param, "trainable", True))


def _backward_block(program: Program, current: Block) -> Block:
    for block in program.blocks:
        if block.forward_block_idx == current.idx:
            return block
    raise ProgramError("current block is not global_block, but it doesn't have backward block.")
