"""Networks with their optimizers: the training cases whose trajectories real Paddle computed (tests/golden/train.tar.xz)."""


def _classified(fluid, hidden, classes, label="label"):
    label = fluid.layers.data(label, [1], dtype="int64")
    return fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, classes, act="softmax"), label))


# ---------------------------------------------------------------- perceptrons
def _hidden(fluid):
    hidden = fluid.layers.fc(fluid.layers.data("img", [36]), 24, act="relu")
    return fluid.layers.fc(hidden, 24, act="tanh")


def _perceptron(fluid):
    return _classified(fluid, _hidden(fluid), 5)


def net_mlp_adadelta(fluid):
    fluid.optimizer.Adadelta(1.0).minimize(_perceptron(fluid))


def net_mlp_adagrad(fluid):
    fluid.optimizer.Adagrad(0.05, initial_accumulator_value=0.1).minimize(_perceptron(fluid))


def net_mlp_adam_expdecay(fluid):
    loss = _perceptron(fluid)
    fluid.optimizer.Adam(fluid.layers.exponential_decay(0.01, 3, 0.7, staircase=True)).minimize(loss)


def net_mlp_adam_natexp(fluid):
    logits = fluid.layers.fc(_hidden(fluid), 5)
    label = fluid.layers.data("label", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
    fluid.optimizer.Adam(fluid.layers.natural_exp_decay(0.01, 3, 0.5)).minimize(loss)


def net_mlp_adamax(fluid):
    fluid.optimizer.Adamax(0.01).minimize(_perceptron(fluid))


def net_mlp_ftrl(fluid):
    fluid.optimizer.Ftrl(0.05, l1=0.001, l2=0.001).minimize(_perceptron(fluid))


def net_mlp_lamb_poly(fluid):
    loss = _perceptron(fluid)
    fluid.optimizer.Lamb(fluid.layers.polynomial_decay(0.02, 10, 0.001, power=2.0)).minimize(loss)


def net_mlp_momentum_l2(fluid):
    decay = fluid.regularizer.L2Decay(0.001)
    fluid.optimizer.Momentum(0.05, 0.9, regularization=decay).minimize(_perceptron(fluid))


def net_mlp_nesterov_piecewise(fluid):
    loss = _perceptron(fluid)
    rate = fluid.layers.piecewise_decay([4, 9], [0.1, 0.05, 0.01])
    fluid.optimizer.Momentum(rate, 0.9, use_nesterov=True).minimize(loss)


def net_mlp_rmsprop_centered(fluid):
    fluid.optimizer.RMSProp(0.005, rho=0.9, momentum=0.5, centered=True).minimize(_perceptron(fluid))


def net_mlp_sgd_clip_gnorm(fluid):
    loss = _perceptron(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.3))
    fluid.optimizer.SGD(0.2).minimize(loss)


def net_mlp_sgd_clip_value(fluid):
    loss = _perceptron(fluid)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(0.02))
    fluid.optimizer.SGD(0.2).minimize(loss)


def net_mlp_sgd_cosine(fluid):
    loss = _perceptron(fluid)
    fluid.optimizer.SGD(fluid.layers.cosine_decay(0.2, 4, 4)).minimize(loss)


def net_mlp_sgd_noam(fluid):
    loss = _perceptron(fluid)
    fluid.optimizer.SGD(fluid.layers.noam_decay(16, 6)).minimize(loss)


# ---------------------------------------------------------------- linear regression
def _regression(fluid):
    predicted = fluid.layers.fc(fluid.layers.data("x", [13]), 1)
    return fluid.layers.mean(fluid.layers.square_error_cost(predicted, fluid.layers.data("y", [1])))


def net_fit_sgd(fluid):
    fluid.optimizer.SGD(0.01).minimize(_regression(fluid))


def net_fit_sgd_l1(fluid):
    decay = fluid.regularizer.L1Decay(0.01)
    fluid.optimizer.SGD(0.02, regularization=decay).minimize(_regression(fluid))


# ---------------------------------------------------------------- images
def net_conv_bn_adam(fluid):
    layers = fluid.layers
    hidden = layers.conv2d(layers.data("img", [1, 16, 16]), 6, 5, act="relu")
    hidden = layers.batch_norm(layers.pool2d(hidden, 2, "max", 2))
    hidden = layers.pool2d(layers.conv2d(hidden, 8, 3, act="relu"), 2, "max", 2)
    fluid.optimizer.Adam(0.005).minimize(_classified(fluid, hidden, 5))


def net_dcgan_rmsprop(fluid):
    layers = fluid.layers
    hidden = layers.batch_norm(layers.fc(layers.data("z", [6]), 64), act="relu")
    hidden = layers.reshape(hidden, [-1, 4, 4, 4])
    hidden = layers.conv2d_transpose(hidden, 3, filter_size=4, stride=2, padding=1, bias_attr=False)
    hidden = layers.leaky_relu(layers.batch_norm(hidden), 0.2)
    image = layers.conv2d(hidden, 1, 3, padding=1, act="tanh")
    loss = layers.mean(layers.square(image - layers.data("t", [1, 8, 8])))
    fluid.optimizer.RMSProp(0.005).minimize(loss)


