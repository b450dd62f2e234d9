"""print, and the operators that tell the executor about feeds, fetches and values no longer needed."""

from __future__ import annotations

import time
from typing import Any

from fluidtool.ops.context import InferContext, OpContext
from fluidtool.ops.gradient import GradMakerContext, OpDescription
from fluidtool.ops.registry import op
from fluidtool.ops.schema import BOOLEAN, INT, STRING, TensorMeta, one_of, required
from fluidtool.ops.traits import Traits

PHASES = ("FORWARD", "BACKWARD", "BOTH")


@op(
    "print",
    inputs="In",
    outputs="Out",
    attrs={
        "first_n": required(INT),
        "message": required(STRING),
        "summarize": required(INT),
        "print_tensor_name": required(BOOLEAN),
        "print_tensor_type": required(BOOLEAN),
        "print_tensor_shape": required(BOOLEAN),
        "print_tensor_lod": required(BOOLEAN),
        "print_phase": one_of("BOTH", *PHASES),
        "is_forward": True,
    },
    lod="In",
    side_effects=True,
    traits=Traits(memory="named"),
)
def print_(
    ctx: OpContext,
    In: Any,
    *,
    first_n: int,
    message: str,
    summarize: int,
    print_tensor_name: bool,
    print_tensor_type: bool,
    print_tensor_shape: bool,
    print_tensor_lod: bool,
    print_phase: str,
    is_forward: bool,
) -> Any:
    """Show In on stderr, at most first_n times when that is positive, and pass it on (Paddle 1.8.5 print_op.cc)."""
    phase = print_phase.upper()
    if phase not in PHASES:
        raise ctx.error(f"print_phase must be one of {', '.join(PHASES)}, found {print_phase!r}")
    shown = phase in ("BOTH", "FORWARD" if is_forward else "BACKWARD")
    if shown and (first_n <= 0 or _times(ctx) <= first_n):
        lines = [f"{int(time.time())}\t{message}\tThe place is:{ctx.place}"]
        if print_tensor_name:
            lines.append(f"Tensor[{ctx.op.input('In')[0]}]")
        if print_tensor_shape:
            lines.append(f"\tshape: [{''.join(f'{size},' for size in In.shape)}]")
        if print_tensor_type:
            lines.append(f"\tdtype: {In.dtype}")
        if print_tensor_lod and ctx.lod("In"):
            lines.append(f"\tLoD: [{''.join(_level(level) for level in ctx.lod('In'))}]")
        lines.append(f"\tdata: {_data(ctx, In, summarize)}")
        ctx.runtime.talk("\n".join(lines))
    return In


def _times(ctx: OpContext) -> int:
    """How often this operator has run with this scope, this time included."""
    counter = ctx.scope.root().var(f"@PRINTED@{ctx.op.block.idx}.{ctx.op.idx}")
    counter.value = (counter.value or 0) + 1
    return int(counter.value)


def _level(level: list[int]) -> str:
    return f"[ {''.join(f'{offset},' for offset in level)} ]"


def _data(ctx: OpContext, In: Any, summarize: int) -> str:
    values = ctx.host(In).reshape(-1)
    values = values[:summarize] if summarize >= 0 else values
    return "".join(f"{v:g}," if values.dtype.kind == "f" else f"{int(v)}," for v in values)


@print_.infer
def _(ctx: InferContext, In: TensorMeta) -> TensorMeta:
    return In


@print_.grad_maker
def _(context: GradMakerContext) -> list[OpDescription]:
    inputs, outputs = {"In": context.output_grad("Out")}, {"Out": context.input_grad("In")}
    return [context.describe("print", inputs, outputs, is_forward=False)]


@op("delete_var", inputs="X*", outputs="", raw=True, side_effects=True)
def delete_var(ctx: OpContext) -> None:
    """Forget the values of X (Paddle 1.8.5 delete_var_op.cc)."""
    for holder in ctx.inputs.get("X", ()):
        if holder is not None:
            holder.value = None


def _executors_own(ctx: OpContext) -> Any:
    raise ctx.error("it marks what the executor feeds and fetches; it cannot run separately")


@op("feed", inputs="X", outputs="Out", attrs={"col": required(INT)}, raw=True)
def feed(ctx: OpContext) -> Any:
    """Out is column `col` of what is fed; the executor puts it there (Paddle 1.8.5 feed_op.cc)."""
    return _executors_own(ctx)


@op("fetch", inputs="X", outputs="Out", attrs={"col": required(INT)}, raw=True)
def fetch(ctx: OpContext) -> Any:
    """X is column `col` of what is fetched; the executor takes it (Paddle 1.8.5 fetch_op.cc)."""
    return _executors_own(ctx)
