"""What a region compiles to for given shapes, without a run and without the values of its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import FluidError
from fluidtool.ir import Block
from fluidtool.ops.schema import TensorMeta
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.abi import Kind
from fluidtool.runtime.engines.native.allocator import lower_bound
from fluidtool.runtime.engines.native.calls import KernelCall, is_narrow
from fluidtool.runtime.engines.native.constants import ForeseenConstants
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.graph.importers import registry
from fluidtool.runtime.graph.importers.quantization import OPERATORS as QUANTIZATION
from fluidtool.runtime.graph.importers.registry import FOR_GPUS, Lod
from fluidtool.runtime.graph.ir import Node, UnsupportedError
from fluidtool.runtime.graph.pipeline import Applied, import_region, rewrites
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.runtime.partition import WORTH, Region
from fluidtool.shapes import shape_text
from fluidtool.tensor import numpy_dtype

STEPS = 127  # the largest whole number of 8 bits
LARGEST = 2**59  # elements: of 16 bytes each, the most that numpy can count
LAYOUTS = {
    Kind.BLOCK: "rows to blocks of {}",
    Kind.UNBLOCK: "blocks of {} to rows",
    Kind.HALO: "blocks of {}",
    Kind.NARROW: "to blocks of {}",
    Kind.TO_INT8: "to bytes",
    Kind.INT8_HALO: "bytes",
}
OPERATIONS = {
    registry.ADD: "add",
    registry.SUBTRACT: "subtract",
    registry.MULTIPLY: "multiply",
    registry.DIVIDE: "divide",
    registry.LARGER: "maximum",
    registry.SMALLER: "minimum",
    registry.PRELU: "prelu",
}
ACTIVATIONS = {
    1: "relu",
    2: "relu6",
    registry.SIGMOID: "sigmoid",
    registry.TANH: "tanh",
    registry.GELU: "gelu",
    registry.GELU_TANH: "gelu (tanh)",
    registry.LEAKY: "leaky_relu",
    registry.HARD_SWISH: "hard_swish",
    registry.HARD_SIGMOID: "hard_sigmoid",
    registry.SWISH: "swish",
    registry.EXP: "exp",
    registry.SQRT: "sqrt",
    registry.SOFTSIGN: "softsign",
    registry.SQUARE: "square",
    registry.ABS: "abs",
    registry.AFFINE: "scale",
    registry.CLIP: "clip",
}


@dataclass(frozen=True, slots=True)
class KernelCallView:
    """One kernel call: its kernel, the fused computation, the layout of the result, its tasks."""

    kernel: str
    computes: str
    result: str
    shape: tuple[int, ...]
    layout: str
    tasks: int


@dataclass(frozen=True, slots=True)
class RewriteView:
    """One rewrite of the graph: its purpose, how often it was applied, and why not elsewhere, with counts."""

    name: str
    purpose: str
    done: int
    no_matches: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Preview:
    """A compiled region: its kernel calls and its memory in bytes; or `reason`, why numpy computes it."""

    operators: int
    kernel_calls: tuple[KernelCallView, ...] = ()
    arena_bytes: int = 0
    lower_bound_bytes: int = 0
    constant_bytes: int = 0
    reason: str = ""


def preview(region: Region, block: Block, metas: Mapping[str, TensorMeta | None]) -> Preview:
    """Compile a region of a block for inputs of the shapes in `metas`; parameters are assumed as declared, each with a
    different value in all elements, and sequences to have one row each.
    """
    count = len(region.steps)
    try:
        compiled = region.engine.compile(spec_of(region, block, metas), ForeseenConstants())
    except UnsupportedError as error:
        region.divide(error)  # as a run does
        return Preview(count, reason=str(error))
    if not isinstance(compiled, NativeRegion):
        delegated: Any = compiled  # by another engine, which keeps the graph
        return Preview(count, tuple(node_view(node) for node in delegated.imported.graph.nodes))
    kernel_calls, width = compiled.kernel_calls, compiled.library.width
    packed = {id(array): array.nbytes for array in compiled.keep}
    return Preview(
        count,
        tuple(kernel_call_view(kernel_call, width) for kernel_call in kernel_calls),
        compiled.frames[0].arena.nbytes,
        4 * lower_bound(kernel_calls),
        sum(packed.values()),
    )


def explain(region: Region, block: Block, metas: Mapping[str, TensorMeta | None]) -> tuple[RewriteView, ...]:
    """What each rewrite does to the graph of a region that `preview` compiles, in order."""
    spec = spec_of(region, block, metas)
    graph = import_region(spec).graph
    return tuple(rewrite_view(applied) for applied in rewrites(graph, spec.pooled))


def rewrite_view(applied: Applied) -> RewriteView:
    """A rewrite for display."""
    reasons = Counter(reason for _, reason in applied.outcome.no_matches)
    return RewriteView(applied.rewrite.name, applied.rewrite.purpose, applied.outcome.done, dict(reasons))


def spec_of(region: Region, block: Block, metas: Mapping[str, TensorMeta | None]) -> RegionSpec:
    """The input of compiling a region; raises UnsupportedError if it is known only at run time."""
    given = {name: stand_in(name, block, metas.get(name)) for name in region.inputs}
    of_8_bits = any(step.op.type in QUANTIZATION for step in region.steps)  # frozen weights are whole numbers of 8 bits
    numbers = (1 + (number % STEPS if of_8_bits else number) for number in range(len(region.constants)))
    constants = {name: filled(name, block, number) for name, number in zip(region.constants, numbers, strict=True)}
    lods = {name: short_sequences(name, block, array) for name, array in given.items()}
    return RegionSpec(region.operators(), given, constants, region.outputs, lods, region.pooled)


def stand_in(name: str, block: Block, meta: TensorMeta | None) -> Any:
    """An array of the shape and data type of an input; raises UnsupportedError if they are known only at run time."""
    if meta is None or any(size < 0 for size in meta.shape):
        declared = "" if meta is None else f" {shape_text(meta.shape)}"
        raise UnsupportedError(f"the shape of {name}{declared} is known only at run time")
    check_size(name, meta.shape)
    return np.broadcast_to(np.zeros((), numpy_dtype(meta.dtype)), meta.shape)


def check_size(name: str, shape: Sequence[int]) -> None:
    """Raise UnsupportedError for more elements than a machine can address, whatever their type."""
    if prod(shape) > LARGEST:
        raise UnsupportedError(f"{name}, declared {shape_text(shape)}, does not fit in memory")


def short_sequences(name: str, block: Block, array: Any) -> Lod:
    """The LoD of a fed input, one row each; raises UnsupportedError for sequences computed by an operator."""
    var = block.vars.get(name)
    if var is None or not var.lod_level:
        return ()
    if any(name in op.output_arg_names for op in block.ops if op.type != "feed"):
        raise UnsupportedError(f"the lengths of the sequences of {name} are known only at run time")
    if not array.ndim:
        raise UnsupportedError(f"{name} has sequences but no rows")
    return (tuple(range(len(array) + 1)),) * var.lod_level


def filled(name: str, block: Block, number: int) -> Any:
    """A parameter as declared, without memory: all elements are this number, so that it equals no other parameter."""
    var = block.vars.get(name)
    if var is None or not var.has_shape or var.dtype is None or any(size < 0 for size in var.shape):
        raise UnsupportedError(f"the parameter {name} has no declared shape")
    check_size(name, var.shape)
    try:
        dtype = np.dtype(numpy_dtype(var.dtype))
    except FluidError as error:
        raise UnsupportedError(f"the parameter {name}: {error}") from error
    return np.broadcast_to(np.array(number if dtype.kind == "f" else 0, dtype), tuple(var.shape))


def kernel_name(kernel_call: KernelCall) -> str:
    """The kernel of a call: 'product', 'product bf16' by weights of 16 bits, 'product pairs', 'layer norm', …"""
    if kernel_call.kind is Kind.PAIRS and kernel_call.node is not None:
        return "product pairs" if kernel_call.node.kind == "product" else "convolution pairs"
    return kernel_call.kind.name.lower().replace("_", " ") + (" bf16" if is_narrow(kernel_call) else "")


def kernel_call_view(kernel_call: KernelCall, width: int) -> KernelCallView:
    """A kernel call for display."""
    node, kernel = kernel_call.node, kernel_name(kernel_call)
    layout = LAYOUTS.get(kernel_call.kind, "blocks of {}" if kernel_call.blocked else "rows")
    arguments = kernel_call.arguments
    lanes = arguments.lanes if isinstance(arguments, abi.Block | abi.Narrow | abi.Halo) else width
    if node is None:  # a copy to the caller's output
        return KernelCallView(kernel, "", "", (), layout.format(lanes), kernel_call.tasks)
    name = OPERATIONS.get(node.attrs.get("operation", -1), node.kind.replace("_", " "))
    if kernel_call.kind in (Kind.PACK, *LAYOUTS):
        return KernelCallView(kernel, f"for {name}", "", (), layout.format(lanes), kernel_call.tasks)
    parts = [] if node.kind == "unary" else [name]
    parts += ["residual"] if node.residual is not None else []
    parts += [ACTIVATIONS[node.activation.kind]] if node.activation.kind else []
    shape = node.output.shape
    return KernelCallView(kernel, " + ".join(parts), node.output.name, shape, layout.format(lanes), kernel_call.tasks)


def node_view(node: Node) -> KernelCallView:
    """A computation by another library."""
    name = OPERATIONS.get(node.attrs.get("operation", -1), node.kind.replace("_", " "))
    activation = [ACTIVATIONS[node.activation.kind]] if node.activation.kind else []
    computes = " + ".join([*([] if node.kind == "unary" else [name]), *activation])
    return KernelCallView(node.kind.replace("_", " "), computes, node.output.name, node.output.shape, "rows", 1)


def left_to_numpy(work: Iterable[Any]) -> dict[str, str]:
    """Operators outside every region, those included at which one was cut: type -> why."""
    found: dict[str, str] = {}
    for item in work:
        if not isinstance(item, Region):
            found.setdefault(item.op.type, why_left(item.op.type))
            continue
        division = item.last_division
        if division is None:
            continue
        for part in division.parts:
            if not isinstance(part, Region) and part.op.type not in found:
                found[part.op.type] = division.reason if division.culprit is part else why_left(part.op.type)
        found |= {type: why for type, why in left_to_numpy(item.parts).items() if type not in found}
    return found


def why_left(op_type: str) -> str:
    """Why an operator is in no region."""
    if op_type not in registry.IMPORTERS or op_type in FOR_GPUS:
        return "no native kernel"
    further = "its result is kept, or other values than its result are read"
    return further if op_type in WORTH else f"no operator next to it makes a region worthwhile, or {further}"
