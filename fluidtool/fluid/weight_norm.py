"""Weight normalization (Salimans and Kingma 2016): a parameter as g * v / |v| (Paddle 1.8.5 layer_helper_base.py)."""

from __future__ import annotations

from typing import Any

from fluidtool.fluid.checks import check_variable_and_dtype
from fluidtool.fluid.param_attr import WeightNormParamAttr
from fluidtool.ir import Block, Program, Variable, unique_name
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

SCALABLE = ("float16", "float32", "float64", "int32", "int64")


@dataclass(frozen=True, slots=True)
class _Builder:
    """Appends the operators of a norm to one block."""

    block: Block
    name: str
    dtype: VarType

    def op(self, op_type: str, x: Variable, key: str, out: Variable | None = None, **attrs: Any) -> Variable:
        if out is None:
            out = self.block.create_var(name=unique_name.generate(f"{self.name}.weight_norm_{key}"), dtype=self.dtype)
        self.block.append_op(type=op_type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
        return out

    def norm(self, x: Variable, dim: list[int] | None, out: Variable | None = None) -> Variable:
        """sqrt(sum |x|^2) over `dim`, over all elements if None."""
        if out is None:
            out = self.block.create_var(name=unique_name.generate(f"{self.name}.weight_norm_norm"), dtype=self.dtype)
        magnitude = self.op("abs", x, "abs")
        squared = self.op("pow", magnitude, "pow", factor=2.0)
        attrs: dict[str, Any] = {"keep_dim": False, "reduce_all": dim is None} | ({} if dim is None else {"dim": dim})
        total = self.op("reduce_sum", squared, "sum", **attrs)
        return self.op("pow", total, "norm", out, factor=0.5)

    def norm_except(self, x: Variable, dim: int | None, out: Variable | None = None) -> Variable:
        """The norm over all dimensions but `dim`, the others kept with size 1."""
        if out is None:
            out = self.block.create_var(name=unique_name.generate(f"{self.name}.weight_norm_norm"), dtype=self.dtype)
        rank = len(x.shape)
        if dim is None:
            return self.norm(x, None, out)
        if dim in (0, rank - 1):
            size = x.shape[dim]
            flat = self.op("reshape", x, "reshape", shape=[size, -1] if dim == 0 else [-1, size])
            norm = self.norm(flat, [1 if dim == 0 else 0])
            shape = [size if axis == dim else 1 for axis in range(rank)]
            return self.op("reshape", norm, "reshape", out, shape=shape)
        order = list(range(rank))
        order[0], order[dim] = dim, 0
        turned = self.op("transpose", x, "transpose", axis=order)
        size = turned.shape[0]
        norm = self.norm(self.op("reshape", turned, "reshape", shape=[size, -1]), [1])
        column = self.op("reshape", norm, "reshape", shape=[size] + [1] * (rank - 1))
        return self.op("transpose", column, "transpose", out, axis=order)


def create_weight_norm(
    main: Program, startup: Program, name: str, attr: WeightNormParamAttr, shape: list[int], dtype: VarType
) -> Variable:
    """Create g and v in both programs, initialize g = |v|, and return the variable of the weight.

    name: of the layer. Raises ArgumentTypeError for a data type that cannot be scaled.
    """
    lengths = [1] * len(shape)
    if attr.dim is not None:
        lengths[attr.dim] = shape[attr.dim]
    fields = {**attr.to_kwargs(), "dtype": dtype}
    g_fields = fields | {"name": f"{attr.name}_g", "shape": lengths}
    v_fields = fields | {"name": f"{attr.name}_v", "shape": shape}
    block = startup.global_block()
    g = block.create_parameter(**g_fields)
    v = block.create_parameter(**v_fields, initializer=attr.initializer)
    start = _Builder(block, name, dtype)
    start.norm_except(v, attr.dim, g)
    start.op("reshape", g, "reshape", g, shape=lengths)
    block = main.global_block()
    g = block.create_parameter(**g_fields)
    v = block.create_parameter(**v_fields)
    check_variable_and_dtype(g, "x", SCALABLE, "elementwise_div")
    weight = _scaled(_Builder(main.current_block(), name, dtype), g, v, attr.dim)
    WeightNormParamAttr.params_with_weight_norm.append(weight)
    return weight


def _scaled(builder: _Builder, g: Variable, v: Variable, dim: int | None) -> Variable:
    """v * (g / |v|), with the operators and names of layers; layers cannot be used, they create parameters by this file."""
    scale = _elementwise(builder.block, "elementwise_div", g, builder.norm_except(v, dim), -1)
    if dim is not None:
        scale = _reshaped(builder.block, scale, [v.shape[dim]])
    return _elementwise(builder.block, "elementwise_mul", v, scale, -1 if dim is None else dim)


def _elementwise(block: Block, op_type: str, x: Variable, y: Variable, axis: int) -> Variable:
    out = _temporary(block, unique_name.generate(op_type), x.dtype)
    attrs = {"axis": axis, "use_mkldnn": False}
    block.append_op(type=op_type, inputs={"X": [x], "Y": [y]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _reshaped(block: Block, x: Variable, shape: list[int]) -> Variable:
    name = unique_name.generate("reshape2")
    out, x_shape = _temporary(block, name, x.dtype), _temporary(block, name, x.dtype, stop_gradient=True)
    block.append_op(
        type="reshape2", inputs={"X": [x]}, outputs={"Out": [out], "XShape": [x_shape]}, attrs={"shape": shape}
    )
    return out


def _temporary(block: Block, name: str, dtype: VarType | None, stop_gradient: bool = False) -> Variable:
    return block.create_var(
        name=unique_name.generate(f"{name}.tmp"), dtype=dtype, persistable=False, stop_gradient=stop_gradient
    )
