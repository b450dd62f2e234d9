"""`fluid.contrib`."""


def _steps(fluid, name="x"):
    return fluid.data(name, [-1, 5, 3], "float32")


def net_gru(fluid):
    fluid.contrib.layers.basic_gru(_steps(fluid), None, 4)


def net_gru_with_everything(fluid):
    lengths = fluid.data("lengths", [-1], "int32")
    hidden = fluid.data("hidden", [4, -1, 4], "float32")
    fluid.contrib.layers.basic_gru(
        fluid.layers.transpose(_steps(fluid), [1, 0, 2]),
        hidden,
        4,
        num_layers=2,
        sequence_length=lengths,
        dropout_prob=0.3,
        bidirectional=True,
        batch_first=False,
        param_attr=fluid.ParamAttr(name="w"),
        bias_attr=fluid.ParamAttr(name="b"),
        gate_activation=fluid.layers.tanh,
        activation=fluid.layers.sigmoid,
        name="mine",
    )


def net_gru_trained(fluid):
    outputs, last = fluid.contrib.layers.basic_gru(_steps(fluid), None, 4, bidirectional=True)
    loss = fluid.layers.mean(outputs) + fluid.layers.mean(last)
    fluid.optimizer.SGD(0.1).minimize(loss)


def net_lstm(fluid):
    fluid.contrib.layers.basic_lstm(_steps(fluid), None, None, 4)


def net_lstm_with_everything(fluid):
    lengths = fluid.data("lengths", [-1], "int32")
    hidden, cell = (fluid.data(name, [4, -1, 4], "float32") for name in ("hidden", "cell"))
    fluid.contrib.layers.basic_lstm(
        _steps(fluid),
        hidden,
        cell,
        4,
        num_layers=2,
        sequence_length=lengths,
        dropout_prob=0.3,
        bidirectional=True,
        forget_bias=0.5,
        param_attr=fluid.ParamAttr(name="w"),
        bias_attr=fluid.ParamAttr(name="b"),
    )


def net_units(fluid):
    x, h, c = (fluid.data(name, [-1, 3], "float32") for name in "xhc")
    gru = fluid.contrib.layers.BasicGRUUnit("gru", 3)
    lstm = fluid.contrib.layers.BasicLSTMUnit("lstm", 3, param_attr=fluid.ParamAttr(name="w"))
    gru(x, gru(x, h))
    lstm(x, h, c)


def net_elementwise(fluid):
    x, y = fluid.data("x", [2, 3], "float32"), fluid.data("y", [2, 3], "float32")
    layers = fluid.contrib.layers
    layers.fused_elemwise_activation(x, y, ["elementwise_add", "relu"])
    layers.fused_elemwise_activation(x, y, "scale,elementwise_mul", axis=0, scale=2.0, save_intermediate_out=False)
    layers.partial_concat([x, y], start_index=1, length=2)
    layers.partial_sum([x, y], start_index=0)
    layers.shuffle_batch(x)
    layers.shuffle_batch(y, seed=5)


def net_sequences(fluid):
    x, y = (fluid.data(name, [-1, 4], "float32", lod_level=1) for name in "xy")
    layers = fluid.contrib.layers
    match, tmp = layers.match_matrix_tensor(x, y, channel_num=3, act="relu", param_attr="m")
    layers.sequence_topk_avg_pooling(match, x, y, topks=[1, 2], channel_num=3)
    one = fluid.data("one", [-1, 1], "float32", lod_level=1)
    layers.var_conv_2d(one, x, y, input_channel=3, output_channel=2, filter_size=[3, 5], stride=2, act="tanh")


def net_trees(fluid):
    nodes = fluid.data("nodes", [-1, 10, 5], "float32")
    edges = fluid.data("edges", [-1, 10, 2], "int32")
    layers = fluid.contrib.layers
    layers.tree_conv(nodes, edges, 6, num_filters=1, max_depth=2)
    layers.tree_conv(nodes, edges, 6, 2, 3, act=None, bias_attr=False, name="mine")
    item = fluid.data("item", [-1, 1], "int32")
    layers.tdm_child(item, 15, 2, param_attr=fluid.ParamAttr(name="tree"))
    layers.tdm_sampler(item, [0, 0, 0, 1], [2, 4, 6, 8][:4], leaf_node_num=7, tree_travel_attr="t", tree_layer_attr="l")
    layers.tdm_sampler(item, [1, 2], [2, 4], 3, output_positive=False, output_list=False, seed=2, dtype="int64")


