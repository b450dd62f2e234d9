"""Networks of sequences, with the gradients that training them appends."""


def _steps(fluid, size=6, name="words"):
    words = fluid.layers.data(name, [1], dtype="int64", lod_level=1)
    return fluid.layers.fc(fluid.layers.embedding(words, [10, 4]), size)


def _train(fluid, out):
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))


def net_sequence_conv(fluid):
    _train(fluid, fluid.layers.sequence_conv(_steps(fluid), 5, act="relu"))


def net_sequence_conv_of_four_steps(fluid):
    attr = fluid.ParamAttr(name="w")
    _train(
        fluid,
        fluid.layers.sequence_conv(_steps(fluid), 5, 4, padding_start=0, bias_attr=False, param_attr=attr, name="conv"),
    )


def net_sequence_softmax(fluid):
    _train(fluid, fluid.layers.sequence_softmax(_steps(fluid, 1), name="soft"))


def net_sequence_reverse(fluid):
    _train(fluid, fluid.layers.sequence_reverse(_steps(fluid)))


def net_sequence_enumerate(fluid):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    fluid.layers.sequence_enumerate(words, 3, -1)


def net_sequence_slice(fluid):
    offset, length = (fluid.layers.data(name, [1], dtype="int64") for name in ("offset", "length"))
    _train(fluid, fluid.layers.sequence_slice(_steps(fluid), offset, length))


def net_sequence_scatter(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [4]), 6)
    index = fluid.layers.data("index", [1], dtype="int64", lod_level=1)
    updates = fluid.layers.data("updates", [1], lod_level=1)
    updates.stop_gradient = False
    _train(fluid, fluid.layers.sequence_scatter(x, index, updates))


def net_sequence_pool(fluid):
    steps = _steps(fluid)
    pooled = [fluid.layers.sequence_pool(steps, kind) for kind in ("average", "sum", "sqrt", "max")]
    pooled += [fluid.layers.sequence_first_step(steps), fluid.layers.sequence_last_step(steps)]
    _train(fluid, fluid.layers.concat(pooled, axis=1))


def net_sequence_pool_of_nothing(fluid):
    fluid.layers.sequence_pool(_steps(fluid), "max", is_test=True, pad_value=0.5)


def net_sequence_pool_of_two_levels(fluid):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=2)
    words = fluid.layers.embedding(words, [10, 4], is_sparse=True)
    _train(fluid, fluid.layers.sequence_pool(fluid.layers.sequence_pool(words, "sum"), "last"))


def net_sequence_concat(fluid):
    _train(fluid, fluid.layers.sequence_concat([_steps(fluid), _steps(fluid, name="others")]))


def net_sequence_expand(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [4]), 6)
    _train(fluid, fluid.layers.sequence_expand(x, _steps(fluid)))


def net_sequence_expand_at_a_level(fluid):
    x = fluid.layers.data("x", [4], lod_level=1)
    y = fluid.layers.data("y", [1], lod_level=2)
    x.stop_gradient = False
    out = fluid.layers.mean(fluid.layers.sequence_expand(x, y, ref_level=0, name="expand"))
    fluid.backward.append_backward(out)


def net_sequence_expand_sequences_as(fluid):
    x = fluid.layers.data("x", [4], lod_level=1)
    x.stop_gradient = False
    out = fluid.layers.mean(fluid.layers.sequence_expand_as(x, fluid.layers.data("y", [1], lod_level=1)))
    fluid.backward.append_backward(out)


def net_sequence_expand_as(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [4]), 6)
    _train(fluid, fluid.layers.sequence_expand_as(x, _steps(fluid)))


def net_sequence_reshape(fluid):
    _train(fluid, fluid.layers.sequence_reshape(_steps(fluid), 3))


def net_sequence_pad(fluid):
    zero = fluid.layers.fill_constant([1], "float32", 0.0)
    padded, length = fluid.layers.sequence_pad(_steps(fluid), zero)
    _train(fluid, fluid.layers.sequence_unpad(padded, length))


def net_sequence_pad_to_a_length(fluid):
    zero = fluid.layers.fill_constant([1], "float32", 0.0)
    padded, _ = fluid.layers.sequence_pad(_steps(fluid), zero, maxlen=8, name="pad")
    _train(fluid, padded)


def net_sequence_mask(fluid):
    length = fluid.layers.data("length", [1], dtype="int64")
    longest = fluid.layers.fill_constant([1], "int32", 9)
    fluid.layers.sequence_mask(length)
    fluid.layers.sequence_mask(length, 7, "float32", name="mask")
    fluid.layers.sequence_mask(length, longest, "int32")


def net_lod_reset(fluid):
    _train(fluid, fluid.layers.lod_reset(_steps(fluid), target_lod=[0, 2, 5]))


def net_lod_reset_as_another(fluid):
    x = fluid.layers.fc(fluid.layers.data("x", [4]), 6)
    _train(fluid, fluid.layers.lod_reset(x, _steps(fluid)))


def net_lod_append(fluid):
    steps = _steps(fluid)
    fluid.layers.lod_append(steps, [0, 1, 2])
    fluid.layers.lod_append(steps, fluid.layers.data("y", [1], lod_level=1))
