"""Networks of the layers that make tensors."""

import numpy as np


def net_constants(fluid):
    L = fluid.layers
    L.fill_constant([2, 3], "int64", 7)
    L.fill_constant([1], "float32", 0.1, force_cpu=True)
    x = L.data("x", [4])
    L.fill_constant_batch_size_like(x, [-1, 5], "float32", 2.5)
    L.ones([2], "int32")
    L.zeros([2, 2], "float64")
    L.ones_like(x)
    L.zeros_like(x)
    L.full_like(x, 3.0)
    L.full([2, 2], 1.5)
    L.eye(3)
    L.eye(2, 3, batch_shape=[2], dtype="int32")


def net_shapes_that_are_tensors(fluid):
    L = fluid.layers
    size = L.fill_constant([1], "int64", 3)
    L.fill_constant([2, size], "float32", 1.0)
    L.fill_constant(L.fill_constant([2], "int32", 3), "float32", L.fill_constant([1], "float32", 2.0))


def net_ranges(fluid):
    L = fluid.layers
    L.range(0, 10, 2, "int32")
    L.arange(0.0, 1.0, 0.1)
    L.linspace(0.0, 1.0, 5, "float32")
    L.range(L.fill_constant([1], "float32", 1.0), 10, 2, "int32")


def net_copies(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    L.cast(x, "int64")
    L.assign(x, L.create_tensor("float32", name="copy"))
    L.assign(np.array([[1, 2], [3, 4]], "int32"))
    L.assign(np.array([1.5], "float32"))
    L.create_global_var([1], 0.5, "float32", persistable=True, name="rate")
    L.create_parameter([2, 3], "float32", name="weight")
