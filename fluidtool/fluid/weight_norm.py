"""Weight normalisation (Salimans and Kingma 2016): a parameter as g * v / |v| (Paddle 1.8.5 layer_helper_base.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluidtool.fluid.param_attr import WeightNormParamAttr
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.proto.enums import VarType

if TYPE_CHECKING:
    from fluidtool.fluid.layer_helper import LayerHelper


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
        """sqrt(sum |x|^2) over `dim`, over everything for None."""
        if out is None:
            out = self.block.create_var(name=unique_name.generate(f"{self.name}.weight_norm_norm"), dtype=self.dtype)
        magnitude = self.op("abs", x, "abs")
        squared = self.op("pow", magnitude, "pow", factor=2.0)
        attrs: dict[str, Any] = {"keep_dim": False, "reduce_all": dim is None} | ({} if dim is None else {"dim": dim})
        total = self.op("reduce_sum", squared, "sum", **attrs)
        return self.op("pow", total, "norm", out, factor=0.5)

    def norm_except(self, x: Variable, dim: int | None, out: Variable | None = None) -> Variable:
        """The norm over all dimensions but `dim`, with the others kept as ones."""
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


def create_weight_norm(helper: LayerHelper, attr: WeightNormParamAttr, shape: list[int], dtype: VarType) -> Variable:
    """Create g and v in both programs, initialise g = |v|, and return the variable of the weight."""
    from fluidtool.fluid.layers import elementwise_div, elementwise_mul, reshape

    lengths = [1] * len(shape)
    if attr.dim is not None:
        lengths[attr.dim] = shape[attr.dim]
    made = {}
    for suffix, size in (("_g", lengths), ("_v", shape)):
        fields = {**attr.to_kwargs(), "name": f"{attr.name}{suffix}", "shape": size, "dtype": dtype}
        initializer = {"initializer": attr.initializer} if suffix == "_v" else {}
        made["startup" + suffix] = helper.startup_program.global_block().create_parameter(**fields, **initializer)
    startup = _Builder(helper.startup_program.global_block(), helper.name, dtype)
    startup.norm_except(made["startup_v"], attr.dim, made["startup_g"])
    startup.op("reshape", made["startup_g"], "reshape", made["startup_g"], shape=lengths)
    for suffix, size in (("_g", lengths), ("_v", shape)):
        fields = {**attr.to_kwargs(), "name": f"{attr.name}{suffix}", "shape": size, "dtype": dtype}
        made["main" + suffix] = helper.main_program.global_block().create_parameter(**fields)
    main = _Builder(helper.main_program.current_block(), helper.name, dtype)
    norm = main.norm_except(made["main_v"], attr.dim)
    scale = elementwise_div(x=made["main_g"], y=norm)
    if attr.dim is not None:
        scale = reshape(x=scale, shape=[shape[attr.dim]])
    weight: Variable = elementwise_mul(x=made["main_v"], y=scale, axis=-1 if attr.dim is None else attr.dim)
    WeightNormParamAttr.params_with_weight_norm.append(weight)
    return weight
