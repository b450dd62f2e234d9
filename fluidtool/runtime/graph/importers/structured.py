"""Sequences of tags and of labels without places, in regions on a GPU; training steps read their operators alike."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.graph.bounds import Bound
from fluidtool.runtime.graph.importers.registry import GraphBuilder, imports, need
from fluidtool.runtime.graph.importers.sequences import offsets_of
from fluidtool.runtime.graph.importers.whole_numbers import Ids, Marked
from fluidtool.runtime.graph.ir import Shape, Value
from fluidtool.runtime.graph.sequence_runs import Runs, by_time, of_lod, padded

MOST_TAGS = 2048  # whose scores a block of a GPU keeps in its own memory, twice
MOST_STATES = 2048  # of a label, likewise


# ---------------------------------------------------------------- tags
@dataclass(frozen=True, slots=True)
class Scored:
    """Scores [rows, tags] or [sequences, longest, tags], transitions, where sequences are, and the lengths of padded ones."""

    x: Value
    transition: Value
    runs: Runs
    lengths: tuple[Value, ...]

    def labels(self, op: Operator, ids: Ids) -> Value:
        """The tags of all rows; those beyond the last one of a padded sequence may be anything."""
        found = ids(op, "Label", self.x.shape[-1], lengths=self.lengths[0] if self.lengths else None)
        self.need_alike(found)
        return found

    def need_alike(self, labels: Value) -> None:
        """Refuse labels that are not one for each row."""
        need(prod(labels.shape) == prod(self.x.shape[:-1]), "labels of another shape")

    @property
    def path_shape(self) -> Shape:
        """The shape of a tag for each row."""
        return (self.x.shape[0], 1) if len(self.x.shape) == 2 else self.x.shape[:2]


def scored(r: GraphBuilder, op: Operator, slot: str, ids: Ids, is_marked: bool = False) -> Scored:
    """What operators of tags read; sequences that are not padded are those of the LoD of a slot."""
    x, transition = r.get(op, "Emission"), r.get(op, "Transition")
    need(len(x.shape) == 2 + r.has(op, "Length"), "scores of another shape")
    need(transition.shape == (x.shape[-1] + 2, x.shape[-1]), "transitions that do not fit")
    need(x.shape[-1] <= MOST_TAGS, f"more than {MOST_TAGS} tags")
    if r.has(op, "Length"):
        lengths = ids(op, "Length", x.shape[1] + 1)
        need(prod(lengths.shape) == x.shape[0], "lengths of another shape")
        return Scored(x, transition, padded(x.shape, is_marked), (lengths,))
    need(len(r.lods.get(op.inputs[slot][0], ())) == 1, "sequences of another level")
    return Scored(x, transition, of_lod(offsets_of(r, op, slot, x.shape[0]), is_marked), ())


@imports("crf_decoding")
def _crf_decoding(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    bounds: list[Bound] = []
    given = scored(r, op, "Emission", Marked(r, bounds), is_marked=True)
    labels = [r.from_outside(op, "Label")] if r.has(op, "Label") else []
    add_path(r, op, given, labels, bounds)


def add_path(r: GraphBuilder, op: Operator, given: Scored, labels: list[Value], bounds: Iterable[Bound] = ()) -> None:
    """The best path through scores, or where it is as labels say."""
    for each in labels:
        given.need_alike(each)
    inputs = [given.x, given.transition, *labels, *given.lengths]
    known: dict[str, Any] = {"runs": given.runs, "has_labels": bool(labels), "checks": tuple(bounds)}
    r.add("best_path", inputs, op, "ViterbiPath", given.path_shape, integer=True, **known)


@imports("linear_chain_crf", results=("LogLikelihood",))
def _crf(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    bounds: list[Bound] = []
    ids = Marked(r, bounds)
    given = scored(r, op, "Label", ids, is_marked=True)
    inputs = [given.x, given.transition, given.labels(op, ids), *given.lengths]
    scores = r.node("crf_scores", inputs, given.x.shape, runs=given.runs, checks=tuple(bounds))
    r.add("beside", [scores], op, "LogLikelihood", (given.runs.count, 1), name="cost")


# ---------------------------------------------------------------- labels without places
@dataclass(frozen=True, slots=True)
class Spoken:
    """Labels, where the sequences of logits and of labels are, and the lengths of padded ones: of labels, then of logits."""

    labels: Value
    runs: Runs
    of_labels: Runs
    blank: int
    lengths: tuple[Value, ...] = ()

    @property
    def states(self) -> int:
        """The most states of a label: its classes, and the blanks around them."""
        return 2 * max(self.of_labels.longest, *np.diff(self.of_labels.offsets).tolist(), 0) + 1


def spoken(r: GraphBuilder, op: Operator, attrs: Any, ids: Ids, is_marked: bool = False) -> Spoken:
    """What warpctc reads beside logits."""
    x, blank = r.get(op, "Logits"), int(attrs["blank"])
    need(x.shape and 0 <= blank < x.shape[-1], "classes that do not fit")
    need(r.has(op, "LogitsLength") == r.has(op, "LabelLength"), "lengths of one of two")
    found = (_padded if r.has(op, "LogitsLength") else _by_lod)(r, op, x, blank, ids, is_marked)
    need(found.runs.count == found.of_labels.count and found.states <= MOST_STATES, "labels that do not fit")
    return found


def _by_lod(r: GraphBuilder, op: Operator, x: Value, blank: int, ids: Ids, is_marked: bool) -> Spoken:
    """Logits [rows, classes] and labels [rows, 1], each with a LoD."""
    need(len(x.shape) == 2, "logits of another shape")
    labels = ids(op, "Label", x.shape[1])
    names = [op.inputs[slot][0] for slot in ("Logits", "Label")]
    need(all(len(r.lods.get(name, ())) == 1 for name in names), "sequences of another level")
    offsets, of_labels = offsets_of(r, op, "Logits", x.shape[0]), offsets_of(r, op, "Label", prod(labels.shape))
    return Spoken(labels, of_lod(offsets, is_marked), of_lod(of_labels, is_marked), blank)


def _padded(r: GraphBuilder, op: Operator, x: Value, blank: int, ids: Ids, is_marked: bool) -> Spoken:
    """Logits [longest, sequences, classes] and labels [sequences, longest label], with their lengths."""
    given = r.get(op, "Label", integer=True)
    need(len(x.shape) == 3 and len(given.shape) > 1 and given.shape[0] == x.shape[1], "labels of another shape")
    runs = by_time(x.shape, is_marked)
    of_labels = padded((given.shape[0], prod(given.shape[1:])), is_marked)
    lengths = [ids(op, slot, each.longest + 1) for slot, each in (("LabelLength", of_labels), ("LogitsLength", runs))]
    need(all(prod(each.shape) == runs.count for each in lengths), "lengths of another shape")
    labels = ids(op, "Label", x.shape[2], lengths=lengths[0])
    return Spoken(labels, runs, of_labels, blank, tuple(lengths))


def ctc_scores(r: GraphBuilder, x: Value, given: Spoken, bounds: Iterable[Bound] = ()) -> tuple[Value, Value]:
    """The logarithms of probabilities, and what the scores of all states are; beside those is what sequences cost."""
    logs = r.node("log_softmax", [x], x.shape)
    known = {"runs": given.runs, "labels": given.of_labels, "blank": given.blank, "checks": tuple(bounds)}
    shape = (prod(x.shape[:-1]), given.states)
    return logs, r.node("ctc_scores", [logs, given.labels, *given.lengths], shape, **known)


@imports("warpctc", results=("Loss",))
def _ctc(r: GraphBuilder, op: Operator, attrs: dict[str, Any]) -> None:
    bounds: list[Bound] = []
    given = spoken(r, op, attrs, Marked(r, bounds), is_marked=True)
    _, scores = ctc_scores(r, r.get(op, "Logits"), given, bounds)
    r.add("beside", [scores], op, "Loss", (given.runs.count, 1), name="cost")
