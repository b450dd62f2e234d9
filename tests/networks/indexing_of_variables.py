"""Networks that index Variables."""


def net_numbers_and_slices(fluid):
    x = fluid.layers.data("x", [4, 5, 6], append_batch_size=False)
    x[0]
    x[-1]
    x[1, 2]
    x[:, 0]
    x[1:3]
    x[:2, 1:, -3:-1]
    x[:]
    x[0, :, 2]


def net_steps(fluid):
    x = fluid.layers.data("x", [4, 5, 6], append_batch_size=False)
    x[0:4:2]
    x[::-1]
    x[0, ::-1]
    x[0:1, 4:0:-2, ::-1]


def net_tensors(fluid):
    x = fluid.layers.data("x", [4, 5, 6], append_batch_size=False)
    at = fluid.layers.fill_constant([1], "int32", 1)
    x[at]
    x[0, at]
    x[at:3, 2]
    x[0:at, at]
    x[at:4:2]
    fluid.layers.shape(x)[0]
