"""Networks of decoders and beam search."""


def _cell_and_states(fluid, kind="GRUCell"):
    cell = getattr(fluid.layers, kind)(4)
    start = fluid.layers.data("start", [4])
    states = fluid.layers.fc(start, 4)
    return cell, states if kind == "GRUCell" else [states, fluid.layers.fc(start, 4)]


def _embedder(fluid):
    return lambda ids: fluid.embedding(ids, [10, 4], param_attr="table")


def _output(fluid):
    return lambda x: fluid.layers.fc(x, 10, num_flatten_dims=len(x.shape) - 1, param_attr="out_w", bias_attr="out_b")


def _beams(fluid, kind, **kwargs):
    cell, states = _cell_and_states(fluid, kind)
    decoder = fluid.layers.BeamSearchDecoder(
        cell, start_token=0, end_token=1, beam_size=3, embedding_fn=_embedder(fluid), output_fn=_output(fluid)
    )
    return fluid.layers.dynamic_decode(decoder, inits=states, **kwargs)


def net_beam_search_decoder(fluid):
    _beams(fluid, "GRUCell", max_step_num=5)


def net_beam_search_decoder_of_lstm(fluid):
    _beams(fluid, "LSTMCell", impute_finished=True, is_test=True, return_length=True, output_time_major=True)


def net_beam_search_decoder_without_functions(fluid):
    def cell(inputs, states):
        return states, fluid.layers.scale(states, 2.0)

    decoder = fluid.layers.BeamSearchDecoder(cell, 0, 1, 2)
    fluid.layers.dynamic_decode(decoder, inits=fluid.layers.data("start", [4]), max_step_num=2)


def net_tiled_memory(fluid):
    x = fluid.layers.data("x", [5, 4])
    fluid.layers.BeamSearchDecoder.tile_beam_merge_with_batch(x, 3)


def net_training_decoder(fluid):
    cell, states = _cell_and_states(fluid)
    x = fluid.layers.data("x", [-1, 7, 4], append_batch_size=False)
    length = fluid.layers.data("length", [-1], dtype="int64", append_batch_size=False)
    helper = fluid.layers.TrainingHelper(x, length)
    decoder = fluid.layers.BasicDecoder(cell, helper, output_fn=_output(fluid))
    outputs, _, _ = fluid.layers.dynamic_decode(decoder, inits=states, return_length=True)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(outputs.cell_outputs))


def net_training_decoder_time_major(fluid):
    cell, states = _cell_and_states(fluid, "LSTMCell")
    x = fluid.layers.data("x", [7, -1, 4], append_batch_size=False)
    length = fluid.layers.data("length", [-1], dtype="int32", append_batch_size=False)
    decoder = fluid.layers.BasicDecoder(cell, fluid.layers.TrainingHelper(x, length, time_major=True))
    fluid.layers.dynamic_decode(decoder, inits=states, output_time_major=True, impute_finished=True)


def net_greedy_decoder(fluid):
    cell, states = _cell_and_states(fluid)
    tokens = fluid.layers.data("tokens", [-1], dtype="int64", append_batch_size=False)
    helper = fluid.layers.GreedyEmbeddingHelper(_embedder(fluid), tokens, 1)
    decoder = fluid.layers.BasicDecoder(cell, helper, output_fn=_output(fluid))
    fluid.layers.dynamic_decode(decoder, inits=states, max_step_num=5, is_test=True)


def net_sampling_decoder(fluid):
    cell, states = _cell_and_states(fluid)
    tokens = fluid.layers.data("tokens", [-1], dtype="int64", append_batch_size=False)
    for temperature, seed in ((None, None), (0.5, 7)):
        helper = fluid.layers.SampleEmbeddingHelper(_embedder(fluid), tokens, 1, temperature, seed)
        decoder = fluid.layers.BasicDecoder(cell, helper, output_fn=_output(fluid))
        fluid.layers.dynamic_decode(decoder, inits=states, max_step_num=5)


def net_beam_search_operators(fluid):
    pre_ids = fluid.layers.data("pre_ids", [1], dtype="int64", lod_level=2)
    pre_scores = fluid.layers.data("pre_scores", [1], lod_level=2)
    probs = fluid.layers.data("probs", [10])
    scores, ids = fluid.layers.topk(probs, k=5)
    fluid.layers.beam_search(pre_ids, pre_scores, ids, scores, 3, 1)
    chosen, best, _ = fluid.layers.beam_search(
        pre_ids, pre_scores, None, probs, 3, 1, level=1, is_accumulated=False, name="step", return_parent_idx=True
    )
    at = fluid.layers.fill_constant([1], "int64", 0)
    id_array, score_array = fluid.layers.array_write(chosen, at), fluid.layers.array_write(best, at)
    fluid.layers.beam_search_decode(id_array, score_array, 3, 1)


def net_gather_tree(fluid):
    ids = fluid.layers.data("ids", [5, 2, 3], dtype="int64", append_batch_size=False)
    parents = fluid.layers.data("parents", [5, 2, 3], dtype="int64", append_batch_size=False)
    fluid.layers.gather_tree(ids, parents)
