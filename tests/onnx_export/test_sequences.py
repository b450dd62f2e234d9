"""Several sequences in one run: rows, lengths and shapes are those of our own run, an empty sequence among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fluidtool.io.inference import add_feed_fetch
from fluidtool.ir import Operator, Program
from fluidtool.onnx_export.exporter import Exported, export
from fluidtool.runtime import Executor, Scope
from fluidtool.tensor import LoDTensor, var_type_of
from tests.onnx_export.support import require_onnx, run_onnx

require_onnx()
RNG = np.random.default_rng(7)
LENGTHS = [3, 0, 4, 1]
FULL = [3, 2, 4, 1]
REFUSE_EMPTY = {"sequence_softmax", "sequence_slice", "ctc_align", "crf_decoding"}


def floats(*shape: int) -> Any:
    return (RNG.random(shape) - 0.5).astype("float32")


@dataclass
class Step:
    """An operator: inputs by slot (names of feeds or of earlier outputs), outputs by slot."""

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def tensor(array: Any, *levels: Sequence[int]) -> LoDTensor:
    value = LoDTensor(np.asarray(array))
    value.set_recursive_sequence_lengths([list(level) for level in levels])
    return value


def program_of(steps: Sequence[Step], feeds: Mapping[str, LoDTensor]) -> Program:
    program = Program()
    block = program.global_block()
    for name, value in feeds.items():
        array, level = value.numpy(), len(value.offsets)
        block.create_var(
            name=name,
            shape=[-1 if level else array.shape[0], *array.shape[1:]],
            dtype=var_type_of(array.dtype),
            lod_level=level,
        )
    for step in steps:
        for name in (name for names in step.outputs.values() for name in names):
            block.create_var(name=name)
        slots = [{slot: list(names) for slot, names in side.items()} for side in (step.inputs, step.outputs)]
        block.ops.append(Operator(block, type=step.type, inputs=slots[0], outputs=slots[1], attrs=dict(step.attrs)))
    program.touch()
    return program


def given_to(exported: Exported, feeds: Mapping[str, LoDTensor]) -> dict[str, Any]:
    found = {name: value.numpy() for name, value in feeds.items()}
    for name, inputs in exported.lengths.items():
        levels = feeds[name].recursive_sequence_lengths()
        for wanted, level in zip(inputs, levels[len(levels) - len(inputs) :], strict=True):
            found[wanted] = np.array(level, np.int64)
    return found


def check(
    steps: Sequence[Step], feeds: Mapping[str, LoDTensor], fetches: Sequence[str], *, several: bool = True
) -> None:
    program = program_of(steps, feeds)
    exported = export(program, list(feeds), fetches, {}, several=several)
    assert exported.blockers == ()
    wanted = [value.name for value in exported.graph.outputs]
    names = [exported.graph.shared.renamed.get(name, name) for name in wanted]
    found = dict(zip(names, run_onnx(exported, given_to(exported, feeds), names), strict=True))
    own = Executor(engine="numpy").run(program, dict(feeds), list(fetches), Scope())
    for name, value in zip(fetches, own, strict=True):
        array, levels = value.numpy(), value.recursive_sequence_lengths()
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_allclose(found[name], array, rtol=2e-6, atol=2e-6, err_msg=name)
        levels = levels if several else levels[1:] or levels
        told = [f"{name}.lengths"] if len(levels) == 1 else [f"{name}.lengths.{k}" for k in range(len(levels))]
        for wanted_name, level in zip(told, levels, strict=True):
            assert found[wanted_name].tolist() == list(level), wanted_name


Slots = dict[str, Sequence[str]]
X: Slots = {"X": ["x"]}
CASES: dict[str, tuple[Slots, str, dict[str, Any]]] = {
    **{
        f"sequence_pool {kind}": (X, "Out", {"pooltype": kind, "pad_value": 0.5, "is_test": True})
        for kind in ("SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST")
    },
    "sequence_conv": ({"X": ["x"], "Filter": ["filter"]}, "Out", {"contextStart": -1, "contextLength": 3}),
    "sequence_conv ahead": ({"X": ["x"], "Filter": ["filter"]}, "Out", {"contextStart": 1, "contextLength": 3}),
    "sequence_softmax": ({"X": ["column"]}, "Out", {}),
    "sequence_reverse": (X, "Y", {}),
    "sequence_concat": ({"X": ["x", "other"]}, "Out", {}),
    "sequence_expand rows": ({"X": ["rows"], "Y": ["x"]}, "Out", {"ref_level": 0}),
    "sequence_expand sequences": ({"X": ["x"], "Y": ["counted"]}, "Out", {"ref_level": -1}),
    "sequence_expand_as": ({"X": ["rows"], "Y": ["x"]}, "Out", {}),
    "sequence_reshape": (X, "Out", {"new_dim": 2}),
    "sequence_slice": ({"X": ["x"], "Offset": ["offset"], "Length": ["length"]}, "Out", {}),
    "sequence_enumerate": ({"X": ["tokens"]}, "Out", {"win_size": 2, "pad_value": 9}),
    "sequence_erase": ({"X": ["tokens"]}, "Out", {"tokens": [1, 3]}),
    "sequence_scatter": ({"X": ["table"], "Ids": ["tokens"], "Updates": ["column"]}, "Out", {}),
    "add_position_encoding": (X, "Out", {"alpha": 0.5, "beta": 2.0}),
    "row_conv": ({"X": ["x"], "Filter": ["window"]}, "Out", {}),
    "ctc_align": ({"Input": ["tokens"]}, "Output", {"blank": 0, "merge_repeated": True}),
    "crf_decoding": ({"Emission": ["x"], "Transition": ["transition"]}, "ViterbiPath", {}),
    "lod_reset": ({"X": ["x"]}, "Out", {"target_lod": None}),
}


def feeds_with(lengths: Sequence[int]) -> dict[str, LoDTensor]:
    rows, count = sum(lengths), len(lengths)
    length = np.maximum(np.array(lengths) - 1, 0)[:, None].astype("int64")
    return {
        "x": tensor(floats(rows, 4), lengths),
        "other": tensor(floats(2 * count, 4), [2] * count),
        "column": tensor(floats(rows, 1), lengths),
        "tokens": tensor(RNG.integers(0, 5, (rows, 1)), lengths),
        "counted": tensor(floats(6, 1), [2, 0, 3, 1]),
        "rows": LoDTensor(floats(count, 4)),
        "table": LoDTensor(floats(count, 5)),
        "filter": LoDTensor(floats(12, 5)),
        "window": LoDTensor(floats(2, 4)),
        "transition": LoDTensor(floats(6, 4)),
        "offset": LoDTensor(np.ones((count, 1), "int64") * (np.array(lengths)[:, None] > 1)),
        "length": LoDTensor(length),
    }


@pytest.mark.parametrize(
    ("case", "lengths"),
    [(case, FULL) for case in CASES]
    + [(case, LENGTHS) for case in CASES if case.split(maxsplit=1)[0] not in REFUSE_EMPTY],
)
def test_operator(case: str, lengths: list[int]) -> None:
    type = case.split(maxsplit=1)[0]
    inputs, slot, attrs = CASES[case]
    attrs = {"target_lod": [0, 2, sum(lengths)]} if type == "lod_reset" else attrs
    feeds = feeds_with(lengths)
    used = {name: feeds[name] for names in inputs.values() for name in names}
    check([Step(type, inputs, {slot: ["out"]}, attrs)], used, ["out"])


@pytest.mark.parametrize("lengths", [LENGTHS, FULL], ids=["empty", "full"])
def test_padding_and_back(lengths: list[int]) -> None:
    feeds = {"x": tensor(floats(sum(lengths), 4), lengths), "fill": LoDTensor(np.array([7.0], "float32"))}
    steps = [
        Step("sequence_pad", {"X": ["x"], "PadValue": ["fill"]}, {"Out": ["padded"], "Length": ["count"]}),
        Step("sequence_unpad", {"X": ["padded"], "Length": ["count"]}, {"Out": ["back"]}),
        Step("sequence_reverse", {"X": ["back"]}, {"Y": ["turned"]}),
    ]
    check(steps, feeds, ["padded", "count", "back", "turned"])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("start", [False, True])
def test_gru(backward: bool, start: bool) -> None:
    feeds = {"x": tensor(floats(10, 9), FULL), "w": LoDTensor(floats(3, 9)), "b": LoDTensor(floats(1, 9))}
    inputs = {"Input": ["x"], "Weight": ["w"], "Bias": ["b"]}
    if start:
        feeds["h"] = LoDTensor(floats(4, 3))
        inputs["H0"] = ["h"]
    outputs = {"Hidden": ["out"], "BatchGate": ["g"], "BatchResetHiddenPrev": ["r"], "BatchHidden": ["k"]}
    check([Step("gru", inputs, outputs, {"is_reverse": backward})], feeds, ["out"])


@pytest.mark.parametrize("fetches", [["out"], ["out", "cells"]])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("peepholes", [False, True])
def test_lstm(peepholes: bool, backward: bool, fetches: list[str]) -> None:
    feeds = {
        "x": tensor(floats(10, 12), FULL), "w": LoDTensor(floats(3, 12)),
        "b": LoDTensor(floats(1, 21 if peepholes else 12)), "h": LoDTensor(floats(4, 3)), "c": LoDTensor(floats(4, 3)),
    }  # fmt: skip
    inputs = {"Input": ["x"], "Weight": ["w"], "Bias": ["b"], "H0": ["h"], "C0": ["c"]}
    outputs = {"Hidden": ["out"], "Cell": ["cells"], "BatchGate": ["g"], "BatchCellPreAct": ["p"]}
    check([Step("lstm", inputs, outputs, {"is_reverse": backward, "use_peepholes": peepholes})], feeds, fetches)


@pytest.mark.parametrize("backward", [False, True])
def test_lstm_with_projection(backward: bool) -> None:
    feeds = {
        "x": tensor(floats(10, 12), FULL), "w": LoDTensor(floats(2, 12)), "p": LoDTensor(floats(3, 2)),
        "b": LoDTensor(floats(1, 12)),
    }  # fmt: skip
    inputs = {"Input": ["x"], "Weight": ["w"], "ProjWeight": ["p"], "Bias": ["b"]}
    outputs = {
        "Projection": ["out"],
        "Cell": ["cells"],
        "BatchGate": ["g"],
        "BatchCellPreAct": ["a"],
        "BatchHidden": ["k"],
    }
    check([Step("lstmp", inputs, outputs, {"is_reverse": backward, "use_peepholes": False})], feeds, ["out", "cells"])


def test_operators_without_sequences_hand_them_on() -> None:
    feeds = {"x": tensor(floats(8, 4), LENGTHS), "w": LoDTensor(floats(4, 4))}
    steps = [
        Step("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["product"]}),
        Step("concat", {"X": ["product", "x"]}, {"Out": ["both"]}, {"axis": 1}),
        Step("reduce_sum", {"X": ["both"]}, {"Out": ["row"]}, {"dim": [1], "keep_dim": True}),
        Step("sequence_pool", {"X": ["row"]}, {"Out": ["out"]}, {"pooltype": "SUM", "is_test": True}),
    ]
    check(steps, feeds, ["out", "both"])


def test_sequences_inside_of_one() -> None:
    """One outermost sequence in a run; the lengths of those inside are an input."""
    feeds = {"x": tensor(floats(8, 4), [4], LENGTHS)}
    steps = [Step("sequence_pool", {"X": ["x"]}, {"Out": ["out"]}, {"pooltype": "SUM", "is_test": True})]
    check(steps, feeds, ["out"], several=False)


def test_levels_of_several() -> None:
    feeds = {"x": tensor(floats(8, 4), [1, 3], LENGTHS)}
    pool = {"pooltype": "SUM", "is_test": True}
    steps = [
        Step("sequence_pool", {"X": ["x"]}, {"Out": ["inner"]}, pool),
        Step("sequence_pool", {"X": ["inner"]}, {"Out": ["outer"]}, pool),
    ]
    check(steps, feeds, ["inner", "outer"])


def test_an_operator_of_one_sequence_says_so() -> None:
    feeds = {"x": tensor(floats(8, 4), LENGTHS)}
    program = program_of([Step("lod_rank_table", {"X": ["x"]}, {"Out": ["table"]})], feeds)
    program.global_block().append_op(type="max_sequence_len", inputs={"RankTable": ["table"]}, outputs={"Out": ["n"]})
    program.global_block().create_var(name="n")
    (blocker,) = export(program, ["x"], ["n"], {}, several=True).blockers
    assert (blocker.type, blocker.reason) == (
        "lod_rank_table", "its rendering takes one sequence at a time, and x has several"
    )  # fmt: skip


# ---------------------------------------------------------------- beam search over one source
def beam_feeds(prefixes: int, columns: int, ended: Sequence[int], scores: Any) -> dict[str, LoDTensor]:
    ids = RNG.integers(2, 9, (prefixes, 1))
    ids[list(ended)] = 1
    ones = [1] * prefixes
    return {
        "pre_ids": tensor(ids, [prefixes], ones),
        "pre_scores": tensor(-RNG.random((prefixes, 1)).astype("float32"), [prefixes], ones),
        "ids": tensor(RNG.integers(1, 9, (prefixes, columns)), [prefixes], ones),
        "scores": tensor(np.asarray(scores, "float32"), [prefixes], ones),
    }


SLOTS = {slot: [slot] for slot in ("pre_ids", "pre_scores", "ids", "scores")}
CHOSEN = {slot: [slot] for slot in ("selected_ids", "selected_scores", "parent_idx")}


@pytest.mark.parametrize("accumulated", [True, False])
@pytest.mark.parametrize("ended", [[], [1], [0, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("beam", [1, 3, 20])
def test_beam_search(beam: int, ended: list[int], accumulated: bool) -> None:
    feeds = beam_feeds(3, 4, ended, RNG.random((3, 4)))
    attrs = {"level": 0, "beam_size": beam, "end_id": 1, "is_accumulated": accumulated}
    check([Step("beam_search", SLOTS, CHOSEN, attrs)], feeds, list(CHOSEN), several=False)


def test_of_equal_scores_the_later_prefix_comes_first() -> None:
    feeds = beam_feeds(3, 2, [], [[0.5, 0.1], [0.5, 0.2], [0.5, 0.3]])
    attrs = {"level": 0, "beam_size": 2, "end_id": 1, "is_accumulated": True}
    check([Step("beam_search", SLOTS, CHOSEN, attrs)], feeds, list(CHOSEN), several=False)


def test_beam_search_takes_one_source() -> None:
    program = program_of(
        [Step("beam_search", SLOTS, CHOSEN, {"level": 0, "beam_size": 2, "end_id": 1})],
        beam_feeds(3, 2, [], RNG.random((3, 2))),
    )
    (blocker,) = export(program, list(SLOTS), list(CHOSEN), {}, several=True).blockers
    assert (blocker.type, blocker.reason) == ("beam_search", "its rendering takes one sequence at a time")


def test_the_inputs_of_a_file_have_the_lengths_too() -> None:
    feeds = {"x": tensor(floats(8, 4), LENGTHS)}
    program = program_of([Step("relu", {"X": ["x"]}, {"Out": ["out"]})], feeds)
    add_feed_fetch(program, ["x"], ["out"])
    exported = export(program, ["x"], ["out"], {}, several=True)
    assert [value.name for value in exported.graph.inputs] == ["x", "x.lengths"]
    assert exported.lengths == {"x": ["x.lengths"]}
