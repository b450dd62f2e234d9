"""Clips of gradients: by value, by norm, by the norm of all together; and error clips (Paddle 1.8.5 clip.py)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError, UnsupportedOperatorError, UsageError
from fluidtool.fluid.framework import default_main_program, name_scope
from fluidtool.fluid.layer_helper import LayerHelper
from fluidtool.fluid.layers.building import append_simple
from fluidtool.fluid.offers import defined_in, refuse_other_names
from fluidtool.ir import Block, Parameter, Program, Variable
from fluidtool.ir.roles import NAMESCOPE_ATTR, ROLE_VAR_ATTR
from fluidtool.ops.gradient import OpDescription
from fluidtool.proto.enums import AttrType, VarType

ParamGrad = tuple[Variable, Variable | None]
NeedClip = Callable[[Variable], bool]


# ---------------------------------------------------------------- error clips
class BaseErrorClipAttr:
    """The base of error clips, for isinstance checks."""

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append the clip of a gradient, in place."""
        raise UnsupportedOperatorError(f"{type(self).__name__} has no rule to clip {grad_name}")


class ErrorClipByValue(BaseErrorClipAttr):
    """Clips the gradient of a variable between min (default -max) and max in the backward pass."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def __str__(self) -> str:
        return f"ByValue, min={self.min:f}, max={self.max:f}"

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append the clip of a gradient, in place."""
        attrs = {"min": self.min, "max": self.max}
        OpDescription("clip", {"X": [grad_name]}, {"Out": [grad_name]}, attrs).insert(block)


def error_clip_callback(block: Block, context: dict[str, Any]) -> None:
    """Callback of append_backward: clips the gradients of variables that have an error clip."""
    for name in block.ops[-1].output_arg_names:
        if name not in context:
            continue
        clip = block.var_recursive(context[name]).error_clip
        if clip is None:
            continue
        if not isinstance(clip, BaseErrorClipAttr):
            raise ArgumentTypeError(
                f"Variable's error_clip should be an instance of BaseErrorClipAttr or None, found {type(clip).__name__}"
            )
        clip.append_clip_op(block, name)


# ---------------------------------------------------------------- gradient clips
class GradientClipBase:
    """The base of gradient clips; called with (parameter, gradient) pairs it returns clipped ones.

    need_clip(param) says which parameters take part (default: all).
    """

    def __init__(self, need_clip: NeedClip | None = None) -> None:
        if need_clip is not None and not callable(need_clip):
            raise ArgumentTypeError(
                f"The type of need_clip must be funciton, and it can filter out parameters, found {type(need_clip).__name__}"
            )
        self._need_clip = need_clip

    def __call__(self, params_grads: Sequence[ParamGrad]) -> list[ParamGrad]:
        """The pairs with clipped gradients; parameters without gradient are left out."""
        if any(getattr(param, "gradient_clip_attr", None) is not None for param, _ in params_grads):
            warnings.warn(
                "'set_gradient_clip' will be ineffective, because you have set 'grad_clip' in 'optimizer'.",
                stacklevel=4,
            )
        result: list[ParamGrad] = []
        renamed: dict[str, str] = {}
        with name_scope("gradient_clip"):
            context = self.prepare([(p, g) for p, g in params_grads if g is not None and self._wanted(p)])
            for param, grad in params_grads:
                if grad is None:
                    continue
                if not self._wanted(param) or context is None:
                    result.append((param, grad))
                    continue
                with param.block.program.optimized_guard([param, grad]):
                    clipped = self.clip(grad, context)
                renamed[param.name] = clipped.name
                result.append((param, clipped))
        _correct_role_vars(result, renamed)
        return result

    def _wanted(self, param: Variable) -> bool:
        return self._need_clip is None or self._need_clip(param)

    def prepare(self, params_grads: list[tuple[Variable, Variable]]) -> Any:
        """State shared by all gradients; None disables clipping."""
        return ()

    def clip(self, grad: Variable, context: Any) -> Variable:
        """Append the clip of one gradient."""
        raise UnsupportedOperatorError(f"{type(self).__name__} has no rule to clip {grad.name}")

    # -- the older way: the clip belongs to the parameter (set_gradient_clip)
    def process_context(self, context: dict[str, Any], param: Variable, grad: Variable) -> None:
        """Collect what the gradients of a group share."""

    def create_operators(self, context: dict[str, Any], param: Variable, grad: Variable) -> Variable:
        """Append the clip of one gradient."""
        return self.clip(grad, ())


