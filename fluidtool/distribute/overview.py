"""A plan to look at: which shard lives where, bytes of each server, balance. As text and as data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluidtool.distribute.plan import DistributePlan, ParameterPlan, Placement
from fluidtool.ir.variable import data_type_name
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text
from fluidtool.tensor.data_types import numpy_dtype

if TYPE_CHECKING:
    from fluidtool.report.transpile import PlacedParameter, Plan, Server


def shard_bytes(placement: Placement) -> int:
    """The size of a shard of a parameter."""
    dtype = placement.parameter.dtype
    return placement.parameter.elements * numpy_dtype(VarType.FP32 if dtype is None else dtype).itemsize


def server_bytes(plan: DistributePlan) -> dict[str, int]:
    """Bytes of parameters on each server, a distributed table aside."""
    return {
        endpoint: sum(shard_bytes(placement) for placement in plan.placements_on(endpoint))
        for endpoint in plan.settings.servers
    }


def balance(plan: DistributePlan) -> float:
    """The fullest server's bytes as a multiple of the mean: 1.0 is even."""
    sizes = server_bytes(plan).values()
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0


def plan_data(plan: DistributePlan) -> Plan:
    """The plan as plain lists, dicts, text and numbers."""
    settings, sizes = plan.settings, server_bytes(plan)
    servers: list[Server] = [
        {"endpoint": endpoint, "shards": len(plan.placements_on(endpoint)), "bytes": sizes[endpoint]}
        for endpoint in settings.servers
    ]
    return {
        "mode": settings.distributed_mode.name.lower(),
        "trainers": settings.trainers,
        "split_method": settings.dispatcher.__name__,
        "min_block_size": settings.min_block_size,
        "slice_variables": settings.slice_variables,
        "servers": servers,
        "balance": round(balance(plan), 4),
        "parameters": [_parameter_data(parameter) for parameter in plan.parameters],
        "distributed_table": plan.table.name if plan.table else None,
        "schedule_operators": len(plan.analysis.schedule),
        "clip_operators": len(plan.analysis.clips),
    }


def _parameter_data(parameter: ParameterPlan) -> PlacedParameter:
    dtype = parameter.placements[0].parameter.dtype
    return {
        "name": parameter.name,
        "gradient": parameter.pair.gradient,
        "data_type": data_type_name(dtype),
        "looked_up_remotely": parameter.remote,
        "shards": [
            {
                "name": placement.parameter.name,
                "shape": list(placement.parameter.shape),
                "offset": placement.parameter.offset,
                "bytes": shard_bytes(placement),
                "endpoint": placement.endpoint,
            }
            for placement in parameter.placements
        ],
    }


def plan_text(plan: DistributePlan) -> str:
    """The plan as lines: the servers, then a line for each shard."""
    data = plan_data(plan)
    head = (
        f"{data['mode']}, {_count(data['trainers'], 'trainer')}, {data['split_method']}, balance {data['balance']:.2f}"
    )
    servers = [
        (entry["endpoint"], _count(entry["shards"], "shard"), f"{entry['bytes']} B") for entry in data["servers"]
    ]
    shards = [
        (shard["name"], f"{entry['data_type']} {shape_text(shard['shape'])}", f"{shard['bytes']} B", shard["endpoint"])
        for entry in data["parameters"]
        for shard in entry["shards"]
    ]
    lines = [head, "", *aligned(servers), "", *aligned(shards)]
    if plan.table:
        lines += ["", f"{plan.table.name}: row i on server i modulo {len(plan.settings.servers)}"]
    return "\n".join(lines) + "\n"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as columns of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
