"""Networks of structured scores: CRF, CTC, chunks, edit distances, products, tags."""


def _steps(fluid, size=5):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    return fluid.layers.fc(fluid.layers.embedding(words, [10, 4]), size)


def _tags(fluid, name="tags", dtype="int64"):
    return fluid.layers.data(name, [1], dtype=dtype, lod_level=1)


def _train(fluid, loss):
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))


def net_crf(fluid):
    scores = _steps(fluid)
    _train(fluid, fluid.layers.linear_chain_crf(scores, _tags(fluid), fluid.ParamAttr(name="crfw")))
    fluid.layers.crf_decoding(scores, fluid.ParamAttr(name="crfw"))
    fluid.layers.crf_decoding(scores, fluid.ParamAttr(name="crfw"), label=_tags(fluid, "wanted"))


def net_crf_of_padded_sequences(fluid):
    scores = fluid.layers.fc(fluid.layers.data("x", [7, 4]), 5, num_flatten_dims=2)
    tags = fluid.layers.data("tags", [7, 1], dtype="int64")
    length = fluid.layers.data("length", [1], dtype="int64")
    attr = fluid.ParamAttr(name="crfw", learning_rate=0.2)
    _train(fluid, fluid.layers.linear_chain_crf(scores, tags, attr, length))
    fluid.layers.crf_decoding(scores, attr, length=length)


def net_chunk_eval(fluid):
    fluid.layers.chunk_eval(_tags(fluid), _tags(fluid, "wanted"), "IOB", 3)


def net_chunk_eval_of_padded_sequences(fluid):
    tags, wanted = (fluid.layers.data(name, [7, 1], dtype="int64") for name in ("tags", "wanted"))
    length = fluid.layers.data("length", [1], dtype="int64")
    fluid.layers.chunk_eval(tags, wanted, "IOE", 3, [1], length)


def net_warpctc(fluid):
    _train(fluid, fluid.layers.warpctc(_steps(fluid), _tags(fluid, dtype="int32"), norm_by_times=True))


def net_warpctc_of_padded_sequences(fluid):
    scores = fluid.layers.data("x", [7, 3, 6], append_batch_size=False)
    scores.stop_gradient = False
    label = fluid.layers.data("label", [3, 4], dtype="int32", append_batch_size=False)
    lengths = [fluid.layers.data(name, [3], dtype="int64", append_batch_size=False) for name in ("steps", "labels")]
    loss = fluid.layers.warpctc(scores, label, 5, False, lengths[0], lengths[1])
    fluid.backward.append_backward(fluid.layers.mean(loss))


def net_ctc_greedy_decoder(fluid):
    fluid.layers.ctc_greedy_decoder(_steps(fluid), 4)


def net_ctc_greedy_decoder_of_padded_sequences(fluid):
    scores = fluid.layers.data("x", [7, 5])
    length = fluid.layers.data("length", [1], dtype="int64")
    fluid.layers.ctc_greedy_decoder(scores, 4, length, -1, name="greedy")


def net_edit_distance(fluid):
    fluid.layers.edit_distance(_tags(fluid), _tags(fluid, "wanted"))


def net_edit_distance_without_some_tokens(fluid):
    fluid.layers.edit_distance(_tags(fluid), _tags(fluid, "wanted"), normalized=False, ignored_tokens=[0, 2])


def net_edit_distance_of_padded_sequences(fluid):
    first, second = (fluid.layers.data(name, [7], dtype="int64") for name in ("first", "second"))
    lengths = [fluid.layers.data(name, [1], dtype="int64") for name in ("steps", "labels")]
    fluid.layers.edit_distance(first, second, input_length=lengths[0], label_length=lengths[1])


def net_bilinear_tensor_product(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [3])
    _train(fluid, fluid.layers.bilinear_tensor_product(x, y, 6, act="tanh"))


def net_bilinear_tensor_product_without_bias(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [3])
    attr = fluid.ParamAttr(name="w")
    _train(fluid, fluid.layers.bilinear_tensor_product(x, y, 6, name="pairs", param_attr=attr, bias_attr=False))


def net_fsp_matrix(fluid):
    x, y = (fluid.layers.data(name, [size, 5, 5]) for name, size in (("x", 2), ("y", 3)))
    x.stop_gradient = False
    loss = fluid.layers.mean(fluid.layers.fsp_matrix(x, y))
    fluid.backward.append_backward(loss)


def net_add_position_encoding(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [7, 4]), 6, num_flatten_dims=2)
    _train(fluid, fluid.layers.add_position_encoding(x, 0.5, 2.0, name="where"))


def net_add_position_encoding_to_sequences(fluid):
    _train(fluid, fluid.layers.add_position_encoding(_steps(fluid, 6), alpha=1.0, beta=1.0))


def net_similarity_focus(fluid):
    fluid.layers.similarity_focus(fluid.layers.data("x", [3, 2, 2]), 1, [0, 2])


def net_continuous_value_model(fluid):
    counts = fluid.layers.data("counts", [2])
    x = fluid.layers.fc(fluid.layers.data("x", [4]), 6)
    _train(fluid, fluid.layers.continuous_value_model(x, counts))
    fluid.layers.continuous_value_model(x, counts, use_cvm=False)


def net_filter_by_instag(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [4]), 6)
    tags = fluid.layers.data("tags", [1], dtype="int64", lod_level=1)
    wanted = fluid.layers.data("wanted", [2], dtype="int64", append_batch_size=False)
    out, _ = fluid.layers.filter_by_instag(x, tags, wanted, True, out_val_if_empty=3)
    _train(fluid, out)
