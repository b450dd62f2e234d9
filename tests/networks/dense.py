"""Networks of fc and embedding layers."""


def net_fc(fluid):
    x = fluid.layers.data("x", [4])
    fluid.layers.fc(x, 3, act="relu")


def net_fc_of_two_inputs(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [5])
    attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.Normal(0.0, 0.1), learning_rate=0.5)
    fluid.layers.fc([x, y], 3, bias_attr=False, param_attr=[attr, None])


def net_embedding(fluid):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    fluid.layers.embedding(words, [10, 4], is_sparse=True, padding_idx=-1)
