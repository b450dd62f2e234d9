"""LayerHelper: names, variables and operators for layer functions (Paddle 1.8.5 layer_helper.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError, WrongKindError
from fluidtool.fluid.checks import check_type
from fluidtool.fluid.framework import default_main_program, default_startup_program
from fluidtool.fluid.initializer import Constant, Initializer, Xavier
from fluidtool.fluid.param_attr import ParamAttr, WeightNormParamAttr
from fluidtool.fluid.weight_norm import create_weight_norm
from fluidtool.ir import Operator, Parameter, Program, Variable, unique_name
from fluidtool.ir.variable import data_type, data_type_name
from fluidtool.proto.enums import VarType

FLOATING = frozenset({VarType.FP16, VarType.FP32, VarType.FP64, VarType.BF16})


class LayerHelper:
    """One call of a layer: its unique name, its keyword arguments, and the default programs.

    Raises ArgumentTypeError for a name that is not a string.
    """

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        self.layer_type, self.kwargs = layer_type, kwargs
        check_type(kwargs.get("name"), "name", (str, type(None)), layer_type)
        self.name: str = kwargs.get("name") or unique_name.generate(layer_type)

    @property
    def main_program(self) -> Program:
        """The program that the layer appends to."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program that initializes what the layer creates."""
        return default_startup_program()

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Append an operator to the current block of the main program."""
        return self.main_program.current_block().append_op(*args, **kwargs)

    # -- inputs
    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """The variables of an argument that takes one or several."""
        inputs = self.kwargs.get(input_param_name, [])
        items = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        for item in items:
            if not isinstance(item, Variable):
                raise ArgumentTypeError(
                    f"The type of '{input_param_name}' in {self.layer_type} must be Variable or a list of them, "
                    f"but received {type(item)}."
                )
        return items

    def input(self, input_param_name: str = "input") -> Variable:
        """The variable of an argument that takes one; raises UsageError for several."""
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise UsageError(f"{self.layer_type} layer only takes one input, found {len(inputs)}")
        return inputs[0]

    def input_dtype(self, input_param_name: str = "input") -> VarType:
        """The data type that all inputs share; raises UsageError if they differ."""
        dtypes = [var.dtype for var in self.multiple_input(input_param_name)]
        if len(set(dtypes)) > 1:
            other = next(dtype for dtype in dtypes if dtype != dtypes[0])
            raise UsageError(f"Data Type mismatch: {data_type_name(dtypes[0])} to {data_type_name(other)}")
        return VarType.FP32 if dtypes[0] is None else dtypes[0]

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Iterator[tuple[Variable, ParamAttr]]:
        """Inputs with the ParamAttr of each."""
        inputs = self.multiple_input(input_param_name)
        yield from zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    # -- parameters
    @property
    def param_attr(self) -> Any:
        """The `param_attr` argument as ParamAttr (False: no parameter)."""
        return ParamAttr.to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> Any:
        """The `bias_attr` argument as ParamAttr (False: no bias)."""
        return ParamAttr.to_attr(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[Any]:
        """One ParamAttr for each of `length` inputs."""
        attrs = self.param_attr
        attrs = attrs if isinstance(attrs, list) else [attrs]
        if len(attrs) == 1 and length != 1:
            return [attrs[0].copy() for _ in range(length)]
        if len(attrs) != length:
            raise UsageError(f"parameter number mismatch: {length} inputs, {len(attrs)} param_attr")
        return attrs

    def create_parameter(
        self,
        attr: Any,
        shape: Sequence[int],
        dtype: Any,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        stop_gradient: bool = False,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Any:
        """Create a parameter in both programs and its initializer in the startup program; None for attr False."""
        attr = ParamAttr.to_attr(attr)
        if not attr:
            return None
        attr, dtype, sizes = attr.copy(), data_type(dtype), self._sizes(shape)
        if attr.name is None:
            attr.name = unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        if attr.initializer is None:
            attr.initializer = default_initializer or self._default_initializer(dtype, is_bias)
        if isinstance(attr, WeightNormParamAttr):
            return create_weight_norm(self.main_program, self.startup_program, self.name, attr, sizes, dtype)
        fields = {"shape": sizes, "dtype": dtype, "type": type, **attr.to_kwargs()}
        self.startup_program.global_block().create_parameter(**fields, initializer=attr.initializer)
        return self.main_program.global_block().create_parameter(**fields)

    def _sizes(self, shape: Sequence[int]) -> list[int]:
        try:
            return [index(size) for size in shape]
        except TypeError:
            raise WrongKindError(
                f"{self.layer_type}: the shape of a parameter must have whole numbers, found {shape!r}"
            ) from None

    def _default_initializer(self, dtype: VarType, is_bias: bool) -> Initializer:
        if dtype not in FLOATING:
            raise ArgumentTypeError(
                "Can not create parameter with default initializer when dtype is not float type. "
                "Set default_initializer to fit the parameter dtype!"
            )
        return Constant(0.0) if is_bias else Xavier()

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of this name; raises UsageError if the variable is not one."""
        found = self.main_program.global_block().var(name)
        if not isinstance(found, Parameter):
            raise UsageError(f"no Parameter name {name} found")
        return found

    # -- variables
    def create_variable_for_type_inference(self, dtype: Any, stop_gradient: bool = False) -> Variable:
        """A temporary of the current block; the operator that writes it determines its kind."""
        return self.main_program.current_block().create_var(
            name=unique_name.generate(f"{self.name}.tmp"), dtype=dtype, persistable=False, stop_gradient=stop_gradient
        )

    create_tmp_variable = create_variable_for_type_inference

    def create_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """A variable of the current block."""
        return self.main_program.current_block().create_var(*args, **kwargs)

    def create_global_variable(self, persistable: bool = False, *args: Any, **kwargs: Any) -> Variable:
        """A variable of block 0, without initializer."""
        return self.main_program.global_block().create_var(*args, persistable=persistable, **kwargs)

    def create_or_get_global_variable(self, name: str, *args: Any, **kwargs: Any) -> tuple[Variable, bool]:
        """The variable of block 0 of this name, and whether it is new."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(*args, name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Initializer) -> Variable:
        """Initialize a variable of the main program in the startup program."""
        return self.startup_program.global_block().create_var(
            name=var.name, type=var.type, dtype=var.dtype, shape=var.shape, persistable=True, initializer=initializer
        )

    # -- bias and activation
    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Variable:
        """Add a bias over the dimensions dim_start to dim_end, unless bias_attr is False."""
        attr = self.bias_attr
        if not attr:
            return input_var
        size = list(input_var.shape[dim_start:dim_end])
        bias = self.create_parameter(attr, shape=size, dtype=input_var.dtype, is_bias=True)
        out = self.create_variable_for_type_inference(input_var.dtype)
        self.append_op(
            type="elementwise_add",
            inputs={"X": [input_var], "Y": [bias]},
            outputs={"Out": [out]},
            attrs={"axis": dim_start},
        )
        return out

    def append_activation(self, input_var: Variable) -> Variable:
        """Apply the activation named by the `act` argument, if any."""
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if not isinstance(act, str):
            raise ArgumentTypeError(f"{act} should be unicode or str")
        attrs = {}
        if self.kwargs.get("use_cudnn"):
            attrs["use_cudnn"] = self.kwargs["use_cudnn"]
        if "use_mkldnn" in self.kwargs:
            attrs["use_mkldnn"] = self.kwargs["use_mkldnn"]
        out = self.create_variable_for_type_inference(input_var.dtype)
        self.append_op(type=act, inputs={"X": [input_var]}, outputs={"Out": [out]}, attrs=attrs)
        return out

    def is_instance(self, param_name: str, cls: type) -> None:
        """Raise ArgumentTypeError unless the argument is an instance of the class."""
        if not isinstance(self.kwargs.get(param_name), cls):
            raise ArgumentTypeError(
                f"The input {param_name} parameter of method {self.layer_type} must be {cls.__name__}"
            )


LayerHelperBase = LayerHelper  # one class here, so that what scripts replace in either is used
