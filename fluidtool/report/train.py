"""The lines of `train --json` and `--log`: one for each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from fluidtool.report.common import Number


class TrainReport(TypedDict):
    """A step of a training."""

    schema: Annotated[Literal["fluidtool.train/1"], "the kind of this line"]
    epoch: Annotated[int, "the epoch, counted from 0"]
    step: Annotated[int, "the step of the epoch, counted from 0"]
    loss: Annotated[Number | None, "the loss"]
    examples_per_second: Annotated[float, "the speed of the step"]
    fetch: NotRequired[Annotated[Mapping[str, Any], "the values of --fetch by name, as nested lists"]]
