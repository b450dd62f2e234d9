"""What recurrent layers, cells, decoders and beam search refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fluidtool.fluid as fluid

L: Any = fluid.layers


@pytest.fixture(autouse=True)
def fresh_programs() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def real(name: str = "x", shape: tuple[int, ...] = (3, 12)) -> Any:
    return L.data(name, list(shape), append_batch_size=False)


def whole(name: str = "n", shape: tuple[int, ...] = (3, 1)) -> Any:
    return L.data(name, list(shape), append_batch_size=False, dtype="int64")


REFUSALS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.dynamic_lstm(real(), 12, bias_attr=False), ValueError, "bias_attr should not be False in dynamic_lstm"),
    (lambda: L.dynamic_lstm(whole(), 12), TypeError, "The data type of 'input' in dynamic_lstm must be"),
    (lambda: L.dynamic_lstm(real(), 12, h_0=3), TypeError, "The type of 'h_0' in dynamic_lstm must be"),
    (lambda: L.dynamic_lstm(real(), 12, h_0=real("h", (3, 4))), ValueError, r"expected \(3, 3\), found \(3, 4\)"),
    (lambda: L.dynamic_lstm(real(), 12, c_0=real("c", (3, 4))), ValueError, "The shape of c0 should be"),
    (lambda: L.dynamic_lstmp(real(), 12, 2, bias_attr=False), ValueError, "should not be False in dynamic_lstmp"),
    (lambda: L.dynamic_lstmp(real(), 12, 2, h_0=real("h", (3, 3))), ValueError, r"expected \(3, 2\), found \(3, 3\)"),
    (lambda: L.dynamic_lstmp(real(), 12, 2, cell_clip=-1.0), ValueError, "cell_clip should not be negative"),
    (lambda: L.dynamic_lstmp(real(), 12, 2, proj_clip=-1.0), ValueError, "proj_clip should not be negative"),
    (lambda: L.dynamic_gru(whole(), 4), TypeError, "The data type of 'input' in dynamic_gru must be"),
    (lambda: L.dynamic_gru(real(), 4, h_0=real("h", (3, 3))), ValueError, r"expected \(3, 4\), found \(3, 3\)"),
    (lambda: L.gru_unit(real(), real("h", (3, 4)), 12.0), TypeError, "The type of 'size' in gru_unit must be"),
    (
        lambda: L.gru_unit(real(), real("h", (3, 4)), 12, activation="selu"),
        ValueError,
        "activation of gru_unit must be",
    ),
    (lambda: L.lstm_unit(real(), real("h", (3,)), real("c")), ValueError, "Rank of hidden_t_prev must be 2"),
    (lambda: L.lstm_unit(real(), real("h", (4, 2)), real("c")), ValueError, "The 1st dimensions of x_t, hidden_t_prev"),
    (lambda: L.lstm_unit(real(), real("h", (3, 2)), real("c")), ValueError, "The 2nd dimensions of hidden_t_prev"),
    (lambda: L.lstm(whole(), real(), real("c"), 2, 2, 1), TypeError, "The data type of 'input' in lstm must be"),
    (lambda: L.lstm(real(), real(), real("c"), 2, 2.0, 1), TypeError, "The type of 'hidden_size' in lstm must be"),
    (lambda: L.GRUCell(4.0), TypeError, "The type of 'hidden_size' in GRUCell must be"),
    (lambda: L.LSTMCell(4, dtype="int64"), TypeError, "The data type of 'dtype' in LSTMCell must be"),
    (lambda: L.GRUCell(4, bias_attr=False)(real(), real("h", (3, 4))), ValueError, "have weights and biases"),
    (lambda: L.LSTMCell(4)(real(), real("h", (3, 4))), TypeError, "The type of 'states' in LSTMCell must be"),
    (lambda: L.RNNCell()(real(), real()), NotImplementedError, "RNNCell must implement the call function"),
    (
        lambda: L.RNNCell().get_initial_states(real()),
        NotImplementedError,
        "Please add implementation for `state_shape`",
    ),
    (lambda: L.GRUCell(4).get_initial_states(3), TypeError, "The type of 'batch_ref' in RNNCell must be"),
    (lambda: L.GRUCell(4).get_initial_states(real(), shape="a"), ValueError, "must be lists of numbers, found 'a'"),
    (lambda: L.GRUCell(4).get_initial_states(real(), dtype="int64"), TypeError, "The data type of 'dtype' in RNNCell"),
    (lambda: L.rnn(L.GRUCell(4), 3), TypeError, "The type of 'inputs' in rnn must be"),
    (lambda: L.rnn(L.GRUCell(4), [whole()]), TypeError, r"The data type of 'inputs\[0\]' in rnn must be"),
    (lambda: L.rnn(L.GRUCell(4), real(), sequence_length=3), TypeError, "The type of 'sequence_length' in rnn must be"),
    (lambda: L.dynamic_decode(L.Decoder()), NotImplementedError, "Decoder has no method initialize"),
    (lambda: L.Decoder().step(None, None, None), NotImplementedError, "Decoder has no method step"),
    (
        lambda: L.BeamSearchDecoder.tile_beam_merge_with_batch(3, 2),
        TypeError,
        "The type of 'x' in BeamSearchDecoder.tile_beam_merge_with_batch must be",
    ),
    (
        lambda: L.beam_search(real(), real("s"), None, real("t"), 2, 1),
        TypeError,
        "The data type of 'pre_ids' in beam_s",
    ),
    (lambda: L.beam_search(whole(), real("s"), 3, real("t"), 2, 1), TypeError, "The type of 'ids' in beam_search must"),
    (lambda: L.beam_search_decode(real(), real("s"), 2, 1), TypeError, "The data type of 'ids' in beam_search_encode"),
    (lambda: L.gather_tree(real(), whole()), TypeError, "The data type of 'ids' in gather_tree must be"),
]


@pytest.mark.parametrize(("build", "error", "text"), REFUSALS, ids=[case[2][:60] for case in REFUSALS])
def test_a_wrong_use_is_refused(build: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()
