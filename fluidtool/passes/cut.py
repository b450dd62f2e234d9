"""`cut_to(program, targets, inputs)`: an inference program of what some variables need, cut at others."""

from __future__ import annotations

from collections.abc import Sequence

from fluidtool.errors import ProgramError
from fluidtool.io.inference import inference_program, strip_feed_fetch
from fluidtool.ir import Program
from fluidtool.ir.dataflow import block_flow, live_operators
from fluidtool.ir.reuse import unshared
from fluidtool.passes.verify import verify


def cut_to(
    program: Program, targets: Sequence[str], inputs: Sequence[str] | None = None, known: Sequence[str] = ()
) -> Program:
    """A copy that computes `targets` from `inputs`, with feed and fetch operators; ready to be saved.

    Without `inputs` it is fed those of `known` (the inputs so far) that the targets depend on.
    Raises ProgramError when the targets depend on more than the inputs, when they do not depend on one of them, or when
    an input has several values (operators work in place on it) and the targets depend on more than one.
    """
    boundary = list(known if inputs is None else inputs)
    program = unshared(program, [*targets, *boundary])
    bare = program.clone()
    strip_feed_fetch(bare)
    needed = _needed(bare, targets, boundary)
    if inputs is None:
        boundary = [name for name in boundary if name in needed]
    else:
        idle = [name for name in boundary if name not in needed]
        if idle:
            raise ProgramError(f"{', '.join(targets)} does not depend on {', '.join(idle)}; omit that input")
        _check_versions(bare, targets, boundary)
    del bare  # as large as the program
    result = inference_program(program, boundary, list(targets))
    unfed = [finding.variable for finding in verify(result) if finding.code == "FC101"]
    if unfed:
        raise ProgramError(
            f"{', '.join(targets)} also depends on {', '.join(unfed)}, which no operator computes from the inputs "
            f"{', '.join(boundary) or '(none)'}; name it as an input too"
        )
    return result


def _needed(bare: Program, targets: Sequence[str], boundary: Sequence[str]) -> set[str]:
    """The names that the operators behind the targets read, and the targets themselves."""
    block = bare.global_block()
    flow = block_flow(block)
    live = live_operators(block, set(targets), set(boundary))
    return {name for position, alive in enumerate(live) if alive for name in flow.effects[position].reads} | set(
        targets
    )


def _check_versions(bare: Program, targets: Sequence[str], boundary: Sequence[str]) -> None:
    block = bare.global_block()
    flow = block_flow(block)
    live = live_operators(block, set(targets), set(boundary))
    for name in boundary:
        versions = {
            flow.reads[position][name].number
            for position, alive in enumerate(live)
            if alive and name in flow.reads[position] and name not in flow.writes[position]
        }
        if len(versions) > 1:
            raise ProgramError(
                f"{name} has several values, because operators change it in place, and {', '.join(targets)} depends on "
                f"{len(versions)} of them; prune at variables that are written once"
            )
