"""Gradient makers for gradient operators whose slots have other names than the variables that they take."""

from __future__ import annotations

from fluidtool.ops.gradient import GRAD, GradMakerContext, OpDescription
from fluidtool.ops.registry import GradMaker


def wired(type: str, inputs: str, outputs: str) -> GradMaker:
    """A maker of one operator with the forward attributes: `wired("sqrt_grad_grad", "Out DDX=X@GRAD@GRAD", ...)`.

    `S=E`: slot S gets what the forward operator has under E, `E@GRAD` being the gradients of E; plain `S` stands for
    `S=S`.
    """
    takes, gives = _pairs(inputs), _pairs(outputs)

    def maker(context: GradMakerContext) -> list[OpDescription]:
        given = {slot: _taken(context, source) for slot, source in takes}
        wanted = {slot: context.input_grad(source.removesuffix(GRAD)) for slot, source in gives}
        return [context.describe(type, given, wanted)]

    return maker


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(slot, source or slot) for slot, _, source in (word.partition("=") for word in text.split())]


def _taken(context: GradMakerContext, source: str) -> list[str]:
    inputs = {slot.name for slot in context.info.inputs}
    outputs = {slot.name for slot in context.info.outputs}
    if source in inputs:
        return context.input(source)
    return context.output(source) if source in outputs else context.output_grad(source.removesuffix(GRAD))