def net_resnet_momentum_piecewise_l2(fluid):
    layers = fluid.layers

    def normalized(x, filters, size=3, stride=1, padding=1, act=None, bias=False):
        convolved = layers.conv2d(x, filters, size, stride, padding, bias_attr=None if bias else False)
        return layers.batch_norm(convolved, act=act)

    stem = normalized(layers.data("img", [3, 16, 16]), 6, act="relu")
    first = normalized(normalized(stem, 6, act="relu"), 6, bias=True)
    first = layers.elementwise_add(first, stem, act="relu")
    second = normalized(normalized(first, 8, stride=2, act="relu"), 8, bias=True)
    shortcut = normalized(first, 8, size=1, stride=2, padding=0)
    second = layers.elementwise_add(second, shortcut, act="relu")
    depthwise = layers.conv2d(second, 8, 3, padding=1, groups=8, bias_attr=False, use_cudnn=False)
    pooled = layers.pool2d(layers.batch_norm(depthwise, act="relu"), pool_type="avg", global_pooling=True)
    logits = layers.fc(pooled, 4)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, layers.data("label", [1], dtype="int64")))
    rate = layers.piecewise_decay([5, 8], [0.05, 0.02, 0.01])
    fluid.optimizer.Momentum(rate, 0.9, regularization=fluid.regularizer.L2Decay(1e-4)).minimize(loss)


# ---------------------------------------------------------------- words
def _bag_of_words(fluid):
    layers = fluid.layers
    words = layers.embedding(layers.data("words", [1], dtype="int64", lod_level=1), [80, 8], is_sparse=True)
    hidden = layers.tanh(layers.sequence_pool(words, "sum"))
    return _classified(fluid, layers.fc(hidden, 12, act="tanh"), 2)


def net_bow_sparse_adagrad(fluid):
    fluid.optimizer.Adagrad(0.05).minimize(_bag_of_words(fluid))


def net_bow_sparse_adam(fluid):
    fluid.optimizer.Adam(0.02).minimize(_bag_of_words(fluid))


def net_bow_sparse_adam_lazy(fluid):
    fluid.optimizer.Adam(0.02, lazy_mode=True).minimize(_bag_of_words(fluid))


def _word2vec(fluid, is_sparse):
    layers = fluid.layers
    words = [layers.data(name, [1], dtype="int64") for name in ("w0", "w1", "w2", "w3")]
    target = layers.data("next", [1], dtype="int64")
    shared = [layers.embedding(word, [60, 8], is_sparse=is_sparse, param_attr="shared_w") for word in words]
    hidden = layers.fc(layers.concat(shared, axis=1), 16, act="sigmoid")
    return layers.mean(layers.cross_entropy(layers.fc(hidden, 60, act="softmax"), target))


def net_w2v_dense_momentum(fluid):
    fluid.optimizer.Momentum(0.1, 0.9).minimize(_word2vec(fluid, False))


def net_w2v_sparse_sgd(fluid):
    fluid.optimizer.SGD(0.3).minimize(_word2vec(fluid, True))


def net_ctr_sparse_adam_lazy(fluid):
    layers = fluid.layers
    dense = layers.data("dense", [6])
    slots = [layers.data(name, [1], dtype="int64", lod_level=1) for name in ("C0", "C1", "C2")]
    label = layers.data("label", [1], dtype="int64")
    pooled = []
    for slot in slots:
        words = layers.embedding(slot, [50, 6], is_sparse=True, param_attr="SparseFeatFactors")
        pooled.append(layers.sequence_pool(words, "average"))
    hidden = layers.concat([*pooled, dense], axis=1)
    for _ in range(2):
        hidden = layers.fc(hidden, 16, act="relu")
    loss = layers.reduce_sum(layers.cross_entropy(layers.fc(hidden, 2, act="softmax"), label))
    fluid.optimizer.Adam(0.01, lazy_mode=True).minimize(loss)


def net_lstm_adam_clip(fluid):
    layers = fluid.layers
    words = layers.embedding(layers.data("words", [1], dtype="int64", lod_level=1), [80, 8])
    first = layers.fc(words, 32)
    forward, _ = layers.dynamic_lstm(first, 32)
    second = layers.fc([first, forward], 32)
    backward, _ = layers.dynamic_lstm(second, 32, is_reverse=True)
    pooled = [layers.sequence_pool(second, "max"), layers.sequence_pool(backward, "max")]
    loss = _classified(fluid, pooled, 2)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    fluid.optimizer.Adam(0.02).minimize(loss)


