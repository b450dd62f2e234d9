"""The distribution half of `fluidtool transpile`: one program and its arguments -> the programs of every role."""

from __future__ import annotations

from pathlib import Path

from fluidtool.errors import UsageError


def distribute(
    main: Path,
    *,
    startup: Path,
    pservers: str | None,
    trainers: str | None,
    trainer_id: int | None,
    all_roles: bool,
    mode: str,
    sync: bool,
    slice_variables: bool,
    split_method: str,
    min_block_size: int,
    plan: bool,
    output: Path | None,
    force: bool,
    json: bool,
) -> None:
    """Write the trainer and parameter server programs of a distributed job, or show the plan of it.

    pservers: endpoints separated by commas; trainers: their number (pserver mode) or their endpoints (nccl2 and
    collective mode). What is None comes from the PADDLE_* variables of the environment.
    """
    raise UsageError("transpile --distribute is not available in this version; transpile without it")
