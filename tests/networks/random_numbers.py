"""Networks that draw random numbers."""


def _size(fluid, dtype="int64"):
    return fluid.layers.fill_constant([1], dtype, 3)


def net_uniform_random(fluid):
    fluid.layers.uniform_random([2, 3])
    fluid.layers.uniform_random((2, 3), "float64", 0.0, 2.0, 5)


def net_uniform_random_of_tensors(fluid):
    fluid.layers.uniform_random([2, _size(fluid)])
    fluid.layers.uniform_random(fluid.layers.data("shape", [2], append_batch_size=False, dtype="int64"))


def net_gaussian_random(fluid):
    fluid.layers.gaussian_random([2, 3])
    fluid.layers.gaussian_random([2, 3], 1.0, 0.5, 5, "float64")


def net_gaussian_random_of_tensors(fluid):
    fluid.layers.gaussian_random([2, _size(fluid), _size(fluid, "int32")])
    fluid.layers.gaussian_random(fluid.layers.data("shape", [2], append_batch_size=False, dtype="int32"))


def net_batch_size_like(fluid):
    x = fluid.layers.data("x", [4])
    fluid.layers.uniform_random_batch_size_like(x, [-1, 7])
    fluid.layers.uniform_random_batch_size_like(x, [7, 5], "float64", 0, 1, 0.0, 2.0, 3)
    fluid.layers.gaussian_random_batch_size_like(x, [-1, 7])
    fluid.layers.gaussian_random_batch_size_like(x, [7, 5], 1, 1, 2.0, 3.0, 3)


def net_sampling_id(fluid):
    fluid.layers.sampling_id(fluid.layers.data("x", [4]))
    fluid.layers.sampling_id(fluid.layers.data("y", [4]), 0.1, 0.9, 3, "int64")


def net_randint(fluid):
    fluid.layers.randint(5)
    fluid.layers.randint(-2, 5, [2, 3], dtype="int32", seed=4, name="drawn")
    out = fluid.layers.create_tensor("int32")
    fluid.layers.randint(0, 5, [2], out=out, dtype="int32", device="cpu", stop_gradient=True)


def net_randint_of_tensors(fluid):
    fluid.layers.randint(0, 5, [2, _size(fluid)])
    fluid.layers.randint(0, 5, fluid.layers.data("shape", [2], append_batch_size=False, dtype="int64"))


def net_randn(fluid):
    import numpy

    numpy.random.seed(3)
    fluid.layers.randn([2, 3])
    fluid.layers.randn([2, 3], dtype="float64", device="cpu", stop_gradient=False, name="normal")


def net_randperm(fluid):
    fluid.layers.randperm(5)
    fluid.layers.randperm(5, dtype="int32", device="cpu", stop_gradient=False, seed=3)
