"""The documents of `check`: of one model, or of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from fluidtool.report.common import Failure


class Finding(TypedDict):
    """A fault of a model, or something that its program could do."""

    code: Annotated[str, "the stable code of the finding, such as FC103 (docs/check.md)"]
    message: Annotated[str, "what was expected and what was found"]
    block: Annotated[int | None, "the block of the operator"]
    operator: Annotated[int | None, "the position of the operator in its block"]
    type: Annotated[str | None, "the type of the operator"]
    variable: Annotated[str | None, "the variable or parameter"]


class DeclaredMemory(TypedDict):
    """The memory that a program declares."""

    parameter_bytes: Annotated[int, "the size of the parameters"]
    activation_bytes: Annotated[int, "the most bytes of activations that are alive at once"]
    largest_variable: Annotated[str | None, "the largest variable"]
    largest_bytes: Annotated[int, "its size"]
    unknown: Annotated[Sequence[str], "variables that are not counted, since their sizes are known only at run time"]


class ModelReport(TypedDict):
    """One model, which the command line names itself."""

    schema: Annotated[Literal["fluidtool.check/1"], "the kind of this document"]
    program: Annotated[str, "where the program was read"]
    findings: Annotated[Sequence[Finding], "the findings that are not accepted"]
    memory: NotRequired[Annotated[DeclaredMemory, "the memory that the program declares (--security)"]]


class CheckedModel(TypedDict):
    """One of several models."""

    program: Annotated[str, "where the program was read"]
    findings: Annotated[Sequence[Finding], "the findings that are not accepted"]
    error: Annotated[Failure | None, "why the program could not be read"]
    memory: NotRequired[Annotated[DeclaredMemory, "the memory that the program declares (--security)"]]


class ModelsReport(TypedDict):
    """Several models, or those found in a folder or by a pattern."""

    schema: Annotated[Literal["fluidtool.check/1"], "the kind of this document"]
    models: Annotated[Sequence[CheckedModel], "the models in order"]


CheckReport = ModelReport | ModelsReport
