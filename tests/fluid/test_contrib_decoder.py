"""`fluid.contrib.decoder`: a StateCell in training and in beam search, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.contrib.decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder

CPU = fluid.CPUPlace()
WORDS, WIDTH, LONGEST = 7, 4, 5


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        fluid.default_startup_program().random_seed = 3
        yield


def cell_of(start: Any, need_reorder: bool = False) -> StateCell:
    cell = StateCell({"x": None}, {"h": InitState(init=start, need_reorder=need_reorder)}, out_state="h")

    @cell.state_updater
    def update(cell: StateCell) -> None:
        parts = [cell.get_state("h"), cell.get_input("x")]
        attrs = [fluid.ParamAttr("u"), fluid.ParamAttr("w")]
        cell.set_state("h", fluid.layers.fc(parts, WIDTH, act="tanh", param_attr=attrs, bias_attr=False))

    return cell


def test_a_training_decoder_learns() -> None:
    start = fluid.data("start", [-1, WIDTH])
    words = fluid.data("words", [-1, 1], "int64", lod_level=1)
    label = fluid.data("label", [-1, 1], "int64", lod_level=1)
    decoder = TrainingDecoder(cell_of(start, need_reorder=True))
    embedded = fluid.layers.embedding(words, [WORDS, 3])
    with decoder.block():
        decoder.state_cell.compute_state(inputs={"x": decoder.step_input(embedded)})
        scores = fluid.layers.fc(decoder.state_cell.get_state("h"), WORDS, act="softmax")
        decoder.state_cell.update_states()
        decoder.output(scores)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(decoder(), label))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    ids = np.array([[2], [3], [4], [5], [6]])
    feed = {
        "start": np.ones((2, WIDTH), "float32"),
        "words": fluid.create_lod_tensor(ids - 1, [[2, 3]], CPU),
        "label": fluid.create_lod_tensor(ids, [[2, 3]], CPU),
    }
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(30)]
    assert losses[-1] < 0.1 * losses[0]


def greedy(h: Any) -> list[int]:
    """The words that a search with a beam of one finds, by hand."""
    table, w, u, v, b = (fluid.fetch_var(name) for name in ("embedding_0.w_0", "w", "u", "fc_1.w_0", "fc_1.b_0"))
    word, found = 0, [0]
    while len(found) <= LONGEST and word != 1:
        h = np.tanh(table[word] @ w + h @ u)
        word = int(np.argmax(h @ v + b))
        found.append(word)
    return found


def test_a_search_with_a_beam_of_one_follows_the_best_words() -> None:
    start = fluid.data("start", [-1, WIDTH])
    ids = fluid.data("ids", [-1, 1], "int64", lod_level=2)
    scores = fluid.data("scores", [-1, 1], "float32", lod_level=2)
    decoder = BeamSearchDecoder(
        cell_of(start), ids, scores, WORDS, 3, topk_size=3, sparse_emb=False, max_len=LONGEST, beam_size=1, end_id=1
    )
    decoder.decode()
    sentences, _ = decoder()
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    states = np.array([[1, -1, 0.5, 0], [-1, 0.3, 1, -1]], "float32")
    lod = [[1, 1], [1, 1]]
    feed = {
        "start": states,
        "ids": fluid.create_lod_tensor(np.zeros((2, 1), "int64"), lod, CPU),
        "scores": fluid.create_lod_tensor(np.zeros((2, 1), "float32"), lod, CPU),
    }
    (found,) = exe.run(feed=feed, fetch_list=[sentences], return_numpy=False)
    offsets = found.lod()[1]
    words = [np.array(found).ravel()[a:b].tolist() for a, b in pairwise(offsets)]
    assert words == [greedy(state) for state in states]


def test_a_state_may_start_from_a_number() -> None:
    state = InitState(init_boot=fluid.data("boot", [-1, 6]), shape=[-1, 8], value=0.5)
    (value,) = fluid.Executor(CPU).run(feed={"boot": np.ones((3, 6), "float32")}, fetch_list=[state.value])
    assert value.shape == (3, 8) and (value == 0.5).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: InitState(), UsageError, "init_boot must be provided"),
        (lambda x: StateCell({}, {"h": x}, "h"), UsageError, "state must be an InitState"),
        (lambda x: StateCell({}, {"h": InitState(x)}, "g"), UsageError, "out_state must be one state"),
        (lambda x: cell_of(x).get_state("g"), UsageError, "Unknown state g"),
        (lambda x: cell_of(x).get_input("x"), UsageError, "Invalid input x"),
        (lambda x: cell_of(x).compute_state({"z": x}), UsageError, "Unknown input z"),
        (lambda x: TrainingDecoder(cell_of(x)).step_input(x), UsageError, "inside block of TrainingDecoder"),
        (lambda x: TrainingDecoder(cell_of(x))(), UsageError, "only be visited outside the block"),
        (lambda x: BeamSearchDecoder(cell_of(x), x, x, 7, 3)(), UsageError, "only be visited outside the block"),
        (lambda x: BeamSearchDecoder(cell_of(x), x, x, 7, 3).read_array(x), UsageError, "inside block of BeamSearch"),
    ],
)
def test_what_decoders_refuse(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(fluid.data("x", [-1, WIDTH]))


def test_a_cell_works_in_one_decoder_at_a_time() -> None:
    cell = cell_of(fluid.data("x", [-1, WIDTH]))
    TrainingDecoder(cell)
    with pytest.raises(UsageError, match="already entered a decoder"):
        TrainingDecoder(cell)


def test_arrays_are_read_from_variables() -> None:
    x = fluid.data("x", [-1, WIDTH])
    decoder = BeamSearchDecoder(cell_of(x), x, x, WORDS, 3)
    with pytest.raises(ArgumentTypeError, match="must be a Variable, found int"), decoder.block():
        decoder.read_array(3)  # type: ignore[arg-type]