class GradientClipByValue(GradientClipBase):
    """Every element between min (default -max) and max."""

    def __init__(self, max: float, min: float | None = None, need_clip: NeedClip | None = None) -> None:
        super().__init__(need_clip)
        if min is None and not max > 0.0:
            raise AssertedError(f"GradientClipByValue needs max > 0 when min is not given, found {max}")
        self.max = float(max)
        self.min = float(-max if min is None else min)

    def clip(self, grad: Variable, context: Any) -> Variable:
        """Append the clip of one gradient."""
        return _layer("clip", {"X": grad}, {"min": self.min, "max": self.max}, grad)

    def __str__(self) -> str:
        return f"Gradient Clip By Value, min = {self.min:f}, max={self.max:f}"


class GradientClipByNorm(GradientClipBase):
    """Each gradient scaled down to an L2 norm of at most clip_norm."""

    def __init__(self, clip_norm: float, need_clip: NeedClip | None = None) -> None:
        super().__init__(need_clip)
        self.clip_norm = float(clip_norm)

    def clip(self, grad: Variable, context: Any) -> Variable:
        """Append the clip of one gradient."""
        return _layer("clip_by_norm", {"X": grad}, {"max_norm": self.clip_norm}, grad)

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"


class GradientClipByGlobalNorm(GradientClipBase):
    """All gradients scaled by one factor, so that their joint L2 norm is at most clip_norm."""

    def __init__(self, clip_norm: float, group_name: str = "default_group", need_clip: NeedClip | None = None) -> None:
        super().__init__(need_clip)
        self.clip_norm, self.group_name = float(clip_norm), group_name

    def prepare(self, params_grads: list[tuple[Variable, Variable]]) -> Variable | None:
        """The factor: clip_norm / max(clip_norm, sqrt(sum of squares)); None without gradients."""
        squares = []
        for param, grad in params_grads:
            with param.block.program.optimized_guard([param, grad]):
                squares.append(_sum_of_squares(grad))
        if not squares:
            return None
        param, grad = params_grads[-1]
        with param.block.program.optimized_guard([param, grad]):
            norm = _layer(
                "sqrt", {"X": _layer("sum", {"X": squares}, {"use_mkldnn": False}, squares[0])}, {}, squares[0]
            )
            return _ratio(_constant(self.clip_norm), norm)

    def clip(self, grad: Variable, context: Any) -> Variable:
        """Append the scaling of one gradient."""
        return _layer("elementwise_mul", {"X": grad, "Y": context}, {"axis": -1}, grad)

    def process_context(self, context: dict[str, Any], param: Variable, grad: Variable) -> None:
        """Collect the sums of squares of a group."""
        group = context.setdefault(self.group_name, {"squares": [], "norm": self.clip_norm})
        if "limit" not in group:
            group["limit"] = _constant(self.clip_norm)
        elif group["norm"] != self.clip_norm:
            raise UsageError(
                f"All parameters' 'clip_norm' of a same group should be the same, found {group['norm']} and {self.clip_norm}"
            )
        group["squares"].append(_sum_of_squares(grad))

    def create_operators(self, context: dict[str, Any], param: Variable, grad: Variable) -> Variable:
        """Append the scaling of one gradient; the group's factor first."""
        group = context[self.group_name]
        if "factor" not in group:
            total = _layer("sum", {"X": group["squares"]}, {"use_mkldnn": False}, group["squares"][0])
            group["factor"] = _ratio(group["limit"], _layer("sqrt", {"X": total}, {}, total))
        return self.clip(grad, group["factor"])

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"


def _layer(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], like: Variable) -> Variable:
    helper = LayerHelper(op_type)
    return append_simple(helper, op_type, inputs, attrs, dtype=like.dtype)


def _constant(value: float) -> Variable:
    helper = LayerHelper("fill_constant")
    attrs = {"value": value, "str_value": str(value), "force_cpu": False, "shape": [1], "dtype": int(VarType.FP32)}
    return append_simple(helper, "fill_constant", {}, attrs, dtype=VarType.FP32, stop_gradient=True)


