"""`summarize(model)`: what a model is, without running it and without touching its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from fluidtool.errors import ParameterFileError
from fluidtool.io.layout import ModelFiles
from fluidtool.io.parameters import ParameterInfo, persistables
from fluidtool.ir import Program, Variable
from fluidtool.ir.variable import data_type_name
from fluidtool.model import Model
from fluidtool.ops.index import EXCLUDED, MODULES
from fluidtool.passes.cost import Cost, count, input_metas
from fluidtool.passes.security import capabilities
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.tensor import numpy_dtype

NOT_RUN = frozenset({"feed", "fetch"})


@dataclass(frozen=True, slots=True)
class Declared:
    """What a program declares of a variable; shape None: nothing."""

    name: str
    kind: str
    data_type: str
    shape: tuple[int, ...] | None
    lod_level: int
    persistable: bool


@dataclass(frozen=True, slots=True)
class ParameterTotals:
    """Parameters of one data type."""

    data_type: str
    tensors: int
    elements: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ParameterFault:
    """A parameter that cannot be read, and why."""

    parameter: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A model at a glance. `fault` says why parameters could not be opened; their totals then come from declarations.

    `readable`: how many parameters can be read in spite of it; `faults`: the others, unless all of them are missing.
    `reaches`: what operators ask for beyond their outputs (files, network, Python functions), with their types.
    """

    program_source: str
    version: int | None
    layout: str
    parameter_source: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    blocks: int
    variables: int
    operators: dict[str, int]
    unsupported: tuple[str, ...]
    parameters: tuple[ParameterTotals, ...]
    cost: Cost
    fault: str | None
    readable: int | None
    faults: tuple[ParameterFault, ...]
    reaches: dict[str, tuple[str, ...]]

    @property
    def version_text(self) -> str:
        """1008005 -> '1.8.5'."""
        return version_text(self.version)


def summarize(model: Model, batch: int = 1, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Summary:
    """Inputs, outputs, operators, parameters, and what a run costs for this batch or these shapes of inputs."""
    program, files = model.program, model.files
    histogram = Counter(op.type for block in program.blocks for op in block.ops if op.type not in NOT_RUN)
    return Summary(
        program_source=files.program_source,
        version=program.version,
        layout=files.layout,
        parameter_source=files.parameter_source,
        inputs=tuple(declared(program, name) for name in model.feeds),
        outputs=tuple(declared(program, name) for name in model.fetches),
        blocks=program.num_blocks,
        variables=sum(len(block.vars) for block in program.blocks),
        operators=dict(histogram.most_common()),
        unsupported=tuple(op_type for op_type in histogram if op_type not in MODULES or op_type in EXCLUDED),
        parameters=parameter_totals(files),
        cost=count(program, input_metas(program, model.feeds, batch, shapes), batch),
        fault=None if files.fault is None else files.fault.message,
        readable=None if files.fault is None else len(files.fault.readable or ()),
        faults=parameter_faults(files),
        reaches=reaches(program),
    )


def reaches(program: Program) -> dict[str, tuple[str, ...]]:
    """{'files': ('save',), …}: what operators ask for beyond their outputs, and of which types they are."""
    found: dict[str, dict[str, None]] = {}
    for each in capabilities(program):
        found.setdefault(each.reach.named, {})[each.op.type] = None
    return {name: tuple(types) for name, types in found.items()}


def declared(program: Program, name: str) -> Declared:
    """The declaration of a variable of block 0; a name that is not declared has no data type and no shape."""
    var = program.global_block().vars.get(name)
    return Declared(name, "?", "?", None, 0, False) if var is None else declaration(var)


def declaration(var: Variable) -> Declared:
    """What a variable declares."""
    kind = VarType(var.type).name if var.type in VarType._value2member_map_ else str(var.type)
    shape = var.shape if var.has_shape else None
    return Declared(var.name, kind, data_type_name(var.dtype), shape, var.lod_level, var.persistable)


def parameter_infos(files: ModelFiles) -> list[ParameterInfo]:
    """Every parameter by name: as the files have it, or as the program declares it where there are no files."""
    if files.fault is None:
        return [files.parameters.info(name) for name in sorted(files.parameters)]
    return [
        ParameterInfo(var.name, var.shape, var.dtype, prod(var.shape) * numpy_dtype(var.dtype).itemsize, "")
        for var in sorted(persistables(files.program), key=lambda var: var.name)
        if var.dtype is not None and min(var.shape, default=0) >= 0
    ]


def parameter_faults(files: ModelFiles) -> tuple[ParameterFault, ...]:
    """The parameters of a damaged model that cannot be read; none where there are no parameters at all."""
    fault = files.fault
    if fault is None or (not fault.readable and all(each.kind == fault.MISSING for each in fault.faults or (fault,))):
        return ()
    named = {each.variable: each for each in fault.faults or (fault,) if each.variable}
    readable = fault.readable or ()
    return tuple(
        ParameterFault(var.name, _reason(named.get(var.name)))
        for var in sorted(persistables(files.program), key=lambda var: var.name)
        if var.name not in readable
    )


def _reason(fault: ParameterFileError | None) -> str:
    if fault is None:
        return "after the fault"
    return "missing" if fault.kind == fault.MISSING else fault.message


def parameter_totals(files: ModelFiles) -> tuple[ParameterTotals, ...]:
    """The parameters by data type, the largest first."""
    totals: dict[str, list[int]] = {}
    for info in parameter_infos(files):
        entry = totals.setdefault(data_type_name(info.data_type), [0, 0, 0])
        entry[0] += 1
        entry[1] += prod(info.shape)
        entry[2] += info.nbytes
    rows = [ParameterTotals(name, *numbers) for name, numbers in totals.items()]
    return tuple(sorted(rows, key=lambda row: -row.nbytes))


def version_text(version: int | None) -> str:
    """1008005 -> '1.8.5'; development builds and files before 1.0 carry no number."""
    if not version:
        return "not recorded"
    return f"{version // 1_000_000}.{version // 1_000 % 1_000}.{version % 1_000}"


__all__ = ["Declared", "ParameterFault", "ParameterTotals", "Summary", "declaration", "summarize"]
