"""The documents of `params`, by action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import ParameterDifference, ParameterStatistics

Schema = Annotated[Literal["fluidtool.params/1"], "the kind of this document"]


class Parameter(TypedDict):
    """A parameter."""

    name: Annotated[str, "the name of the parameter"]
    data_type: Annotated[str, "the type of its elements"]
    shape: Annotated[Sequence[int], "its sizes"]
    bytes: Annotated[int, "its size"]
    source: Annotated[str, "the file that it is in"]


class ListReport(TypedDict):
    """The parameters of a file or model."""

    schema: Schema
    action: Annotated[Literal["list"], "what was done"]
    parameters: Annotated[Sequence[Parameter], "the parameters by name"]


class StatisticsReport(TypedDict):
    """Statistics of parameters."""

    schema: Schema
    action: Annotated[Literal["stats"], "what was done"]
    parameters: Annotated[Sequence[ParameterStatistics], "the parameters by name"]


class DifferenceReport(TypedDict):
    """The parameters that differ."""

    schema: Schema
    action: Annotated[Literal["diff"], "what was done"]
    parameters: Annotated[Sequence[ParameterDifference], "the parameters that only one side has, or that differ"]


class WrittenReport(TypedDict):
    """Parameters that were saved."""

    schema: Schema
    action: Annotated[Literal["merge", "split", "rename"], "what was done"]
    files: Annotated[Sequence[str], "the files that were written"]


ParamsReport = ListReport | StatisticsReport | DifferenceReport | WrittenReport  # by `action`
