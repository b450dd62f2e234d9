"""Networks of the layers that reshape, cut, join, pick and pad."""

import numpy as np


def net_reshaping(fluid):
    L = fluid.layers
    x = L.data("x", [2, 3, 4], append_batch_size=False)
    L.reshape(x, [6, 4])
    L.reshape(x, [0, -1], act="relu")
    L.reshape(x, [-1, L.fill_constant([1], "int32", 4)])
    L.reshape(x, L.fill_constant([2], "int32", 4))
    L.reshape(x, [4, 6], actual_shape=L.fill_constant([2], "int32", 4))
    L.reshape(x, [24], inplace=True)
    y = L.data("y", [1, 3, 1])
    L.squeeze(y, [1])
    L.unsqueeze(y, 0)
    L.unsqueeze(y, [1, 2])
    L.unsqueeze(y, [L.fill_constant([1], "int32", 1), 2])
    L.unsqueeze(y, L.fill_constant([1], "int32", 1))
    L.flatten(y, axis=2)
    L.transpose(y, [1, 0, 2, 3])
    L.t(L.data("m", [3, 4], append_batch_size=False))


def net_joining_and_cutting(fluid):
    L = fluid.layers
    x, y = L.data("x", [4, 6]), L.data("y", [4, 6])
    L.concat([x, y], axis=1)
    L.concat([x, y], axis=L.fill_constant([1], "int32", 1))
    L.stack([x, y], axis=1)
    L.stack(x)
    L.split(x, 2)
    L.split(x, [2, -1, 1], dim=2)
    L.split(x, [2, L.fill_constant([1], "int32", 2), 2], dim=-1)
    L.split(x, 2, dim=L.fill_constant([1], "int32", 1))
    L.unstack(x, axis=1)
    L.slice(x, [1, 2], [0, -3], [2, 1000])
    L.slice(x, [1], [L.fill_constant([1], "int32", 1)], [3])
    L.slice(x, [1], L.fill_constant([1], "int32", 1), L.fill_constant([1], "int32", 3))
    L.strided_slice(x, [1, 2], [0, 5], [4, 0], [2, -1])
    L.strided_slice(x, [1], [L.fill_constant([1], "int32", 1)], [3], [1])
    L.expand(x, [1, 2, 3])
    L.expand(x, [1, L.fill_constant([1], "int32", 2), 3])


def net_expand_as(fluid):
    x, y = fluid.layers.data("x", [4, 6]), fluid.layers.data("y", [4, 6])
    fluid.layers.expand_as(x, y)


def net_queries(fluid):
    L = fluid.layers
    x = L.data("x", [4, 6])
    L.shape(x)
    L.rank(x)
    L.size(x)


def net_picking(fluid):
    L = fluid.layers
    x = L.data("x", [3, 4], append_batch_size=False)
    rows = L.data("rows", [2], dtype="int32", append_batch_size=False)
    ids = L.data("ids", [1], dtype="int64")
    L.gather(x, rows)
    L.gather_nd(x, L.data("places", [2, 1], dtype="int32", append_batch_size=False))
    L.scatter(x, rows, L.data("updates", [2, 4], append_batch_size=False), overwrite=False)
    L.scatter_nd_add(
        x, L.data("at", [2, 1], dtype="int32", append_batch_size=False), L.data("add", [2, 4], append_batch_size=False)
    )
    L.index_select(x, rows, dim=1)
    L.multiplex([x, x], L.data("which", [1], dtype="int32"))
    L.one_hot(ids, 5)
    L.one_hot(ids, L.fill_constant([1], "int32", 5), allow_out_of_range=True)
    L.shard_index(ids, 20, 2, 1)
    flag = L.less_than(x, x)
    L.where(flag)
    L.nonzero(flag, as_tuple=True)
    line = L.data("line", [6], append_batch_size=False)
    L.unique(line)
    L.unique_with_counts(line)


def net_reordering(fluid):
    L = fluid.layers
    x = L.data("x", [3, 4], append_batch_size=False)
    L.reverse(x, 1)
    L.flip(x, [0, 1])
    L.roll(x, 1)
    L.roll(x, [1, 2], [0, 1])
    a, b = L.data("a", [3], append_batch_size=False), L.data("b", [4], append_batch_size=False)
    L.meshgrid([a, b])
    L.diag(a)
    L.diag(np.array([1, 2], "int32"))
    L.diag_embed(x, 1)
    L.trace(x)
    L.tril(x, 1)
    L.triu(x)


def net_padding_by_a_tensor(fluid):
    image = fluid.layers.data("image", [4, 4, 4])
    fluid.layers.pad2d(image, fluid.layers.fill_constant([4], "int32", 1))


def net_padding_and_channels(fluid):
    L = fluid.layers
    x = L.data("x", [3, 4], append_batch_size=False)
    L.pad(x, [0, 1, 1, 2], pad_value=0.5)
    L.pad_constant_like(L.data("big", [5, 6], append_batch_size=False), x)
    image = L.data("image", [4, 4, 4])
    L.pad2d(image, [1, 2, 3, 4], mode="reflect")
    L.crop(x, [2, 2], [1, 1])
    L.crop(x, shape=L.data("like", [2, 2], append_batch_size=False))
    L.crop_tensor(x, [2, -1], [0, 1])
    L.crop_tensor(x, [2, L.fill_constant([1], "int32", 2)], [0, L.fill_constant([1], "int32", 1)])
    L.crop_tensor(x, L.fill_constant([2], "int32", 2), L.fill_constant([2], "int32", 1))
    L.space_to_depth(image, 2)
    L.pixel_shuffle(image, 2)
    L.shuffle_channel(image, 2)
    L.temporal_shift(image, 2)
    L.autoincreased_step_counter()
    L.autoincreased_step_counter("mine", begin=3, step=2)
    L.autoincreased_step_counter("mine")
