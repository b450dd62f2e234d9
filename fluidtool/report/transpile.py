"""The documents of `transpile`: passes, the plan of a distributed job, and its programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from fluidtool.report.common import ComparedOutput, Figures

Schema = Annotated[Literal["fluidtool.transpile/1"], "the kind of this document"]


class Decision(TypedDict):
    """A candidate of a pass."""

    rule: Annotated[str, "the rewrite that looked at it"]
    block: Annotated[int, "the block of the operator"]
    type: Annotated[str, "the type of the operator"]
    variable: Annotated[str, "the main result of the operator"]
    done: Annotated[bool, "whether it was rewritten"]
    reason: Annotated[str, "what was done, or why nothing was"]


class LeftOut(TypedDict):
    """A rewrite that a name for several does not include."""

    name: Annotated[str, "the name of the rewrite"]
    reason: Annotated[str, "why it is not included"]
    option: Annotated[str, "the option that requests it"]


class Pass(TypedDict):
    """What a pass did."""

    name: Annotated[str, "the name of the pass"]
    operators_before: Annotated[int, "the number of operators before it"]
    operators_after: Annotated[int, "the number of operators after it"]
    decisions: Annotated[Sequence[Decision], "its candidates, in the order of the program"]
    left_out: Annotated[Sequence[LeftOut], "the rewrites that the name does not include"]


class TranspileComparison(TypedDict):
    """The values that both programs compute."""

    agrees: Annotated[bool, "whether no value differs"]
    rtol: Annotated[float, "the tolerance, relative to each element and to the largest"]
    outputs: Annotated[Sequence[ComparedOutput], "the outputs, and the persistable variables that a run changes"]


class PassesReport(TypedDict):
    """A rewritten program."""

    schema: Schema
    view: Annotated[Literal["passes"], "which document this is"]
    files: Annotated[Sequence[str], "the files that were written"]
    passes: Annotated[Sequence[Pass], "the passes in order"]
    before: Annotated[Figures, "the program in numbers"]
    after: Annotated[Figures, "the rewritten program in numbers"]
    comparison: NotRequired[Annotated[TranspileComparison, "the comparison of --verify"]]


class Server(TypedDict):
    """A parameter server."""

    endpoint: Annotated[str, "its address"]
    shards: Annotated[int, "the number of shards that it keeps"]
    bytes: Annotated[int, "their size"]


class Shard(TypedDict):
    """Consecutive rows of a parameter."""

    name: Annotated[str, "the name of the shard"]
    shape: Annotated[Sequence[int], "its sizes"]
    offset: Annotated[int, "its first element in the parameter"]
    bytes: Annotated[int, "its size"]
    endpoint: Annotated[str, "the server that keeps it"]


class PlacedParameter(TypedDict):
    """A parameter and its shards."""

    name: Annotated[str, "the name of the parameter"]
    gradient: Annotated[str, "what trainers send for it"]
    data_type: Annotated[str, "the type of its elements"]
    looked_up_remotely: Annotated[bool, "whether trainers ask servers for single rows"]
    shards: Annotated[Sequence[Shard], "its shards in order"]


class Plan(TypedDict):
    """Which server would keep what."""

    mode: Annotated[str, "how trainers and servers work together"]
    trainers: Annotated[int, "the number of trainers"]
    split_method: Annotated[str, "how shards are placed: RoundRobin or HashName"]
    min_block_size: Annotated[int, "the minimum number of elements in a shard"]
    slice_variables: Annotated[bool, "whether parameters are split"]
    servers: Annotated[Sequence[Server], "the servers in order"]
    balance: Annotated[float, "the fullest server's bytes as a multiple of the mean"]
    parameters: Annotated[Sequence[PlacedParameter], "the parameters in order"]
    distributed_table: Annotated[str | None, "the table whose rows are distributed over the servers"]
    schedule_operators: Annotated[int, "the operators that compute the learning rate on servers"]
    clip_operators: Annotated[int, "the operators that clip gradients on servers"]


class PlanReport(Plan):
    """Which server would keep what (--distribute --plan)."""

    schema: Schema
    view: Annotated[Literal["plan"], "which document this is"]


class JobFile(TypedDict):
    """A program of a role."""

    file: Annotated[str, "its path in the folder of the job"]
    bytes: Annotated[int, "its size"]
    sha256: Annotated[str, "its checksum"]


class JobRole(TypedDict):
    """A role of a distributed job."""

    role: Annotated[str, "trainer or pserver"]
    id: Annotated[int, "its number among those of its kind"]
    endpoint: Annotated[str | None, "its address; null if it has none"]
    main: Annotated[JobFile, "the main program"]
    startup: Annotated[JobFile, "the startup program"]


class Manifest(TypedDict):
    """What manifest.json lists."""

    format: Annotated[int, "the format of manifest.json"]
    mode: Annotated[str, "pserver, nccl2 or collective"]
    sync: Annotated[bool | None, "whether trainers wait for each other; null without servers"]
    pservers: Annotated[Sequence[str], "the addresses of the servers"]
    trainers: Annotated[int | Sequence[str], "the number of trainers, or their addresses without servers"]
    roles: Annotated[Sequence[JobRole], "the roles"]


class JobReport(Manifest):
    """The programs of a distributed job, as manifest.json lists them (--distribute)."""

    schema: Schema
    view: Annotated[Literal["job"], "which document this is"]


TranspileReport = PassesReport | PlanReport | JobReport  # by `view`
