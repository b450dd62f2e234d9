"""Networks of StaticRNN and DynamicRNN."""


def _static(fluid, trained):
    x = fluid.layers.data("x", [5, 2, 3], append_batch_size=False)
    hidden = fluid.layers.fc(x, 4, num_flatten_dims=2)
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(hidden)
        prev = rnn.memory(shape=[-1, 4], batch_ref=hidden, init_value=0.5)
        new = fluid.layers.fc([word, prev], 4, act="tanh")
        rnn.update_memory(prev, new)
        rnn.step_output(new)
        rnn.output(word, prev)
    outs = rnn()
    loss = fluid.layers.mean(outs[0])
    if trained:
        fluid.optimizer.SGD(0.1).minimize(loss)


def net_static_rnn(fluid):
    _static(fluid, False)


def net_static_rnn_trained(fluid):
    _static(fluid, True)


def net_static_rnn_with_initial_state(fluid):
    x = fluid.layers.data("x", [5, 2, 3], append_batch_size=False)
    y = fluid.layers.data("y", [5, 2, 3], append_batch_size=False)
    x.stop_gradient = y.stop_gradient = False
    start = fluid.layers.fc(fluid.layers.data("start", [2, 3], append_batch_size=False), 3)
    rnn = fluid.layers.StaticRNN(name="walk")
    with rnn.step():
        a, b = rnn.step_input(x), rnn.step_input(y)
        first, second = rnn.memory(init=start), rnn.memory(init=start)
        new = a + b * first
        rnn.update_memory(first, new)
        rnn.update_memory(second, fluid.layers.fc(second, 3, param_attr="w", bias_attr=False) + new)
        rnn.step_output(new + second)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(rnn()))


def net_static_rnn_without_memory(fluid):
    x = fluid.layers.data("x", [5, 2, 3], append_batch_size=False)
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        rnn.step_output(rnn.step_input(x) * 2.0)
    rnn()


def _dynamic(fluid, trained):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    embedded = fluid.layers.embedding(words, [10, 4])
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        prev = rnn.memory(shape=[5])
        hidden = fluid.layers.fc([word, prev], 5, act="relu")
        rnn.update_memory(prev, hidden)
        rnn.output(hidden)
    loss = fluid.layers.mean(rnn())
    if trained:
        fluid.optimizer.SGD(0.1).minimize(loss)


def net_dynamic_rnn(fluid):
    _dynamic(fluid, False)


def net_dynamic_rnn_trained(fluid):
    _dynamic(fluid, True)


def net_dynamic_rnn_with_static_input(fluid):
    x = fluid.layers.data("x", [3], lod_level=1)
    x2 = fluid.layers.data("x2", [3], lod_level=1)
    encoded = fluid.layers.fc(fluid.layers.data("encoded", [4]), 4)
    rnn = fluid.layers.DynamicRNN(name="decoder")
    with rnn.block():
        a, b = rnn.step_input(x), rnn.step_input(x2, level=0)
        context = rnn.static_input(encoded)
        first = rnn.memory(init=encoded, need_reorder=True)
        second = rnn.memory(init=encoded)
        third = rnn.memory(shape=[4], value=1.0, dtype="float32")
        hidden = fluid.layers.fc([a, b, context, first], 4, act="tanh")
        total = second + third + hidden
        rnn.update_memory(first, hidden)
        rnn.update_memory(second, total)
        rnn.update_memory(third, hidden)
        rnn.output(hidden, total)
    one, other = rnn()
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(one + other))