def net_crf_tagger_sgd_expdecay(fluid):
    layers = fluid.layers
    words = layers.embedding(layers.data("word", [1], dtype="int64", lod_level=1), [50, 6], is_sparse=True)
    forward = layers.dynamic_gru(layers.fc(words, 18), 6)
    backward = layers.dynamic_gru(layers.fc(words, 18), 6, is_reverse=True)
    emissions = layers.fc([forward, backward], 5)
    target = layers.data("target", [1], dtype="int64", lod_level=1)
    attr = fluid.ParamAttr(name="crfw", learning_rate=0.1)
    loss = layers.mean(layers.linear_chain_crf(emissions, target, param_attr=attr))
    fluid.optimizer.SGD(layers.exponential_decay(0.05, 5, 0.5)).minimize(loss)


# ---------------------------------------------------------------- recurrent blocks
def net_lm_staticrnn_sgd(fluid):
    layers = fluid.layers
    x, y = (layers.data(name, [5, 3, 1], dtype="int64", append_batch_size=False) for name in "xy")
    state = layers.data("h0", [3, 8], append_batch_size=False)
    words = layers.embedding(x, [30, 6])
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(words)
        before = rnn.memory(init=state)
        hidden = layers.fc([word, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    logits = layers.fc(rnn(), 30, num_flatten_dims=2)
    fluid.optimizer.SGD(0.3).minimize(layers.mean(layers.softmax_with_cross_entropy(logits, y)))


def net_seq2seq_att_adam(fluid):
    layers = fluid.layers
    source = layers.data("src_word_id", [1], dtype="int64", lod_level=1)
    words = layers.embedding(source, [30, 8], is_sparse=True, param_attr="src_emb")
    forward = layers.dynamic_gru(layers.fc(words, 24, bias_attr=False), 8)
    backward = layers.dynamic_gru(layers.fc(words, 24, bias_attr=False), 8, is_reverse=True)
    encoded = layers.concat([forward, backward], axis=1)
    projected = layers.fc(encoded, 8, bias_attr=False)
    start = layers.fc(layers.sequence_pool(backward, "first"), 8, act="tanh")
    target = layers.data("trg", [1], dtype="int64", lod_level=1)
    embedded = layers.embedding(target, [30, 8], is_sparse=True, param_attr="trg_emb")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        vectors, projections = rnn.static_input(encoded), rnn.static_input(projected)
        state = rnn.memory(init=start, need_reorder=True)
        queries = layers.sequence_expand(layers.fc(state, 8, param_attr="att_s.w", bias_attr=False), projections)
        mixed = layers.tanh(layers.elementwise_add(projections, queries))
        weights = layers.sequence_softmax(layers.fc(mixed, 1, param_attr="att_v.w", bias_attr=False))
        context = layers.sequence_pool(layers.elementwise_mul(vectors, weights, axis=0), "sum")
        gates = layers.fc([context, word], 24, bias_attr=False)
        hidden, _, _ = layers.gru_unit(gates, state, 24)
        rnn.update_memory(state, hidden)
        rnn.output(layers.fc(hidden, 30, act="softmax"))
    loss = layers.mean(layers.cross_entropy(rnn(), layers.data("trg_next", [1], dtype="int64", lod_level=1)))
    fluid.optimizer.Adam(0.02).minimize(loss)


# ---------------------------------------------------------------- attention
def _attention(fluid, x, bias):
    layers = fluid.layers

    def heads(width):
        projected = layers.fc(x, width, num_flatten_dims=2)
        return layers.transpose(layers.reshape(projected, [0, 0, 2, 8]), [0, 2, 1, 3])

    query, key, value = heads(16), heads(16), heads(16)
    weights = layers.softmax(layers.matmul(layers.scale(query, 8**-0.5), key, transpose_y=True) + bias)
    mixed = layers.transpose(layers.matmul(weights, value), [0, 2, 1, 3])
    return layers.fc(layers.reshape(mixed, [0, 0, 16]), 16, num_flatten_dims=2)


def net_bert_adam_noam(fluid):
    layers = fluid.layers
    src, pos = (layers.data(name, [2, 10, 1], dtype="int64", append_batch_size=False) for name in ("src", "pos"))
    mask = layers.data("mask", [2, 10, 1], append_batch_size=False)
    label = layers.data("label", [2, 1], dtype="int64", append_batch_size=False)
    hidden = layers.embedding(src, [50, 16]) + layers.embedding(pos, [10, 16])
    hidden = layers.layer_norm(hidden, begin_norm_axis=2)
    bias = layers.scale(layers.matmul(mask, mask, transpose_y=True), 10000.0, -1.0, bias_after_scale=False)
    bias = layers.stack([bias] * 2, axis=1)
    bias.stop_gradient = True
    for _ in range(2):
        hidden = layers.layer_norm(hidden + _attention(fluid, hidden, bias), begin_norm_axis=2)
        inner = layers.fc(hidden, 32, num_flatten_dims=2, act="gelu")
        hidden = layers.layer_norm(hidden + layers.fc(inner, 16, num_flatten_dims=2), begin_norm_axis=2)
    first = layers.reshape(layers.slice(hidden, axes=[1], starts=[0], ends=[1]), [-1, 16])
    logits = layers.fc(layers.fc(first, 16, act="tanh"), 3)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    fluid.optimizer.Adam(layers.noam_decay(16, 8), beta2=0.98).minimize(loss)
