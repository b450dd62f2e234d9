"""Networks of fluid.data, fluid.one_hot and fluid.embedding."""


def net_data(fluid):
    fluid.data("x", [None, 3, -1])
    fluid.data("y", [2, 3], "int64", 1)


def net_one_hot(fluid):
    x = fluid.data("x", [None, 3], "int64")
    fluid.one_hot(x, 5)
    fluid.one_hot(x, fluid.layers.fill_constant([1], "int32", 5), allow_out_of_range=True)


def net_embedding(fluid):
    x = fluid.data("x", [None, 3], "int64")
    out = fluid.embedding(x, [10, 4], padding_idx=-2, param_attr="w")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def net_embedding_sparse(fluid):
    words = fluid.data("words", [None], "int64", lod_level=1)
    out = fluid.embedding(words, [10, 4], is_sparse=True, dtype="float64")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))
