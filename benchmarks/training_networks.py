"""The networks whose training speed is measured: written for `paddle.fluid` of 1.8.5, so also for Python 3.7.

Each function gets the `fluid` module and returns (what is fetched, optimizer, one batch of feeds). Without an optimizer the
program only runs. A batch is the same for every implementation: numpy's RandomState gives it.
"""

import numpy as np


def mlp(fluid, batch):
    """784-512-256-10, ReLU, Adam."""
    image = fluid.layers.data("image", [784])
    label = fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(image, 512, act="relu"), 256, act="relu")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 10, act="softmax"), label))
    random = np.random.RandomState(0)
    feed = {
        "image": random.rand(batch, 784).astype("float32"),
        "label": random.randint(0, 10, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3), feed


def convolution(fluid, batch):
    """LeNet with batch normalization on 1x28x28, Momentum."""
    image = fluid.layers.data("image", [1, 28, 28])
    label = fluid.layers.data("label", [1], dtype="int64")
    block = fluid.nets.simple_img_conv_pool(image, 20, 5, 2, 2, act="relu")
    block = fluid.layers.batch_norm(block)
    block = fluid.nets.simple_img_conv_pool(block, 50, 5, 2, 2, act="relu")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(block, 10, act="softmax"), label))
    random = np.random.RandomState(0)
    feed = {
        "image": random.rand(batch, 1, 28, 28).astype("float32"),
        "label": random.randint(0, 10, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Momentum(1e-2, 0.9), feed


def resnet18(fluid, batch):
    """ResNet-18 on 3x32x32, Momentum."""

    def unit(data, channels, stride, act):
        data = fluid.layers.conv2d(data, channels, 3, stride, 1, bias_attr=False)
        return fluid.layers.batch_norm(data, act=act)

    def block(data, channels, stride):
        shortcut = data
        if stride != 1 or data.shape[1] != channels:
            shortcut = fluid.layers.batch_norm(fluid.layers.conv2d(data, channels, 1, stride, bias_attr=False))
        branch = unit(unit(data, channels, stride, "relu"), channels, 1, None)
        return fluid.layers.elementwise_add(shortcut, branch, act="relu")

    image = fluid.layers.data("image", [3, 32, 32])
    label = fluid.layers.data("label", [1], dtype="int64")
    data = unit(image, 64, 1, "relu")
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        data = block(data, channels, stride)
    data = fluid.layers.pool2d(data, pool_type="avg", global_pooling=True)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(data, 10, act="softmax"), label))
    random = np.random.RandomState(0)
    feed = {
        "image": random.rand(batch, 3, 32, 32).astype("float32"),
        "label": random.randint(0, 10, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Momentum(1e-2, 0.9), feed


def resnet50(fluid, batch):
    """ResNet-50 on 3x224x224, Momentum."""

    def unit(data, channels, size=1, stride=1, act=None):
        data = fluid.layers.conv2d(data, channels, size, stride, size // 2, bias_attr=False)
        return fluid.layers.batch_norm(data, act=act)

    image = fluid.layers.data("image", [3, 224, 224])
    label = fluid.layers.data("label", [1], dtype="int64")
    data = fluid.layers.pool2d(unit(image, 64, 7, 2, "relu"), 3, "max", 2, 1)
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            shortcut = unit(data, 4 * channels, 1, stride) if block == 0 else data
            branch = unit(unit(data, channels, act="relu"), channels, 3, stride, "relu")
            data = fluid.layers.elementwise_add(shortcut, unit(branch, 4 * channels), act="relu")
    data = fluid.layers.pool2d(data, pool_type="avg", global_pooling=True)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(data, 1000, act="softmax"), label))
    random = np.random.RandomState(0)
    feed = {
        "image": random.rand(batch, 3, 224, 224).astype("float32"),
        "label": random.randint(0, 1000, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Momentum(1e-2, 0.9), feed


def sentences(fluid, batch, hidden):
    """Sentences of 20 to 60 words of 5000 told apart by the maximum over time of what `hidden` makes of gates, under Adam."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64")
    gates = fluid.layers.fc(fluid.layers.embedding(words, [5000, 128]), 4 * 128)
    best = fluid.layers.sequence_pool(hidden(gates), "max")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(best, 2, act="softmax"), label))
    random = np.random.RandomState(0)
    lengths = [int(n) for n in random.randint(20, 61, batch)]
    ids = random.randint(0, 5000, (sum(lengths), 1)).astype("int64")
    feed = {
        "words": fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace()),
        "label": random.randint(0, 2, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3), feed


def lstm(fluid, batch):
    """Embedding 5000x128, dynamic_lstm of 128 over sentences."""
    return sentences(fluid, batch, lambda gates: fluid.layers.dynamic_lstm(gates, 4 * 128, use_peepholes=False)[0])


def sparse_ctr(fluid, batch):
    """26 slots of one id each in a sparse table of 100,000 x 16, MLP 400-400, Adagrad (sparse rows)."""
    slots = [fluid.layers.data(f"slot{i}", [1], dtype="int64") for i in range(26)]
    label = fluid.layers.data("label", [1], dtype="int64")
    table = fluid.ParamAttr(name="table")
    rows = [fluid.layers.embedding(slot, [100000, 16], is_sparse=True, param_attr=table) for slot in slots]
    hidden = fluid.layers.fc(fluid.layers.concat(rows, 1), 400, act="relu")
    predict = fluid.layers.fc(fluid.layers.fc(hidden, 400, act="relu"), 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(predict, label))
    random = np.random.RandomState(0)
    feed = {f"slot{i}": random.randint(0, 100000, (batch, 1)).astype("int64") for i in range(26)}
    feed["label"] = random.randint(0, 2, (batch, 1)).astype("int64")
    return loss, fluid.optimizer.Adagrad(1e-2), feed


def deepfm(fluid, batch):
    """DeepFM on 39 fields: tables of 100,000 x 1 and x 10 with sparse gradients, MLP 400-400-400, Adam, lazy."""
    fields, features, width = 39, 100000, 10
    ids = fluid.layers.data("ids", [fields], dtype="int64")
    values = fluid.layers.data("values", [fields])
    label = fluid.layers.data("label", [1], dtype="int64")
    weights = fluid.layers.reshape(values, [-1, fields, 1])
    first = fluid.layers.embedding(fluid.layers.unsqueeze(ids, [2]), [features, 1], is_sparse=True)
    linear = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(first, weights), 1)
    rows = fluid.layers.embedding(fluid.layers.unsqueeze(ids, [2]), [features, width], is_sparse=True)
    rows = fluid.layers.elementwise_mul(rows, weights)
    sums = fluid.layers.square(fluid.layers.reduce_sum(rows, 1))
    squares = fluid.layers.reduce_sum(fluid.layers.square(rows), 1)
    pairs = fluid.layers.scale(
        fluid.layers.reduce_sum(fluid.layers.elementwise_sub(sums, squares), 1, keep_dim=True), 0.5
    )
    deep = fluid.layers.reshape(rows, [-1, fields * width])
    for _ in range(3):
        deep = fluid.layers.fc(deep, 400, act="relu")
    score = fluid.layers.elementwise_add(fluid.layers.elementwise_add(linear, pairs), fluid.layers.fc(deep, 1))
    target = fluid.layers.cast(label, "float32")
    loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(score, target))
    random = np.random.RandomState(0)
    feed = {
        "ids": random.randint(0, features, (batch, fields)).astype("int64"),
        "values": random.rand(batch, fields).astype("float32"),
        "label": random.randint(0, 2, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3, lazy_mode=True), feed


def seq2seq(fluid, batch):
    """GRU 128 both ways over 10 to 30 words, a decoder of 128 with additive attention in DynamicRNN, 5000 words, Adam."""
    words, width = 5000, 128
    source = fluid.layers.data("source", [1], dtype="int64", lod_level=1)
    target = fluid.layers.data("target", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64", lod_level=1)

    def project(data, size):
        return fluid.layers.fc(data, size, bias_attr=False)

    embedded = fluid.layers.embedding(source, [words, width])
    forward = fluid.layers.dynamic_gru(project(embedded, 3 * width), width)
    backward = fluid.layers.dynamic_gru(project(embedded, 3 * width), width, is_reverse=True)
    encoded = fluid.layers.concat([forward, backward], 1)
    keys = project(encoded, width)
    start = fluid.layers.fc(fluid.layers.sequence_first_step(backward), width, act="tanh")
    given = fluid.layers.embedding(target, [words, width])
    decoder = fluid.layers.DynamicRNN()
    with decoder.block():
        word = decoder.step_input(given)
        all_encoded, all_keys = decoder.static_input(encoded), decoder.static_input(keys)
        state = decoder.memory(init=start, need_reorder=True)
        query = fluid.layers.sequence_expand(project(state, width), all_keys)
        scores = project(fluid.layers.tanh(fluid.layers.elementwise_add(all_keys, query)), 1)
        weights = fluid.layers.reshape(fluid.layers.sequence_softmax(scores), [-1])
        seen = fluid.layers.sequence_pool(fluid.layers.elementwise_mul(all_encoded, weights, axis=0), "sum")
        gates = fluid.layers.fc([seen, word], 3 * width, bias_attr=False)
        state_next = fluid.layers.gru_unit(gates, state, 3 * width)[0]
        decoder.update_memory(state, state_next)
        decoder.output(fluid.layers.fc(state_next, words, act="softmax"))
    loss = fluid.layers.mean(fluid.layers.cross_entropy(decoder(), label))
    random = np.random.RandomState(0)

    def sequences(lengths):
        ids = random.randint(0, words, (sum(lengths), 1)).astype("int64")
        return fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())

    read, written = ([int(n) for n in random.randint(10, 31, batch)] for _ in range(2))
    feed = {"source": sequences(read), "target": sequences(written), "label": sequences(written)}
    return loss, fluid.optimizer.Adam(1e-3), feed


def bert_base(fluid, batch):
    """BERT-base, fine-tuned to tell sentences of 128 words apart: 12 layers of 768, dropout 0.1, Adam."""
    words, length, width, heads, layers = 30522, 128, 768, 12, 12
    size = width // heads
    ids, positions, kinds = (
        fluid.layers.data(name, [length, 1], dtype="int64") for name in ("ids", "positions", "kinds")
    )
    mask = fluid.layers.data("mask", [1, 1, length])
    label = fluid.layers.data("label", [1], dtype="int64")

    def project(data, columns, act=None):
        return fluid.layers.fc(data, columns, num_flatten_dims=2, act=act)

    def dropped(data):
        return fluid.layers.dropout(data, 0.1, dropout_implementation="upscale_in_train")

    def normalized(data):
        return fluid.layers.layer_norm(data, begin_norm_axis=2)

    def by_head(data):
        return fluid.layers.transpose(fluid.layers.reshape(data, [0, 0, heads, size]), [0, 2, 1, 3])

    def attention(data):
        query, key, value = (by_head(project(data, width)) for _ in range(3))
        scores = fluid.layers.matmul(query, key, transpose_y=True, alpha=size**-0.5)
        weights = dropped(fluid.layers.softmax(fluid.layers.elementwise_add(scores, mask)))
        seen = fluid.layers.transpose(fluid.layers.matmul(weights, value), [0, 2, 1, 3])
        return project(fluid.layers.reshape(seen, [0, 0, width]), width)

    tables = ((ids, words), (positions, 512), (kinds, 2))
    data = fluid.layers.sums([fluid.layers.embedding(of, [rows, width]) for of, rows in tables])
    data = dropped(normalized(data))
    for _ in range(layers):
        data = normalized(fluid.layers.elementwise_add(data, dropped(attention(data))))
        inner = project(project(data, 4 * width, "gelu"), width)
        data = normalized(fluid.layers.elementwise_add(data, dropped(inner)))
    first = fluid.layers.reshape(fluid.layers.slice(data, [1], [0], [1]), [-1, width])
    scores = fluid.layers.fc(dropped(fluid.layers.fc(first, width, act="tanh")), 2)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, label))
    random = np.random.RandomState(0)
    lengths = random.randint(length // 2, length + 1, (batch, 1, 1, 1))
    feed = {
        "ids": random.randint(0, words, (batch, length, 1)).astype("int64"),
        "positions": np.tile(np.arange(length).reshape(1, length, 1), (batch, 1, 1)).astype("int64"),
        "kinds": np.zeros((batch, length, 1), "int64"),
        "mask": np.where(np.arange(length) < lengths, 0, -10000).astype("float32"),
        "label": random.randint(0, 2, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(2e-5), feed


def million_rows(fluid, batch):
    """A table of 1,000,001 x 16 with sparse gradients under Adam that is not lazy: every row moves in every step."""
    words = fluid.layers.data("words", [1], dtype="int64")
    label = fluid.layers.data("label", [1], dtype="int64")
    row = fluid.layers.embedding(words, [1000001, 16], is_sparse=True)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(row, 2, act="softmax"), label))
    random = np.random.RandomState(0)
    feed = {
        "words": random.randint(0, 1000001, (batch, 1)).astype("int64"),
        "label": random.randint(0, 2, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3), feed


def lstmp(fluid, batch):
    """As `lstm`, with a projection to 64: dynamic_lstmp."""
    return sentences(fluid, batch, lambda gates: fluid.layers.dynamic_lstmp(gates, 4 * 128, 64, use_peepholes=False)[0])


def greedy(fluid, batch):
    """A decoder that runs: `while` over 30 words of 5000, GRU of 128, the best word goes on."""
    words, width, steps = 5000, 128, 30
    begin = fluid.layers.data("begin", [width])
    end = fluid.layers.fill_constant([1], "int64", steps)
    place = fluid.layers.zeros([1], "int64")
    states, chosen = fluid.layers.create_array("float32"), fluid.layers.create_array("int64")
    fluid.layers.array_write(fluid.layers.fc(begin, width, act="tanh"), place, states)
    fluid.layers.array_write(fluid.layers.fill_constant_batch_size_like(begin, [-1, 1], "int64", 1), place, chosen)
    more = fluid.layers.less_than(place, end)
    loop = fluid.layers.While(more)
    with loop.block():
        word = fluid.layers.embedding(fluid.layers.array_read(chosen, place), [words, width])
        gates = fluid.layers.fc(word, 3 * width, bias_attr=False)
        state = fluid.layers.gru_unit(gates, fluid.layers.array_read(states, place), 3 * width)[0]
        best = fluid.layers.topk(fluid.layers.fc(state, words, act="softmax"), 1)[1]
        fluid.layers.increment(place, 1, in_place=True)
        fluid.layers.array_write(state, place, states)
        fluid.layers.array_write(best, place, chosen)
        fluid.layers.less_than(place, end, cond=more)
    out = fluid.layers.mean(fluid.layers.array_read(states, end))
    return out, None, {"begin": np.random.RandomState(0).rand(batch, width).astype("float32")}


# name -> (function, examples a step)
NETWORKS = {
    "mlp": (mlp, 128),
    "convolution": (convolution, 64),
    "resnet18": (resnet18, 16),
    "lstm": (lstm, 32),
    "sparse_ctr": (sparse_ctr, 512),
    "deepfm": (deepfm, 512),
    "seq2seq": (seq2seq, 16),
    "bert_base": (bert_base, 8),
    "million_rows": (million_rows, 512),
    "lstmp": (lstmp, 32),
    "greedy": (greedy, 16),
}
ON_GPUS = {**NETWORKS, "resnet50": (resnet50, 8)}
"""Those that are trained on a GPU, and what no CPU trains in the time of a benchmark."""
