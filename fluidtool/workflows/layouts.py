"""A model in another of Paddle's layouts: the same program and the same bytes of parameters, in other files."""

from __future__ import annotations

from pathlib import Path

from fluidtool.errors import Hint, NotConvertibleError
from fluidtool.io.parameters import Value, persistables
from fluidtool.io.saving import COMBINED, PAIR, Layout, save_model
from fluidtool.ir import Program
from fluidtool.onnx_export.exporter import Blocker
from fluidtool.ops.paddle_185 import REGISTERED
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.workflows.conversion import ConvertRequest, ConvertResult, given

PROGRAM = "__model__"
GRADIENT = "_grad"
NEWEST_ATTRIBUTE_185 = AttrType.LONGS
NEWEST_TYPE_185 = VarType.INT8


def write_separate(request: ConvertRequest) -> ConvertResult:
    """A folder with `__model__` and a file per parameter."""
    return _write(request, "separate", Layout(request.output, PROGRAM, None))


def write_combined(request: ConvertRequest) -> ConvertResult:
    """A folder with `__model__` and `__params__`."""
    return _write(request, "combined", Layout(request.output, PROGRAM, COMBINED))


def write_paddle1(request: ConvertRequest) -> ConvertResult:
    """What `fluid.io.save_inference_model` of 1.x writes by default; refused where 1.8.5 could not load it."""
    blockers = blockers_185(request.model.program)
    if blockers:
        others = f" and {len(blockers) - 1} more" if len(blockers) > 1 else ""
        raise NotConvertibleError(
            f"{blockers[0].reason}{others}; nothing was written",
            blockers,
            hint=Hint(
                "Paddle 2 loads it: use to='paddle2', or to='separate' for these files with this program",
                "Paddle 2 loads it: use --to paddle2, or --to separate for these files with this program",
            ),
        )
    return _write(request, "paddle1", Layout(request.output, PROGRAM, None))


def write_paddle2(request: ConvertRequest) -> ConvertResult:
    """`OUT.pdmodel` and `OUT.pdiparams`, as `paddle.static.save_inference_model` of 2.x."""
    prefix = str(request.output).removesuffix(PAIR[0])
    return _write(request, "paddle2", Layout(None, prefix + PAIR[0], prefix + PAIR[1]))


def _write(request: ConvertRequest, to: str, layout: Layout) -> ConvertResult:
    program = request.model.program
    with request.watcher.progress("writing"):
        values = parameters(request)
        files = save_model(program, values, layout, overwrite=request.overwrite)
    count = sum(len(block.ops) for block in program.blocks)
    return ConvertResult(to, tuple(map(Path, files)), given(request.model), count, len(values))


def parameters(request: ConvertRequest) -> dict[str, Value]:
    """The parameters of the model, as views of its files."""
    store = request.model.files.parameters
    return {var.name: store[var.name] for var in persistables(request.model.program)}


def blockers_185(program: Program) -> tuple[Blocker, ...]:
    """What Paddle 1.8.5 does not know of a program: operators, types of attributes, data types of variables."""
    found = []
    for block in program.blocks:
        for index, op in enumerate(block.ops):
            output = next(iter(op.output_arg_names), "")
            if not _registered(op.type):
                reason = f"Paddle 1.8.5 has no operator {op.type}"
                found.append(Blocker(block.idx, index, op.type, output, reason))
            for name in op.attr_names:
                if op.attr_type(name) > NEWEST_ATTRIBUTE_185:
                    reason = f"Paddle 1.8.5 cannot read the attribute {name} of {op.type}, whose type came later"
                    found.append(Blocker(block.idx, index, op.type, output, reason))
        for var in block.vars.values():
            if var.type > NEWEST_TYPE_185 or (var.dtype or 0) > NEWEST_TYPE_185:
                reason = f"Paddle 1.8.5 cannot read the data type of the variable {var.name}, which came later"
                found.append(Blocker(block.idx, -1, "", var.name, reason))
    return tuple(found)


def _registered(name: str) -> bool:
    while name not in REGISTERED and name.endswith(GRADIENT):
        name = name.removesuffix(GRADIENT)
    return name in REGISTERED
