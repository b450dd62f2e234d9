"""The best path through tags, in regions on a GPU."""

from __future__ import annotations

from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.importers.sequences import offsets_of
from fluidtool.runtime.graph.ir import Shape, Value
from fluidtool.runtime.graph.sequence_runs import Runs, of_lod, padded

OPERATORS = frozenset({"crf_decoding"})
"""Those that have kernels for GPUs only: elsewhere the operators' own kernels compute them, sequence by sequence."""
MOST_TAGS = 2048  # whose scores a block of a GPU keeps in its own memory, twice


@imports("crf_decoding")
def _crf_decoding(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    x, transition = r.get(op, "Emission"), r.get(op, "Transition")
    labels = r.from_outside(op, "Label") if op.inputs.get("Label") else None
    lengths = r.from_outside(op, "Length") if op.inputs.get("Length") else None
    runs = runs_of_tags(r, op, x, lengths, "Emission")
    shape = path_shape(x, transition, labels)
    given = [each for each in (x, transition, labels, lengths) if each is not None]
    r.add("best_path", given, op, "ViterbiPath", shape, integer=True, runs=runs, has_labels=labels is not None)


def path_shape(x: Value, transition: Value, labels: Value | None = None) -> Shape:
    """The shape of the best path through scores [rows, tags] or [sequences, longest, tags]."""
    rows, tags = prod(x.shape[:-1]), x.shape[-1]
    need(len(x.shape) in (2, 3) and transition.shape == (tags + 2, tags), "transitions that do not fit")
    need(tags <= MOST_TAGS, f"more than {MOST_TAGS} tags")
    need(labels is None or prod(labels.shape) == rows, "labels of another shape")
    return (rows, 1) if len(x.shape) == 2 else x.shape[:2]


def runs_of_tags(
    r: GraphBuilder, op: Operator, x: Value, lengths: Value | None, slot: str, is_marked: bool = True
) -> Runs:
    """The sequences of scores of tags: those of the LoD of a slot, or of padded ones."""
    if lengths is None:
        need(len(x.shape) == 2 and len(r.lods.get(op.inputs[slot][0], ())) == 1, "sequences of another level")
        return of_lod(offsets_of(r, op, slot, x.shape[0]))
    need(len(x.shape) == 3 and prod(lengths.shape) == x.shape[0], "lengths of another shape")
    return padded(x.shape, is_marked)
