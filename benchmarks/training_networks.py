"""The networks whose training speed is measured: written for `paddle.fluid` of 1.8.5, so also for Python 3.7.

Each function gets the `fluid` module and returns (loss, optimizer, function that makes one batch of feeds). A batch is
the same for every implementation: numpy's RandomState gives it.
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


def lstm(fluid, batch):
    """Embedding 5000x128, dynamic_lstm of 128 over sequences of 20 to 60 words, max over time, Adam."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64")
    data = fluid.layers.fc(fluid.layers.embedding(words, [5000, 128]), 4 * 128)
    hidden, _ = fluid.layers.dynamic_lstm(data, 4 * 128, use_peepholes=False)
    best = fluid.layers.sequence_pool(hidden, "max")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(best, 2, act="softmax"), label))
    random = np.random.RandomState(0)
    lengths = [int(n) for n in random.randint(20, 61, batch)]
    ids = random.randint(0, 5000, (sum(lengths), 1)).astype("int64")
    feed = {
        "words": fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace()),
        "label": random.randint(0, 2, (batch, 1)).astype("int64"),
    }
    return loss, fluid.optimizer.Adam(1e-3), feed


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


# name -> (function, examples a step)
NETWORKS = {
    "mlp": (mlp, 128),
    "convolution": (convolution, 64),
    "resnet18": (resnet18, 16),
    "lstm": (lstm, 32),
    "sparse_ctr": (sparse_ctr, 512),
}