def _sum_of_squares(grad: Variable) -> Variable:
    if grad.type == VarType.SELECTED_ROWS:
        grad = _layer("merge_selected_rows", {"X": grad}, {}, grad)
        grad = _layer("get_tensor_from_selected_rows", {"X": grad}, {}, grad)
    square = _layer("square", {"X": grad}, {}, grad)
    return _layer("reduce_sum", {"X": square}, {"dim": [0], "keep_dim": False, "reduce_all": True}, grad)


def _ratio(limit: Variable, norm: Variable) -> Variable:
    larger = _layer("elementwise_max", {"X": limit, "Y": norm}, {"axis": -1}, limit)
    return _layer("elementwise_div", {"X": limit, "Y": larger}, {"axis": -1}, limit)


def set_gradient_clip(
    clip: GradientClipBase, param_list: Sequence[Parameter | str] | None = None, program: Program | None = None
) -> None:
    """Set the clip of parameters (default: all of the default main program), for optimizers without grad_clip."""
    if not isinstance(clip, GradientClipBase):
        raise ArgumentTypeError(
            f"'clip' should be an instance of GradientClipBase's derived class, found {type(clip).__name__}"
        )
    block = (default_main_program() if program is None else program).global_block()
    if any("optimizer" in op.get_attr(NAMESCOPE_ATTR, "") for op in block.ops):
        warnings.warn(
            "'minimize' has been invoked before, this will make 'set_gradient_clip' be ineffective! "
            "Please invoke 'set_gradient_clip' before 'minimize'.",
            stacklevel=2,
        )
    chosen = block.all_parameters() if param_list is None else list(param_list)
    params = [block.var(item) if isinstance(item, str) else item for item in chosen]
    if not all(isinstance(param, Parameter) for param in params):
        raise ArgumentTypeError(
            f"'param_list' should be a list of Parameter or basestring(parameter's name), found {params}"
        )
    for param in params:
        if isinstance(param, Parameter):
            param.gradient_clip_attr = copy.deepcopy(clip)


def append_gradient_clip_ops(param_grads: Sequence[ParamGrad]) -> list[ParamGrad]:
    """Pairs with the clips of their parameters applied; unchanged if a parameter has none."""
    context: dict[str, Any] = {}
    pairs = [(param, grad) for param, grad in param_grads if grad is not None]
    clips = []
    for param, grad in pairs:
        with param.block.program.optimized_guard([param, grad]), name_scope("gradient_clip_@CLIP"):
            clip = getattr(param, "gradient_clip_attr", None)
            if clip is None:
                return list(param_grads)
            if not isinstance(clip, GradientClipBase):
                raise ArgumentTypeError(
                    f"clip attribute should be an instance of GradientClipBase, found {type(clip).__name__}"
                )
            clip.process_context(context, param, grad)
            clips.append(clip)
    result: list[ParamGrad] = []
    renamed: dict[str, str] = {}
    for param, grad in pairs:
        with param.block.program.optimized_guard([param, grad]), name_scope("graident_clip_@CLIP"):
            clipped = clips[-1].create_operators(context, param, grad)
        renamed[param.name] = clipped.name
        result.append((param, clipped))
    _correct_role_vars(result, renamed)
    return result


def _correct_role_vars(params_grads: Sequence[ParamGrad], renamed: dict[str, str]) -> None:
    """Clip operators name the clipped gradient in `op_role_var`."""
    if not renamed or not params_grads:
        return
    for op in params_grads[0][0].block.program.global_block().ops:
        names = op.get_attr(ROLE_VAR_ATTR, [])
        if "gradient_clip" in op.get_attr(NAMESCOPE_ATTR, "") and names and names[0] in renamed:
            op.set_attr(ROLE_VAR_ATTR, [names[0], renamed[names[0]]], AttrType.STRINGS)


ClipByValue = GradientClipByValue
ClipByNorm = GradientClipByNorm
ClipByGlobalNorm = GradientClipByGlobalNorm

__getattr__ = refuse_other_names("paddle.fluid.clip", defined_in(globals()))
