"""What a workflow works on: a model in memory, or where one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from fluidtool.errors import UsageError
from fluidtool.model import Model, load
from fluidtool.runtime import Policy

Source = Model | str | Path | bytes | BinaryIO


def opened(
    source: Source,
    *,
    params: Any = None,
    model_filename: str | None = None,
    policy: Policy | None = None,
    seed: int = 0,
    need_parameters: bool = True,
    validate: bool = True,
) -> Model:
    """The model itself, or the one that `load` opens with these arguments; raises what that raises.

    A model in memory is taken as it is, with the parameters of its files. Raises UsageError for arguments that say how to
    open it.
    """
    if not isinstance(source, Model):
        return load(
            source,
            params=params,
            model_filename=model_filename,
            policy=policy,
            seed=seed,
            need_parameters=need_parameters,
            validate=validate,
        )
    if params is not None or model_filename is not None or policy is not None:
        raise UsageError(
            "the model is open already, so params, model_filename and policy do not apply; give them to load"
        )
    if need_parameters and (fault := source.fault) is not None:
        raise fault
    return source
