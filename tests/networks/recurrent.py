"""Networks of LSTM and GRU layers, cells and `rnn`."""


def _sequences(fluid, width, rows=None):
    shape = [width] if rows is None else [rows, width]
    x = fluid.layers.data("x", shape, append_batch_size=rows is None, lod_level=1)
    x.stop_gradient = False
    return x


def net_dynamic_lstm(fluid):
    fluid.layers.dynamic_lstm(_sequences(fluid, 16), 16)


def net_dynamic_lstm_with_everything(fluid):
    x = _sequences(fluid, 16, 3)
    h, c = [fluid.layers.data(n, [3, 4], append_batch_size=False) for n in "hc"]
    out = fluid.layers.dynamic_lstm(
        x,
        16,
        h_0=h,
        c_0=c,
        param_attr="w",
        bias_attr="b",
        use_peepholes=False,
        is_reverse=True,
        gate_activation="relu",
        cell_activation="sigmoid",
        candidate_activation="identity",
        name="walk",
    )
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out[0]))


def net_dynamic_lstmp(fluid):
    out = fluid.layers.dynamic_lstmp(_sequences(fluid, 16), 16, 3)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out[0]))


def net_dynamic_lstmp_with_everything(fluid):
    x = _sequences(fluid, 16, 3)
    h = fluid.layers.data("h", [3, 2], append_batch_size=False)
    c = fluid.layers.data("c", [3, 4], append_batch_size=False)
    fluid.layers.dynamic_lstmp(
        x,
        16,
        2,
        use_peepholes=False,
        is_reverse=True,
        proj_activation="relu",
        h_0=h,
        c_0=c,
        cell_clip=0.5,
        proj_clip=0.25,
        name="projected",
    )


def net_dynamic_gru(fluid):
    fluid.layers.dynamic_gru(_sequences(fluid, 12), 4)


def net_dynamic_gru_with_everything(fluid):
    h = fluid.layers.data("h", [3, 4], append_batch_size=False)
    out = fluid.layers.dynamic_gru(
        _sequences(fluid, 12, 3),
        4,
        param_attr="w",
        bias_attr=False,
        is_reverse=True,
        gate_activation="relu",
        candidate_activation="identity",
        h_0=h,
        origin_mode=True,
    )
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def net_units(fluid):
    x, h = fluid.layers.data("x", [12]), fluid.layers.data("h", [4])
    fluid.layers.gru_unit(x, h, 12)
    fluid.layers.gru_unit(x, h, 12, bias_attr=False, origin_mode=True, activation="relu", param_attr="w")
    c = fluid.layers.data("c", [4])
    c.stop_gradient = False
    hidden, _ = fluid.layers.lstm_unit(x, h, c)
    fluid.layers.lstm_unit(x, h, c, forget_bias=1.0, param_attr="v", bias_attr=False, name="unit")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))


def net_lstm(fluid):
    x = fluid.layers.data("x", [5, 3, 6], append_batch_size=False)
    h, c = [fluid.layers.data(n, [2, 3, 4], append_batch_size=False) for n in "hc"]
    fluid.layers.lstm(x, h, c, 5, 4, 2)


def net_lstm_in_both_directions(fluid):
    x = fluid.layers.data("x", [5, 3, 6], append_batch_size=False)
    h2, c2 = [fluid.layers.data(n, [4, 3, 4], append_batch_size=False) for n in ("h2", "c2")]
    initial = fluid.initializer.Uniform(-0.1, 0.1)
    fluid.layers.lstm(
        x, h2, c2, 5, 4, 2, dropout_prob=0.5, is_bidirec=True, is_test=True, name="deep", default_initializer=initial
    )


def net_rnn_of_gru(fluid):
    x = fluid.layers.data("x", [-1, 5, 6], append_batch_size=False)
    cell = fluid.layers.GRUCell(4)
    out, state = fluid.layers.rnn(cell, x)


def net_rnn_of_gru_trained(fluid):
    x = fluid.layers.data("x", [5, 3, 6], append_batch_size=False)
    x.stop_gradient = False
    length = fluid.layers.data("length", [3], dtype="int64", append_batch_size=False)
    start = fluid.layers.fc(fluid.layers.data("start", [3, 4], append_batch_size=False), 4)
    attr, bias = fluid.ParamAttr(name="w"), fluid.ParamAttr(name="b")
    cell = fluid.layers.GRUCell(4, attr, bias, fluid.layers.relu, fluid.layers.sigmoid, name="decoder")
    out, state = fluid.layers.rnn(
        cell, x, initial_states=start, sequence_length=length, time_major=True, is_reverse=True
    )
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out) + fluid.layers.mean(state))


def net_rnn_of_lstm_trained(fluid):
    x = fluid.layers.data("x", [-1, 5, 6], append_batch_size=False)
    x.stop_gradient = False
    length = fluid.layers.data("length", [-1], dtype="int64", append_batch_size=False)
    cell = fluid.layers.LSTMCell(4, fluid.ParamAttr(name="w"), forget_bias=0.5)
    out, states = fluid.layers.rnn(cell, x, sequence_length=length)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def net_initial_states(fluid):
    x = fluid.layers.data("x", [6])
    fluid.layers.LSTMCell(4).get_initial_states(x)
    fluid.layers.GRUCell(4).get_initial_states(x, shape=[7], dtype="float64", init_value=2, batch_dim_idx=1)