def net_embeddings(fluid):
    ids = fluid.data("ids", [-1, 1], "int64", lod_level=1)
    layers = fluid.contrib.layers
    layers.fused_embedding_seq_pool(ids, [20, 4], is_sparse=True, padding_idx=-2, param_attr="e")
    layers.fused_embedding_seq_pool(ids, [20, 4])
    words = fluid.data("words", [-1, 1], "int32", lod_level=1)
    names = [fluid.ParamAttr(name=name) for name in "abc"]
    layers.search_pyramid_hash(
        words, 16, 100, 2, 16, 0.5, True, False, 10, 20, 3, 0.1, *names, distribute_update_vars=["a"]
    )
    features, offsets = fluid.data("features", [-1, 2], "float32"), fluid.data("offsets", [-1, 7], "int32")
    layers.rank_attention(features, offsets, [18, 3], fluid.ParamAttr(name="rank"), max_rank=3)


def net_boxes(fluid):
    boxes, scores = fluid.data("boxes", [2, 81, 4], "float32"), fluid.data("scores", [2, 20, 81], "float32")
    fluid.contrib.layers.multiclass_nms2(boxes, scores, 0.5, 400, 200)


def net_ctr_metrics(fluid):
    x, y = fluid.data("x", [-1, 1], "float32"), fluid.data("y", [-1, 1], "float32")
    fluid.contrib.layers.ctr_metric_bundle(x, y)


def net_decoupled_weight_decay(fluid):
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [-1, 3], "float32"), 2))
    adam = fluid.contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    adam(learning_rate=0.1, weight_decay=0.01, apply_decay_param_fun=lambda name: name.endswith("w_0")).minimize(loss)


def _digits(fluid):
    image = fluid.data("image", [-1, 1, 8, 8], "float32")
    hidden = fluid.layers.conv2d(image, 4, 3, act="relu")
    hidden = fluid.layers.batch_norm(fluid.layers.pool2d(hidden, 2, "max", 2))
    hidden = fluid.layers.dropout(fluid.layers.fc(hidden, 8, act="tanh"), 0.2)
    label = fluid.data("label", [-1, 1], "int64")
    logits = fluid.layers.fc(hidden, 3)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))


def net_mixed_precision(fluid):
    loss = _digits(fluid)
    fluid.contrib.mixed_precision.decorate(fluid.optimizer.Momentum(0.1, 0.9)).minimize(loss)


def net_mixed_precision_of_a_fixed_scale(fluid):
    loss = _digits(fluid)
    lists = fluid.contrib.mixed_precision.AutoMixedPrecisionLists(
        custom_white_list=["softmax"], custom_black_list=["tanh"], custom_black_varnames={"fc_1.w_0"}
    )
    decorated = fluid.contrib.mixed_precision.decorate(
        fluid.optimizer.SGD(0.1), lists, init_loss_scaling=8.0, use_dynamic_loss_scaling=False
    )
    decorated.minimize(loss)


def _decoder_cell(fluid):
    decoder = fluid.contrib.decoder
    context = fluid.layers.fc(fluid.data("context", [-1, 6], "float32"), 8, act="tanh")
    start = decoder.InitState(init=context, need_reorder=True)
    cell = decoder.StateCell(inputs={"x": None}, states={"h": start}, out_state="h")

    @cell.state_updater
    def update(cell):
        gates = [cell.get_input("x"), cell.get_state("h")]
        cell.set_state("h", fluid.layers.fc(gates, 8, act="tanh"))

    return cell


def net_training_decoder(fluid):
    cell = _decoder_cell(fluid)
    target = fluid.layers.embedding(fluid.data("target", [-1, 1], "int64", lod_level=1), [20, 6])
    decoder = fluid.contrib.decoder.TrainingDecoder(cell)
    with decoder.block():
        word = decoder.step_input(target)
        decoder.state_cell.compute_state(inputs={"x": word})
        scores = fluid.layers.fc(decoder.state_cell.get_state("h"), 20, act="softmax")
        decoder.state_cell.update_states()
        decoder.output(scores)
    label = fluid.data("label", [-1, 1], "int64", lod_level=1)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.cross_entropy(decoder(), label)))


def net_beam_search_decoder(fluid):
    cell = _decoder_cell(fluid)
    ids = fluid.data("init_ids", [-1, 1], "int64", lod_level=2)
    scores = fluid.data("init_scores", [-1, 1], "float32", lod_level=2)
    decoder = fluid.contrib.decoder.BeamSearchDecoder(
        cell, ids, scores, target_dict_dim=20, word_dim=6, topk_size=5, max_len=4, beam_size=2, end_id=1
    )
    decoder.decode()
    decoder()


def net_state_of_zeros(fluid):
    boot = fluid.data("boot", [-1, 6], "float32")
    fluid.contrib.decoder.InitState(init_boot=boot, shape=[-1, 8], value=0.5)
