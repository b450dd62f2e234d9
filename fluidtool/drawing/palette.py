"""The colors of kinds and figures, for a light and a dark ground. A test says how much each fill contrasts with text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INK_LIGHT, INK_DARK = "#1d2433", "#eef1f6"  # of text on the fills
SOFT_LIGHT, SOFT_DARK = "#4a5568", "#b8c2d1"


class Color(NamedTuple):
    """A fill and a stronger color of the same hue, for a light and for a dark ground."""

    fill: str
    strong: str
    dark_fill: str
    dark_strong: str


KIND_COLORS = {
    "convolution": Color("#e3eefc", "#2f6fd0", "#1b2f4b", "#6ea8ff"),
    "product": Color("#ebe7fb", "#6a4fc4", "#2b2550", "#a893ff"),
    "normalization": Color("#dff3ef", "#138a76", "#123a35", "#4fd1b8"),
    "arithmetic": Color("#e9edf3", "#5b6b82", "#283040", "#9fb0c8"),
    "activation": Color("#fdeedb", "#c9730f", "#3f2d18", "#f2ad5c"),
    "shape": Color("#f0efec", "#8a8478", "#302f2c", "#b5afa3"),
    "pooling": Color("#e4f3e1", "#43883a", "#1f3a1c", "#86cf7a"),
    "embedding": Color("#fbe6f1", "#bb3f86", "#431f38", "#f08cc4"),
    "sequence": Color("#f3e6fb", "#9440c0", "#3a2148", "#d196f2"),
    "detection": Color("#dff1f8", "#127fa3", "#123544", "#5cc6ea"),
    "control": Color("#fde7e4", "#c4432f", "#44221d", "#ff9a86"),
    "loss": Color("#f7ebe0", "#94612e", "#3b2c1d", "#d9a873"),
    "optimizer": Color("#eff4d8", "#74851a", "#31360f", "#bccf58"),
    "other": Color("#eef0f2", "#77808c", "#2a2e34", "#a3adba"),
    "group": Color("#ffffff", "#77808c", "#1f242c", "#a3adba"),
}
_LIGHT_HEAT = ("#fdf8f0", "#fcecd8", "#fbdcb9", "#f9ca9b", "#f7b883", "#f6ab77", "#f7a97a", "#f7a478")
_DARK_HEAT = ("#241f1c", "#30251f", "#3d2a20", "#4b2f21", "#583322", "#663722", "#753a22", "#7d3921")
FIGURE_COLORS = {
    **{
        f"heat{n}": Color(light, "#b3470f", dark, "#ffb38a")
        for n, (light, dark) in enumerate(zip(_LIGHT_HEAT, _DARK_HEAT, strict=True))
    },
    "equal": Color("#eef3ee", "#6f8a70", "#222a23", "#8fae91"),
    "changed": Color("#fff0c2", "#a97b00", "#453708", "#f0c541"),
    "only": Color("#d3f0da", "#2c8a47", "#173f25", "#6fd48c"),
}


def style() -> str:
    """The rules of these colors. A figure's color replaces that of the kind, whose stripe stays."""
    light = list(_rules(dark=False))
    dark = [f"  {rule}" for rule in _rules(dark=True)]
    return "\n".join([*light, "@media (prefers-color-scheme: dark) {", *dark, "}", ""])


def _rules(*, dark: bool) -> Iterator[str]:
    plain = Color("#ffffff", "#c3c9d2", "#1f242c", "#465061")
    for name, color in KIND_COLORS.items():
        fill, strong = color[2:] if dark else color[:2]
        yield f".ft .k-{name} > .card {{ fill: {fill}; stroke: {_softened(strong)}; }}"
        yield f".ft .k-{name} > .stripe {{ fill: {strong}; }}"
    fill, edge = plain[2:] if dark else plain[:2]
    for name in KIND_COLORS:
        yield f".ft.colored .k-{name} > .card, .ft .colored .k-{name} > .card {{ fill: {fill}; stroke: {edge}; }}"
    for name, color in FIGURE_COLORS.items():
        fill, strong = color[2:] if dark else color[:2]
        yield f".ft .node.{name} > .card {{ fill: {fill} !important; stroke: {_softened(strong)}; }}"
        yield f".ft .node.{name} > .more, .ft .node.{name} > .number {{ fill: {INK_DARK if dark else INK_LIGHT}; }}"


def _softened(strong: str) -> str:
    """Edges are the strong color at less than full strength, which drawings without a ground can show too."""
    return f"{strong}99"
